// Backs a shared mapping with memory now, on several threads, instead of one page fault at a time later.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "common/base/math.h"
#include "common/platform/numa.h"

namespace moestro {

// Bytes from the end of the previous stretch (the first one's: from the first byte) to `end`. Their pages come from
// `domain` (null: anywhere). A page that two stretches share belongs to the first one: up to 2 MiB with huge pages.
struct MemoryStretch {
  int64_t end = 0;
  const NumaDomain* domain = nullptr;
};

struct ReserveOptions {
  int threads = 0;                            // 0: one per CPU that the calling thread may use
  std::vector<MemoryStretch> stretches = {};  // ascending ends; bytes after the last end come from anywhere
  // The calling thread calls it between pieces of at most 16 MiB, with the bytes reserved so far. An error stops the
  // work and is returned. May be empty.
  std::function<absl::Status(int64_t bytes)> watch = {};
};

// Backs `bytes` of the file `fd`, of which `data` is a writable, shared mapping from its start; `bytes` begin on a
// page. Populates the mapping instead of calling fallocate, which has three faults. It locks the file, so threads would
// wait for each other; it ignores the mapping's request for huge pages; it leaves the page tables empty.
// RESOURCE_EXHAUSTED if there is no room; pages reserved so far stay. Signals do no harm. A domain is only a
// preference: the system may forbid it, or the domain may be full.
absl::Status ReserveMemory(int fd, uint8_t* data, IndexRange bytes, const ReserveOptions& options);

}  // namespace moestro
