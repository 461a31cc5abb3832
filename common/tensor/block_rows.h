// Rows in formats of blocks (block_format.h): what their bytes stand for, and their packed form.
#pragma once

#include <bit>
#include <cstdint>

#include "common/tensor/block_format.h"

namespace moestro {

// The weights of a row of `cols` inputs, whole blocks, each rounded once to F32 where a min is subtracted, otherwise
// exact: what ggml's dequantisation computes. Thread-safe; allocates nothing.
void DequantizeRow(DType type, const uint8_t* row, int64_t cols, float* out);

// Packs inputs [first, first + count) of one group of `rows_in_group` rows, row r at src + r * src_row_bytes: src is
// the row's first byte, dst the group's packed first byte. `first` is a multiple of the format's packed block; so is
// `count`, unless it ends the row. Writes whole packed blocks; missing rows and inputs become zeros. Thread-safe.
void PackBlockRows(DType type, const uint8_t* src, int64_t src_row_bytes, int64_t rows_in_group, int64_t first,
                   int64_t count, uint8_t* dst);

// A row of I4_32, I4_128 or MXFP4 whose codes and scales are published apart: `codes` are two in a byte, the first
// input in the low half, `scales` one for each sub-block. INT4 codes are value + 8, which little-endian words of eight
// have in the same bytes. Thread-safe; allocates nothing.
void JoinCodesAndScales(DType type, const uint8_t* codes, const uint8_t* scales, int64_t cols, uint8_t* row);

// I4Z's 32 bits of a group. `scale`: of F16 or BF16; `zero` below 16.
constexpr uint32_t ScaleAndZero(float scale, uint32_t zero) { return std::bit_cast<uint32_t>(scale) | zero; }

// A row of I4Z_32 or I4Z_128: codes as above, not moved by 8, and ScaleAndZero of each group of `group` inputs, which
// may be several sub-blocks. REQUIRES: cols is a multiple of group, and that of the sub-block. Thread-safe; allocates
// nothing.
void JoinCodesAndZeros(DType type, const uint8_t* codes, const uint32_t* factors, int64_t group, int64_t cols,
                       uint8_t* row);

// What has no meaning as a weight: a scale that is infinite or NaN. Nullptr, or what is wrong, in words.
const char* FindBadScale(DType type, const uint8_t* row, int64_t cols);

}  // namespace moestro
