// The layout of a KV pool.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/kv/format.h"

namespace moestro::kv {

// Byte offsets from the pool's start, see format.h.
struct KvLayout {
  int64_t slots_offset = 0;
  int64_t pages_offset = 0;
  int64_t total_bytes = 0;
};

// INVALID_ARGUMENT if a number of `geometry` is not positive, if pages or slots do not fit 32-bit indices, or if the
// total does not fit 63 bits. Safe for any input.
absl::StatusOr<KvLayout> ComputeKvLayout(const KvGeometry& geometry);

}  // namespace moestro::kv
