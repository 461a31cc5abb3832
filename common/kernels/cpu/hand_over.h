// For a table whose `linear` computes some types of weights only: the others go to the table before it.
#pragma once

#include "common/kernels/cpu/kernels.h"

namespace moestro {

using LinearKernel = decltype(CpuKernels::linear);

constexpr bool IsFp8OrBf16(DType type) { return type == DType::kF8E4M3 || type == DType::kBF16; }
// Types whose codes are exact in BF16. F16 weights are not.
constexpr bool HasExactBf16Codes(DType type) { return type != DType::kF16; }

// kOwn for the types that kKnows accepts, kBefore for the others.
template <bool (*kKnows)(DType), LinearKernel kOwn, LinearKernel kBefore>
void OwnOrBefore(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end) {
  (kKnows(w.dtype) ? kOwn : kBefore)(w, x, x_stride, tokens, y, y_stride, row_begin, row_end);
}

}  // namespace moestro
