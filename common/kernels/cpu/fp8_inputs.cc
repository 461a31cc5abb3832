#include "common/kernels/cpu/fp8_inputs.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/tensor/dtype.h"

namespace moestro {
namespace {

constexpr float kGreatestE4M3 = 448.0f;
constexpr int64_t kBatch = 64;  // tokens at once: sums stay in a core's nearest cache

// value, |value| < 512, rounded to E4M3. Both ways round to nearest even.
float RoundToE4M3(float value) {
  // Below 2^-6 steps are 2^-9: those of F32 numbers near 1.5 * 2^14.
  constexpr float kRound = 0x1.8p14f;
  const float small = (value + kRound) - kRound;
  // Above, 3 bits of the mantissa stay.
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const float normal = std::bit_cast<float>((bits + 0x7ffffu + (bits >> 20 & 1)) & 0xfff00000u);
  const float rounded = std::fabs(value) < 0x1p-6f ? small : normal;
  return std::copysign(std::min(std::fabs(rounded), kGreatestE4M3), value);  // a zero keeps its sign
}

// x: BF16, all of the span. Writes the codes' values, and returns the scale.
float EncodeSpan(const uint16_t (&x)[kCodeSpan], uint16_t* out) {
  uint16_t greatest = 0;  // magnitudes of BF16 compare as integers; infinities and NaN are the greatest
  for (const uint16_t bits : x) greatest = std::max(greatest, static_cast<uint16_t>(bits & 0x7fff));
  const bool finite = greatest < 0x7f80, has_codes = finite && greatest > 0;
  const float scale = (finite ? FromBf16(greatest) : std::bit_cast<float>(0x7fc00000u)) / kGreatestE4M3;
  const float divisor = has_codes ? scale : 1.0f;
  for (int64_t i = 0; i < kCodeSpan; ++i) {
    const float value = has_codes ? RoundToE4M3(FromBf16(x[i]) / divisor) : 0.0f;
    out[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  }
  return scale;
}

int64_t Spans(int64_t cols) { return (cols + kCodeSpan - 1) / kCodeSpan; }

// The 64 rows and 128 inputs of a block, of an FP8 matrix.
PackedMatrix BlockOf(const PackedMatrix& weights, int64_t group, int64_t span) {
  const int64_t spans = Spans(weights.cols), row = group * kRowGroup, col = span * kCodeSpan;
  PackedMatrix block = weights;
  block.rows = std::min(kRowGroup, weights.rows - row);
  block.cols = std::min(kCodeSpan, weights.cols - col);
  block.data += group * PackedGroupBytes(weights.dtype, weights.cols) + col * kRowGroup;
  block.scales += row / kScaleBlock * spans + span;
  if (block.exceptions != nullptr) block.exceptions += group * spans + span;
  block.prefetch = nullptr;
  return block;
}

}  // namespace

void EncodeFp8(const uint16_t* x, int64_t cols, uint8_t* out) {
  auto* const codes = reinterpret_cast<uint16_t*>(out);
  auto* const scales = reinterpret_cast<float*>(codes + Spans(cols) * kCodeSpan);
  for (int64_t span = 0; span < Spans(cols); ++span) {
    uint16_t inputs[kCodeSpan] = {};
    const int64_t begin = span * kCodeSpan;
    std::copy_n(x + begin, std::min(kCodeSpan, cols - begin), inputs);
    scales[span] = EncodeSpan(inputs, codes + begin);
  }
}

void MultiplyFp8(const CpuKernels& kernels, const PackedMatrix& weights, const uint8_t* coded, int64_t tokens, float* y,
                 int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  const int64_t spans = Spans(weights.cols), row_bytes = CodedRowBytes(InputCoding::kFp8, weights.cols);
  for (int64_t first = 0; first < tokens; first += kBatch) {
    const int64_t count = std::min(kBatch, tokens - first);
    for (int64_t begin = row_begin; begin < row_end; begin += kRowGroup) {
      const int64_t rows = std::min(kRowGroup, row_end - begin);
      float totals[kBatch * kRowGroup] = {};
      for (int64_t span = 0; span < spans; ++span) {
        const uint8_t* const inputs = coded + first * row_bytes;
        float parts[kBatch * kRowGroup];
        kernels.linear(BlockOf(weights, begin / kRowGroup, span),
                       reinterpret_cast<const uint16_t*>(inputs) + span * kCodeSpan,
                       row_bytes / static_cast<int64_t>(sizeof(uint16_t)), count, parts, kRowGroup, 0, rows);
        for (int64_t i = 0; i < count; ++i) {
          const auto* const scales =
              reinterpret_cast<const float*>(inputs + i * row_bytes + spans * kCodeSpan * int64_t{sizeof(uint16_t)});
          kernels.axpy(scales[span], parts + i * kRowGroup, rows, totals + i * kRowGroup);
        }
      }
      for (int64_t i = 0; i < count; ++i) {
        float* const out = y + (first + i) * y_stride + begin - row_begin;
        for (int64_t row = 0; row < rows; ++row) {
          out[row] = add ? out[row] + totals[i * kRowGroup + row] : totals[i * kRowGroup + row];
        }
      }
    }
  }
}

}  // namespace moestro
