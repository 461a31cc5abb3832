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

// F32 [ceil(rows/128), ceil(cols/128)]
constexpr int64_t TensorScaleBytes(int64_t rows, int64_t cols) {
  return CeilDiv(rows, kScaleBlock) * CeilDiv(cols, kScaleBlock) * 4;
}

// U32 [ceil(rows/64), ceil(cols/128)]
constexpr int64_t TensorExceptionBytes(int64_t rows, int64_t cols) { return ExceptionWords(rows, cols) * 4; }

// All stored bytes of a tensor, without the gaps in between.
constexpr int64_t StoredBytes(const TensorEntry& entry) {
  return entry.data_bytes + entry.scale_bytes + entry.exception_bytes;
}

// FP8 must be packed with scales; F32 is never packed.
constexpr bool IsStorable(TensorLayout layout, DType dtype, bool has_scales) {
  if (dtype == DType::kF8E4M3) return layout == TensorLayout::kPacked && has_scales;
  if (has_scales) return false;
  return dtype == DType::kBF16 || layout == TensorLayout::kRowMajor;
}

}  // namespace moestro::weights
