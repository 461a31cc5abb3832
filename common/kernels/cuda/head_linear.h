// The small products of absorbed MLA, one per head: queries into the latent space (key_transposed), and latents into a
// head's values (half of kv_b's rows). For few rows; weights in the segment's packed layout.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

// y[r, h, i] = bf16(sum over c of W[h * head_rows + first_row + i, c] x[r, h, c]) for i in [0, out_rows). Row r and
// head h are at r * row_stride + h * head_stride. head_rows, first_row, out_rows and cols are multiples of 4.
struct HeadLinearArgs {
  DType dtype = DType::kF8E4M3;  // kF8E4M3, kBF16 or kF16
  MatrixPointers matrix;         // [heads * head_rows, cols]
  int64_t heads = 0;
  int64_t head_rows = 0;
  int64_t first_row = 0;  // first used row of each head
  int64_t out_rows = 0;   // used rows of each head
  int64_t cols = 0;
  const uint16_t* x = nullptr;  // BF16, aligned to 8 bytes
  int64_t x_row_stride = 0;     // a multiple of 4, as is the next
  int64_t x_head_stride = 0;
  uint16_t* y = nullptr;  // BF16
  int64_t y_row_stride = 0;
  int64_t y_head_stride = 0;
};
// A row's bits do not depend on the number of rows. kInvalidArgument if a requirement is violated.
LaunchResult LaunchHeadLinear(const HeadLinearArgs& args, int64_t rows, Stream stream);

}  // namespace moestro::cuda
