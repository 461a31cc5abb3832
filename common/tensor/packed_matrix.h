// The packed layout of a linear layer's weights [rows = outputs, cols = inputs], in the weight segment and for every
// kernel. Plain data only: per-ISA sources include this header.
//
// Rows form groups of 64; zero rows pad the last group. Zero columns pad the columns to a multiple of 4. For every 4
// inputs, a group holds 4 tiles of 16 rows x 4 inputs side by side:
//   FP8 (E4M3): [rows/64][cols/4][4 tiles][64 bytes]. Inside each 16-byte lane of a tile (4 rows r0..r3 x 4 inputs
//   i0..i3):
//       r0i0 r0i1 r1i0 r1i1 r2i0 r2i1 r3i0 r3i1 | r0i2 r0i3 r1i2 r1i3 r2i2 r2i3 r3i2 r3i3
//     so that unpacklo / unpackhi of the expanded low and high bytes are 16 rows x inputs (0,1) and (2,3) in BF16.
//   BF16 and F16: [rows/64][cols/2][4 tiles][16 rows][2 inputs], 64 bytes a tile: the operand order of vdpbf16ps.
//   I8: columns padded to a multiple of 64 (the depth of a tile of bytes). [rows/64][cols/4][4 tiles][16 rows][4
//   inputs],
//     a row's inputs in the order 0 2 1 3.
//   Formats of blocks: block_format.h.
// FP8 scales stay as published: F32 [ceil(rows/128), ceil(cols/128)], multiplied once per 128-column block. I8 scales:
// F32 [rows padded to 64], one for each row; so is their compensation, S32: instructions that multiply unsigned by
// signed bytes take inputs + 128. FP8 exceptions: U32 [ceil(rows/64), ceil(cols/128)]. Bit i of a word covers the 256
// codes of the row group and of inputs 4 i .. 4 i + 3 of the block, padding included. It is set if any of them is not a
// normal number, but zero, subnormal or NaN. With normally distributed weights, scaled to 4 deviations, 3 of 100 bits
// are set. Where a bit is clear, a kernel may expand the codes by arithmetic that is correct for normal numbers only.
#pragma once

#include <cstdint>

#include "common/tensor/block_format.h"
#include "common/tensor/dtype.h"

namespace moestro {

inline constexpr int64_t kPackedAlignment = 64;  // alignment of `data` in bytes

struct PackedMatrix {
  DType dtype = DType::kF8E4M3;  // any but kF32
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* data = nullptr;          // PackedBytes(dtype, rows, cols) bytes
  const float* scales = nullptr;          // FP8: [ceil(rows/128), ceil(cols/128)]; I8: [PaddedRows(rows)]; else null
  const uint32_t* exceptions = nullptr;   // [ceil(rows/64), ceil(cols/128)] for FP8; null: any code may be an exception
  const int32_t* compensation = nullptr;  // I8: [PaddedRows(rows)], -128 times the sum of a row's codes; else null
  // A hint: prefetch this memory (as many bytes as `data` has) while the matrix is read, for a BF16 matrix that is
  // already in the cache. Null: prefetch within the matrix.
  const uint8_t* prefetch = nullptr;
  // A hint: the matrix is probably in a cache already. Does not change the bits.
  bool cached = false;
};

constexpr int64_t PaddedRows(int64_t rows) { return (rows + kRowGroup - 1) / kRowGroup * kRowGroup; }
constexpr int64_t PaddedCols(int64_t cols) { return (cols + 3) / 4 * 4; }  // of FP8, BF16 and F16
// Bytes of a group of 64 rows.
constexpr int64_t PackedGroupBytes(DType dtype, int64_t cols) {
  if (IsBlockFormat(dtype)) {
    const BlockFormat format = FormatOf(dtype);
    return (cols + format.block - 1) / format.block * format.packed_block_bytes();
  }
  if (dtype == DType::kI8) return kRowGroup * ((cols + 63) / 64 * 64);
  return kRowGroup * PaddedCols(cols) * DTypeBytes(dtype);
}
constexpr int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols) {
  return PaddedRows(rows) / kRowGroup * PackedGroupBytes(dtype, cols);
}

// Number of element (row, col) of a packed BF16 or F16 matrix, of `padded_cols` = PaddedCols(cols).
constexpr int64_t PackedElement(int64_t padded_cols, int64_t row, int64_t col) {
  const int64_t in_group = row % kRowGroup;
  return (row - in_group) * padded_cols + col / 2 * (2 * kRowGroup) + in_group * 2 + col % 2;
}

constexpr int64_t ExceptionWords(int64_t rows, int64_t cols) {
  return PaddedRows(rows) / kRowGroup * ((cols + kScaleBlock - 1) / kScaleBlock);
}

}  // namespace moestro
