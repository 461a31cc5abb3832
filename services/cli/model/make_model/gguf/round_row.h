// Weights in GGUF's types, by plain rounding: valid files, not the values that ggml's search for scales finds.
#pragma once

#include <cstdint>
#include <span>

#include "common/tensor/dtype.h"

namespace moestro::cli {

// Writes a row of RowBytes(type, values.size()) bytes: F32, F16, BF16, Q8_0, Q4_0, Q5_0, Q4_K, Q5_K, Q6_K or MXFP4,
// whole blocks. A scale lets the largest weight of its block fit the codes, and each weight becomes the nearest code.
// Thread-safe; allocates nothing.
void RoundRow(DType type, std::span<const float> values, uint8_t* out);

}  // namespace moestro::cli
