// Tiles of 16 rows: a 128-column block is decoded once to F32 and used for a batch of tokens. A tile's 16 chains run
// side by side, which baseline SSE2 turns into four vectors.
#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/math.h"
#include "common/kernels/cpu/ref/kernels.h"

namespace moestro::ref {
namespace {

constexpr int64_t kTileBytes = 64;                                  // 16 rows x 4 FP8 or 2 BF16 inputs
constexpr int64_t kStepBytes = kTileBytes * kRowGroup / kTileRows;  // the same inputs for all 64 rows
constexpr int64_t kTokenBatch = 64;                                 // a batch's totals: 4 KiB of stack

using Tile = float[kScaleBlock][kTileRows];  // weights as [column][row]

const std::array<float, 256>& E4M3Table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values;
    for (int code = 0; code < 256; ++code) values[static_cast<size_t>(code)] = FromE4M3(static_cast<uint8_t>(code));
    return values;
  }();
  return table;
}

// Both functions read `cols` columns, rounded up to whole steps, from the tile's first byte in the block.
void DecodeFp8(const uint8_t* tile, int64_t cols, Tile& out) {
  const std::array<float, 256>& table = E4M3Table();
  for (int64_t col = 0; col < cols; col += 4, tile += kStepBytes) {
    const uint8_t* code = tile;
    for (int64_t lane = 0; lane < 4; ++lane) {
      for (int64_t pair = 0; pair < 4; pair += 2) {
        for (int64_t row = 4 * lane; row < 4 * lane + 4; ++row) {
          out[col + pair][row] = table[*code++];
          out[col + pair + 1][row] = table[*code++];
        }
      }
    }
  }
}

void DecodeBf16(const uint8_t* tile, int64_t cols, Tile& out) {
  for (int64_t col = 0; col < cols; col += 2, tile += kStepBytes) {
    for (int64_t row = 0; row < kTileRows; ++row) {
      const uint8_t* pair = tile + 4 * row;
      out[col][row] = FromBf16(static_cast<uint16_t>(pair[0] | pair[1] << 8));
      out[col + 1][row] = FromBf16(static_cast<uint16_t>(pair[2] | pair[3] << 8));
    }
  }
}

// totals[r] += scale * sum_c tile[c][r] * x[c], summed in column order. A product of two BF16 values is exact in F32,
// so multiply-then-add rounds exactly as a fused multiply-add.
void AddBlock(const Tile& tile, const uint16_t* x, int64_t cols, float scale, float* totals) {
  float sums[kTileRows] = {};
  for (int64_t col = 0; col < cols; ++col) {
    const float value = FromBf16(x[col]);
    for (int64_t row = 0; row < kTileRows; ++row) sums[row] += tile[col][row] * value;
  }
  for (int64_t row = 0; row < kTileRows; ++row) totals[row] = std::fma(sums[row], scale, totals[row]);
}

// All outputs of the row tile that begins at `row`, for at most kTokenBatch tokens. y starts at `row`.
void LinearTile(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                int64_t row, int64_t row_end, bool add) {
  const bool fp8 = w.dtype == DType::kF8E4M3;
  const int64_t column_bytes = kRowGroup * DTypeBytes(w.dtype);
  const uint8_t* tile_data =
      w.data + row / kRowGroup * PaddedCols(w.cols) * column_bytes + row % kRowGroup / kTileRows * kTileBytes;
  float totals[kTokenBatch][kTileRows] = {};
  Tile tile;
  for (int64_t col = 0; col < w.cols; col += kScaleBlock) {
    const int64_t cols = std::min(kScaleBlock, w.cols - col);
    (fp8 ? DecodeFp8 : DecodeBf16)(tile_data + col * column_bytes, cols, tile);
    const float scale = fp8 ? w.scales[row / kScaleBlock * CeilDiv(w.cols, kScaleBlock) + col / kScaleBlock] : 1.0f;
    for (int64_t t = 0; t < tokens; ++t) AddBlock(tile, x + t * x_stride + col, cols, scale, totals[t]);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    float* out = y + t * y_stride;
    for (int64_t r = 0; r < std::min(kTileRows, row_end - row); ++r)
      out[r] = add ? out[r] + totals[t][r] : totals[t][r];
  }
}

void RunTiles(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
              int64_t row_begin, int64_t row_end, bool add) {
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    for (int64_t t = 0; t < tokens; t += kTokenBatch) {
      LinearTile(w, x + t * x_stride, x_stride, std::min(kTokenBatch, tokens - t), y + t * y_stride + (row - row_begin),
                 y_stride, row, row_end, add);
    }
  }
}

}  // namespace

void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
            int64_t row_begin, int64_t row_end) {
  RunTiles(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/false);
}

void LinearAdd(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
               int64_t row_begin, int64_t row_end) {
  RunTiles(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/true);
}

}  // namespace moestro::ref
