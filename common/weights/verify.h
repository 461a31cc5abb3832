// Checks a segment's header and directory against the memory that holds them. Trusts nothing in them: every offset is
// range-checked before use, so damaged bytes cause an error and never a read outside the mapping.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/weights/format.h"

namespace moestro::weights {

// The directory of the segment of `bytes` bytes at `data`, fully verified. UNAVAILABLE while it is being written,
// FAILED_PRECONDITION for another layout version or a failed load, DATA_LOSS for any damage, INVALID_ARGUMENT if `data`
// is not on a 4096-byte boundary.
absl::StatusOr<std::span<const TensorEntry>> VerifySegment(const uint8_t* data, int64_t bytes);

}  // namespace moestro::weights
