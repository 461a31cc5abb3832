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

// Adds the sub-block from input `first` of the span on to the parts of 16 rows. `unit`: of the chain's weights; sums in
// units are integers below 2^24, which F32 holds exactly.
void AddSubBlock(const Chain& chain, float unit, const CodedSpan& span, int64_t first, float* parts) {
  float sums[kTileRows];
  const float inputs = SumChain(
      chain, [&](int64_t i) { return static_cast<float>(span.codes[Place(first + i)]); }, sums);
  for (int64_t row = 0; row < kTileRows; ++row) {
    parts[row] = std::fma(sums[row] / unit, chain.scales[row], first == 0 ? 0.0f : parts[row]);
    if (chain.has_mins) parts[row] = std::fma(-inputs, chain.mins[row], parts[row]);
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
  for (int64_t col = 0; col < w.cols; col += kCodeSpan) {
    const auto span = [&](int64_t t) -> const CodedSpan& {
      return reinterpret_cast<const CodedSpan*>(x + t * x_stride)[col / kCodeSpan];
    };
    for (int64_t first = 0; first < kCodeSpan; first += sub_block) {
      DecodeSubBlock(w.dtype, group, tile, col + first, chain);
      for (int64_t t = 0; t < tokens; ++t) AddSubBlock(chain, code_unit, span(t), first, parts[t]);
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
