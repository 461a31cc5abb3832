// Tiles of 16 rows: the inputs of a chain (128, or a sub-block) are decoded once to F32 and used for a batch of tokens.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/base/math.h"
#include "common/kernels/cpu/coded_span.h"
#include "common/kernels/cpu/linear_i8.h"
#include "common/kernels/cpu/ref/kernels.h"
#include "common/kernels/cpu/ref/packed_block.h"

namespace moestro::ref {
namespace {

constexpr int64_t kTileBytes = 64;                                  // 16 rows x 4 FP8 or 2 BF16 inputs
constexpr int64_t kStepBytes = kTileBytes * kRowGroup / kTileRows;  // the same inputs for all 64 rows
constexpr int64_t kTokenBatch = 64;                                 // a batch's totals: 4 KiB of stack

const std::array<float, 256>& E4M3Table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values;
    for (int code = 0; code < 256; ++code) values[static_cast<size_t>(code)] = FromE4M3(static_cast<uint8_t>(code));
    return values;
  }();
  return table;
}

// These functions read `cols` columns, rounded up to whole steps, from the tile's first byte in the block.
void DecodeFp8(const uint8_t* tile, int64_t cols, Chain& out) {
  const std::array<float, 256>& table = E4M3Table();
  for (int64_t col = 0; col < cols; col += 4, tile += kStepBytes) {
    const uint8_t* code = tile;
    for (int64_t lane = 0; lane < 4; ++lane) {
      for (int64_t pair = 0; pair < 4; pair += 2) {
        for (int64_t row = 4 * lane; row < 4 * lane + 4; ++row) {
          out.weights[col + pair][row] = table[*code++];
          out.weights[col + pair + 1][row] = table[*code++];
        }
      }
    }
  }
}

void DecodeI8(const uint8_t* tile, int64_t cols, Chain& out) {
  constexpr int64_t kPlaces[] = {0, 2, 1, 3};
  for (int64_t col = 0; col < cols; ++col) {
    const uint8_t* codes = tile + col / 4 * kStepBytes + kPlaces[col % 4];
    for (int64_t row = 0; row < kTileRows; ++row) out.weights[col][row] = static_cast<int8_t>(codes[row * 4]);
  }
}

template <float (*kFrom16Bits)(uint16_t)>
void Decode16Bits(const uint8_t* tile, int64_t cols, Chain& out) {
  for (int64_t col = 0; col < cols; col += 2, tile += kStepBytes) {
    for (int64_t row = 0; row < kTileRows; ++row) {
      const uint8_t* pair = tile + 4 * row;
      out.weights[col][row] = kFrom16Bits(static_cast<uint16_t>(pair[0] | pair[1] << 8));
      out.weights[col + 1][row] = kFrom16Bits(static_cast<uint16_t>(pair[2] | pair[3] << 8));
    }
  }
}

// totals[r] += scales[r] * sum_c weights[c][r] * x[c] - mins[r] * sum_c x[c], summed in column order. A product of a
// BF16 value and one with at most 11 bits is exact in F32, so multiply-then-add rounds as a fused multiply-add.
void AddChain(const Chain& chain, const uint16_t* x, float* totals) {
  float sums[kTileRows];
  const float inputs = SumChain(
      chain, [x](int64_t col) { return FromBf16(x[col]); }, sums);
  for (int64_t row = 0; row < kTileRows; ++row) {
    totals[row] = std::fma(sums[row], chain.scales[row], totals[row]);
    if (chain.has_mins) totals[row] = std::fma(-chain.mins[row], inputs, totals[row]);
  }
}

// The chain of the row tile that begins at `row`, from column `col` on.
void Decode(const PackedMatrix& w, int64_t row, int64_t col, Chain& chain) {
  const uint8_t* group = w.data + row / kRowGroup * PackedGroupBytes(w.dtype, w.cols);
  const int64_t tile = row % kRowGroup / kTileRows;
  if (IsBlockFormat(w.dtype)) return DecodeSubBlock(w.dtype, group, tile, col, chain);
  const uint8_t* data = group + col * kRowGroup * DTypeBytes(w.dtype) + tile * kTileBytes;
  chain.cols = std::min(kScaleBlock, w.cols - col);
  if (w.dtype == DType::kI8) {
    DecodeI8(data, chain.cols, chain);
    std::copy_n(w.scales + row, kTileRows, chain.scales);
    return;
  }
  float scale = 1;
  if (w.dtype == DType::kF8E4M3) {
    scale = w.scales[row / kScaleBlock * CeilDiv(w.cols, kScaleBlock) + col / kScaleBlock];
    DecodeFp8(data, chain.cols, chain);
  } else if (w.dtype == DType::kBF16) {
    Decode16Bits<FromBf16>(data, chain.cols, chain);
  } else {
    Decode16Bits<FromF16>(data, chain.cols, chain);
  }
  std::fill_n(chain.scales, kTileRows, scale);
}

// All outputs of the row tile that begins at `row`, for at most kTokenBatch tokens. y starts at `row`.
void LinearTile(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                int64_t row, int64_t row_end, bool add) {
  float totals[kTokenBatch][kTileRows] = {};
  Chain chain;
  for (int64_t col = 0; col < w.cols; col += chain.cols) {
    Decode(w, row, col, chain);
    for (int64_t t = 0; t < tokens; ++t) AddChain(chain, x + t * x_stride + col, totals[t]);
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

// 16 rows side by side, which baseline SSE2 turns into vectors.
struct PlainI8 {
  struct Vector {
    int32_t lanes[kTileRows];
  };
  struct Weights {
    const uint8_t* bytes;
  };
  struct Inputs {
    int16_t codes[4];
  };
  using Codes = int16_t;
  static constexpr int64_t kLanes = kTileRows;
  static constexpr bool kPairsFirst = false;
  static constexpr bool kCompensated = false;
  static constexpr int VectorsAtOnce(int) { return 1; }
  static Codes FromCode(int32_t code) { return static_cast<Codes>(code); }
  static Vector Zero() { return {}; }
  static Vector Load(const int32_t* p) {
    Vector v;
    std::memcpy(v.lanes, p, sizeof v.lanes);
    return v;
  }
  static void Store(int32_t* p, const Vector& v) { std::memcpy(p, v.lanes, sizeof v.lanes); }
  static void Prefetch(const uint8_t*) {}
  static void PrefetchFar(const uint8_t*) {}
  static Weights LoadWeights(const uint8_t* p) { return {p}; }
  static Inputs LoadInputs(const Codes* codes) { return {{codes[0], codes[2], codes[1], codes[3]}}; }
  static Vector Dot(Vector sum, Weights weights, Inputs inputs) {
    for (int64_t row = 0; row < kLanes; ++row) {
      for (int64_t i = 0; i < 4; ++i) {
        sum.lanes[row] += static_cast<int8_t>(weights.bytes[row * 4 + i]) * inputs.codes[i];
      }
    }
    return sum;
  }
};

}  // namespace

void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
            int64_t row_begin, int64_t row_end) {
  RunTiles(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/false);
}

void LinearAdd(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
               int64_t row_begin, int64_t row_end) {
  RunTiles(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/true);
}

void EncodeInputs(InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out) {
  if (coding == InputCoding::kSpans) return EncodeSpans(x, cols, out);
  linear_i8::EncodeRow<PlainI8>(x, cols, out);
}

void LinearCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add) {
  if (w.dtype != DType::kI8) return LinearSpans(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
  linear_i8::LinearCoded<PlainI8>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

}  // namespace moestro::ref
