// Kernels for CPUs with AMX for BF16 and bytes besides the requirements of common/kernels/cpu/avx512_bf16 (Sapphire
// Rapids and later). Contracts: common/kernels/cpu/kernels.h; rules for the sources: common/kernels/README.md.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/attention_block.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::amx {

void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
            int64_t row_begin, int64_t row_end);
void LinearAdd(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
               int64_t row_begin, int64_t row_end);
// I8 weights only.
void LinearCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add);
void AttendToken(const KvBlock& kv, int64_t tokens, const TokenQueries& queries);

}  // namespace moestro::amx
