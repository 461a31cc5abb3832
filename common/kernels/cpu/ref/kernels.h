// The reference: plain C++ for baseline x86-64, which any CPU runs and against which the other kernels are tested.
// Contracts: common/kernels/cpu/kernels.h.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/attention_block.h"
#include "common/kernels/cpu/input_coding.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::ref {

void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
            int64_t row_begin, int64_t row_end);
void LinearAdd(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
               int64_t row_begin, int64_t row_end);
void EncodeInputs(InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out);
void LinearCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add);
// `linear_coded` of formats of blocks.
void LinearSpans(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add);
void RouterLogits(const float* w, int64_t experts, int64_t hidden, const float* x, float* out);
void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out, uint16_t* out_bf16);
void LayerNorm(const float* x, const float* weight, int64_t n, float eps, float* out, uint16_t* out_bf16);
void SiluMul(const float* gate, const float* up, int64_t n, uint16_t* out);
void ClampedSwiglu(const float* gate, const float* up, int64_t n, float limit, float alpha, uint16_t* out);
void ToBf16(const float* x, int64_t n, uint16_t* out);
void Axpy(float a, const float* x, int64_t n, float* y);
void Axpby(float a, const float* x, float b, int64_t n, float* y);
void PackKeys(const uint16_t* kv, int64_t stride, int64_t tokens, int64_t dim, uint8_t* keys);
void PackValues(const uint16_t* kv, int64_t stride, int64_t tokens, int64_t dim, int64_t first, int64_t columns,
                uint8_t* values);
float SoftmaxStep(const float* scores, int64_t tokens, int64_t columns, float scale, SoftmaxState* state,
                  uint16_t* weights);

}  // namespace moestro::ref
