// For a table whose linear layers compute some types of weights only: the others go to the table before it.
#pragma once

#include "common/kernels/cpu/kernels.h"

namespace moestro {

using LinearKernel = decltype(CpuKernels::linear);

constexpr bool IsFp8OrBf16(DType type) { return type == DType::kF8E4M3 || type == DType::kBF16; }
// Types that are multiplied in BF16: F16 is not exact in it; I8 weights seldom meet BF16 inputs (input_coding.h).
constexpr bool MultipliesInBf16(DType type) { return type != DType::kF16 && type != DType::kI8; }

// kOwn for the types that kKnows accepts, kBefore for the others.
template <bool (*kKnows)(DType), LinearKernel kOwn, LinearKernel kBefore>
void OwnOrBefore(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end) {
  (kKnows(w.dtype) ? kOwn : kBefore)(w, x, x_stride, tokens, y, y_stride, row_begin, row_end);
}

using LinearCodedKernel = decltype(CpuKernels::linear_coded);

// Memory bounds INT8 products of so few tokens, whatever multiplies.
inline constexpr int64_t kFewCodedTokens = 4;

// kOwn for I8 weights and more tokens than few, kBefore for the rest.
template <LinearCodedKernel kOwn, LinearCodedKernel kBefore>
void ManyI8OrBefore(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                    int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  const bool own = w.dtype == DType::kI8 && tokens > kFewCodedTokens;
  (own ? kOwn : kBefore)(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

}  // namespace moestro
