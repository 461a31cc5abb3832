// Bytes of a tensor in the weight segment. REQUIRES everywhere: 1 <= rows, cols <= kMaxTensorDimension.
#pragma once

#include <cstdint>

#include "common/base/math.h"
#include "common/tensor/packed_matrix.h"
#include "common/weights/format.h"

namespace moestro::weights {

constexpr int64_t TensorDataBytes(TensorLayout layout, DType dtype, int64_t rows, int64_t cols) {
  return layout == TensorLayout::kPacked ? PackedBytes(dtype, rows, cols) : rows * RowBytes(dtype, cols);
}

// Bytes of kChecksumRows rows.
constexpr int64_t TensorSliceBytes(TensorLayout layout, DType dtype, int64_t cols) {
  return TensorDataBytes(layout, dtype, kChecksumRows, cols);
}

// FP8 and I8. Formats of blocks have their scales in the data.
constexpr bool HasScales(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kI8; }

// FP8: F32 [ceil(rows/128), ceil(cols/128)]; I8: F32 [rows padded to 64]. REQUIRES: HasScales(dtype).
constexpr int64_t TensorScaleBytes(DType dtype, int64_t rows, int64_t cols) {
  if (dtype == DType::kI8) return PaddedRows(rows) * 4;
  return CeilDiv(rows, kScaleBlock) * CeilDiv(cols, kScaleBlock) * 4;
}

// FP8: U32 [ceil(rows/64), ceil(cols/128)]; I8: the compensation, I32 [rows padded to 64]. REQUIRES: HasScales(dtype).
constexpr int64_t TensorExceptionBytes(DType dtype, int64_t rows, int64_t cols) {
  return dtype == DType::kI8 ? PaddedRows(rows) * 4 : ExceptionWords(rows, cols) * 4;
}

// All stored bytes of a tensor, without the gaps in between.
constexpr int64_t StoredBytes(const TensorEntry& entry) {
  return entry.data_bytes + entry.scale_bytes + entry.exception_bytes;
}

// FP8 and I8 must be packed with scales; F32 is never packed; all others have no scales.
constexpr bool IsStorable(TensorLayout layout, DType dtype, bool has_scales) {
  if (has_scales != HasScales(dtype)) return false;
  if (has_scales) return layout == TensorLayout::kPacked;
  return dtype != DType::kF32 || layout == TensorLayout::kRowMajor;
}

}  // namespace moestro::weights
