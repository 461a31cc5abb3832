// Inputs in FP8 (InputCoding::kFp8), as checkpoints with FP8 weights and dynamic activations are published. Each 128
// inputs of a token share a scale:
//   scale = max|x| / 448; code = x / scale, rounded to the nearest E4M3, ties to even; both quotients are F32
// 128 zeros have scale 0 and codes 0. Those with an infinity or NaN have scale NaN and codes 0. GPUs have the same
// codes and scales (common/kernels/cuda/fp8_inputs.h).
//
// A coded row holds the codes' values in BF16, which are exact, padded with zeros to whole spans; then the scales. So a
// table's `linear` computes the products of each 128 inputs, with the bits that it has for inputs in BF16.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/kernels.h"

namespace moestro {

// out: CodedRowBytes(InputCoding::kFp8, cols), aligned to kCodedRowAlignment.
void EncodeFp8(const uint16_t* x, int64_t cols, uint8_t* out);

// As CpuKernels::linear_coded, of FP8 weights and inputs in FP8. For each 128 inputs, `linear`'s sum, which includes
// the weights' scale; then one fused multiply-add with the inputs' scale adds it to the total. A row's bits depend only
// on that row.
void MultiplyFp8(const CpuKernels& kernels, const PackedMatrix& weights, const uint8_t* coded, int64_t tokens, float* y,
                 int64_t y_stride, int64_t row_begin, int64_t row_end, bool add);

}  // namespace moestro
