// For a table whose linear layers compute some types of weights only: the others go to the table before it.
#pragma once

#include "common/kernels/cpu/kernels.h"

namespace moestro {

using LinearKernel = decltype(CpuKernels::linear);

// Types that are multiplied in BF16: F16 is not exact in it; I8 weights seldom meet BF16 inputs (input_coding.h).
constexpr bool MultipliesInBf16(DType type) { return type != DType::kF16 && type != DType::kI8; }

// kOwn for the types that kKnows accepts, kBefore for the others.
template <bool (*kKnows)(DType), LinearKernel kOwn, LinearKernel kBefore>
void OwnOrBefore(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end) {
  (kKnows(w.dtype) ? kOwn : kBefore)(w, x, x_stride, tokens, y, y_stride, row_begin, row_end);
}

using LinearCodedKernel = decltype(CpuKernels::linear_coded);

// kOwn for formats of blocks, else kBefore.
template <LinearCodedKernel kOwn, LinearCodedKernel kBefore>
void CodedBlocksOrBefore(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                         int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  (IsBlockFormat(w.dtype) ? kOwn : kBefore)(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

// Tokens from which tiles multiply formats of blocks with coded inputs faster than vpdpbusd: 0.97 to 1.7 times as fast
// at 64 tokens, 1.03 to 1.8 times at 128.
inline constexpr int64_t kCodedBlockTileTokens = 64;

// kOwn for I8 weights and for so many tokens or more, else kBefore.
template <LinearCodedKernel kOwn, LinearCodedKernel kBefore>
void ManyCodedOrBefore(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                       int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  const bool own = w.dtype == DType::kI8 || tokens >= kCodedBlockTileTokens;
  (own ? kOwn : kBefore)(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

}  // namespace moestro
