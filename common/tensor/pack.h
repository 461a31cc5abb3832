// Packs row-major weights, as checkpoints publish them, into the layout of common/tensor/packed_matrix.h.
#pragma once

#include <cstdint>

#include "common/tensor/dtype.h"
#include "common/tensor/packed_matrix.h"

namespace moestro {

// Byte offset of element (row, col) in a packed matrix of `cols` columns; dtype kF8E4M3, kBF16 or kF16.
constexpr int64_t PackedOffset(DType dtype, int64_t cols, int64_t row, int64_t col) {
  if (dtype != DType::kF8E4M3) return PackedElement(PaddedCols(cols), row, col) * DTypeBytes(dtype);
  const int64_t group = row / kRowGroup * kRowGroup * PaddedCols(cols);
  const int64_t tile = row % kRowGroup / kTileRows;
  const int64_t tile_row = row % kTileRows;
  const int64_t lane = tile_row / 4;  // 16-byte lane
  return group + (col / 4 * 4 + tile) * 64 + lane * 16 + col % 4 / 2 * 8 + tile_row % 4 * 2 + col % 2;
}

// Packs one group: rows [0, rows_in_group) of `cols` elements each, row r at src + r * src_row_bytes, any alignment.
// Writes all PackedGroupBytes(dtype, cols) bytes of dst_group; missing rows and columns become zeros. `dtype` is
// neither kF32 nor a format of blocks; 1 <= rows_in_group <= 64. Thread-safe; allocates nothing.
void PackRows(DType dtype, const uint8_t* src, int64_t src_row_bytes, int64_t rows_in_group, int64_t cols,
              uint8_t* dst_group);

// Finds the exceptions of one packed row group of FP8 weights: one word per 128 columns (packed_matrix.h). Returns
// whether a code is NaN (0x7F or 0xFF). No published weight is NaN, so one means a damaged file. Thread-safe.
bool FindExceptions(const uint8_t* packed_group, int64_t cols, uint32_t* exceptions);

// The compensation of the 64 rows of one packed group of I8 weights (packed_matrix.h). Thread-safe.
void FindCompensation(const uint8_t* packed_group, int64_t cols, int32_t* compensation);

}  // namespace moestro
