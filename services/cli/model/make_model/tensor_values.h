// The bytes of a planned tensor, for any range of its elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "services/cli/model/make_model/tensor_plan.h"

namespace moestro::cli {

// Writes elements [begin, end) of `tensor` to `out`, little-endian, (end - begin) * DTypeBytes bytes. The bytes do not
// depend on how a tensor is divided into ranges. Thread-safe. REQUIRES: 0 <= begin <= end <= elements().
void FillValues(const PlannedTensor& tensor, uint64_t seed, int64_t begin, int64_t end, std::byte* out);

}  // namespace moestro::cli
