// Formats of blocks times coded spans, sub-block by sub-block as common/kernels/cpu/kernels.h describes it.
#include <algorithm>
#include <cmath>

#include "common/kernels/cpu/coded_span.h"
#include "common/kernels/cpu/ref/kernels.h"
#include "common/kernels/cpu/ref/packed_block.h"

namespace moestro::ref {
namespace {

constexpr int64_t kTokenBatch = 64;  // tokens that share a decoded sub-block

// Where the code of input i of a span is.
int64_t Place(int64_t i) { return i / 8 * 8 + i % 4 * 2 + i % 8 / 4; }

struct WholeCodes {
  int32_t codes[kScaleBlock][kTileRows];
};

// Adds the sub-block from input `first` of the span on to the parts of 16 rows.
void AddSubBlock(const Chain& chain, const WholeCodes& weights, const CodedSpan& span, int64_t first, float* parts) {
  int32_t inputs = 0;
  int32_t sums[kTileRows] = {};
  for (int64_t i = 0; i < chain.cols; ++i) {
    const int32_t code = span.codes[Place(first + i)];
    inputs += code;
    for (int64_t row = 0; row < kTileRows; ++row) sums[row] += weights.codes[i][row] * code;
  }
  for (int64_t row = 0; row < kTileRows; ++row) {
    const auto sum = static_cast<float>(sums[row]);
    parts[row] = std::fma(sum, chain.scales[row], first == 0 ? 0.0f : parts[row]);
    if (chain.has_mins) parts[row] = std::fma(static_cast<float>(-inputs), chain.mins[row], parts[row]);
  }
}

// All outputs of the row tile that begins at `row`, for at most kTokenBatch tokens. y starts at `row`.
void MultiplyTile(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                  int64_t row, int64_t row_end, bool add) {
  const uint8_t* group = w.data + row / kRowGroup * PackedGroupBytes(w.dtype, w.cols);
  const int64_t tile = row % kRowGroup / kTileRows, sub_block = FormatOf(w.dtype).sub_block;
  const float code_unit = w.dtype == DType::kMXFP4 ? 0.5f : 1.0f;
  float totals[kTokenBatch][kTileRows] = {};
  float parts[kTokenBatch][kTileRows];
  Chain chain;
  WholeCodes weights;
  for (int64_t col = 0; col < w.cols; col += kCodeSpan) {
    const auto span = [&](int64_t t) -> const CodedSpan& {
      return reinterpret_cast<const CodedSpan*>(x + t * x_stride)[col / kCodeSpan];
    };
    for (int64_t first = 0; first < kCodeSpan; first += sub_block) {
      DecodeSubBlock(w.dtype, group, tile, col + first, chain);
      for (int64_t i = 0; i < sub_block; ++i) {
        for (int64_t r = 0; r < kTileRows; ++r)
          weights.codes[i][r] = static_cast<int32_t>(chain.weights[i][r] / code_unit);
      }
      for (int64_t t = 0; t < tokens; ++t) AddSubBlock(chain, weights, span(t), first, parts[t]);
    }
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < kTileRows; ++r) {
        totals[t][r] = std::fma(parts[t][r], span(t).scale * code_unit, totals[t][r]);
      }
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    float* out = y + t * y_stride;
    for (int64_t r = 0; r < std::min(kTileRows, row_end - row); ++r)
      out[r] = add ? out[r] + totals[t][r] : totals[t][r];
  }
}

}  // namespace

void LinearSpans(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add) {
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    for (int64_t t = 0; t < tokens; t += kTokenBatch) {
      MultiplyTile(w, x + t * x_stride, x_stride, std::min(kTokenBatch, tokens - t),
                   y + t * y_stride + (row - row_begin), y_stride, row, row_end, add);
    }
  }
}

}  // namespace moestro::ref
