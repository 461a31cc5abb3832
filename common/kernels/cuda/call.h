// Kernel launches from host code, with the engine's types.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/stream.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::cuda {

inline absl::Status LaunchStatus(LaunchResult result) {
  if (result.ok()) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat("a kernel was not launched: CUDA error %d", result.error));
}

// bias: of its outputs; null: none.
inline MatrixPointers PointersOf(const PackedMatrix& matrix, const float* bias = nullptr) {
  return {matrix.data, matrix.scales, bias};
}

// y[r] = W x[r]; the shape's dtype, rows and cols are the matrix's.
inline LinearShape ShapeOf(const PackedMatrix& matrix, const uint16_t* x, int64_t x_stride, void* y, int64_t y_stride,
                           LinearOutput output = LinearOutput::kF32) {
  return {.dtype = matrix.dtype,
          .rows = matrix.rows,
          .cols = matrix.cols,
          .x = x,
          .x_stride = x_stride,
          .y = y,
          .y_stride = y_stride,
          .output = output};
}

// Elements between rows of a BF16 linear input, as the kernels require.
constexpr int64_t InputStride(int64_t width) { return RoundUp(width, 8); }

}  // namespace moestro::cuda
