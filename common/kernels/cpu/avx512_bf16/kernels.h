// Kernels for CPUs with VBMI and BF16 besides the requirements of common/kernels/cpu/avx512_vnni (Zen 4 and later,
// Sapphire Rapids and later). Contracts: common/kernels/cpu/kernels.h; rules for the sources: common/kernels/README.md.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/attention_block.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::avx512_bf16 {

void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
            int64_t row_begin, int64_t row_end);
void LinearAdd(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
               int64_t row_begin, int64_t row_end);
void AttendToken(const KvBlock& kv, int64_t tokens, const TokenQueries& queries);

// `linear` and `linear_add` of formats of blocks.
void LinearOfBlocks(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                    int64_t y_stride, int64_t row_begin, int64_t row_end, bool add);
// `linear_coded` of formats of blocks.
void LinearSpans(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add);

}  // namespace moestro::avx512_bf16
