// Having the kernel back a shared mapping with memory now, with several threads, instead of one fault at a time later.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "common/platform/numa.h"

namespace moestro {

// Bytes from the end of the stretch before it (the first one from 0) to `end`, whose pages are to come from `domain`
// (null: anywhere). A page that two stretches share lies with the first, with huge pages up to 2 MiB of them.
struct MemoryStretch {
  int64_t end = 0;
  const NumaDomain* domain = nullptr;
};

struct ReserveOptions {
  int threads = 0;                            // 0: one per CPU that the calling thread may use
  std::vector<MemoryStretch> stretches = {};  // ends ascend; what lies behind the last one comes from anywhere
  // Called by the calling thread between pieces of at most 16 MiB with the bytes reserved so far; an error stops the
  // work and becomes its result. May be empty.
  std::function<absl::Status(int64_t bytes)> watch = {};
};

// Backs [data, data + bytes), which is a writable shared mapping of the file `fd` from its beginning, on a page
// boundary. Goes through the mapping and not through fallocate: that holds a lock on the file, so that threads would
// wait for each other, does not know that the mapping asks for huge pages, and leaves the page tables empty.
// RESOURCE_EXHAUSTED when there is no room; what was reserved until then stays. Signals do no harm. A wish for a domain
// is not granted where the system forbids it, or when the domain is full.
absl::Status ReserveMemory(int fd, uint8_t* data, int64_t bytes, const ReserveOptions& options);

}  // namespace moestro
