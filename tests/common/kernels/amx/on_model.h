// The kernels of common/kernels/cpu/amx with a model of the tiles in place of the instructions; they need AVX-512 with
// VBMI and GFNI. Contracts: common/kernels/cpu/kernels.h.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/attention_block.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::amx {

void LinearOnModel(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                   int64_t y_stride, int64_t row_begin, int64_t row_end);
void LinearAddOnModel(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                      int64_t y_stride, int64_t row_begin, int64_t row_end);
void LinearCodedOnModel(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                        int64_t y_stride, int64_t row_begin, int64_t row_end, bool add);
void AttendTokenOnModel(const KvBlock& kv, int64_t tokens, const TokenQueries& queries);

}  // namespace moestro::amx
