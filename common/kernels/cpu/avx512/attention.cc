#include "common/kernels/cpu/avx512/kernels.h"
#include "common/kernels/cpu/avx512/simd.h"
#include "common/kernels/cpu/avx512/softmax.h"
#include "common/kernels/cpu/avx512/transpose.h"

namespace moestro::avx512 {

constexpr int64_t kStepBytes = 256;  // packed BF16 matrix: 2 columns x 64 rows
constexpr int64_t kTileBytes = 64;   // 16 rows of a step
constexpr int64_t kTiles = 4;

// Packs tile by tile, so that memory is read sequentially.
void PackKeys(const uint16_t* kv, int64_t stride, int64_t tokens, int64_t dim, uint8_t* keys) {
  const int64_t pairs = PaddedCols(dim) / 2;
  for (int64_t tile = 0; tile < kTiles; ++tile) {
    for (int64_t i = 0; i < dim; i += 32) {
      const __mmask32 mask = FirstWords(dim - i);
      const int64_t pairs_here = pairs - i / 2 < 16 ? pairs - i / 2 : 16;
      uint8_t* out = keys + i / 2 * kStepBytes + tile * kTileBytes;
      __m512i rows[16], columns[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        const int64_t t = tile * 16 + r;
        rows[r] = LoadToken(t < tokens, mask, kv + t * stride + i);
      }
      Transpose(rows, columns);
      if (pairs_here == 16) {
#pragma GCC unroll 16
        for (int p = 0; p < 16; ++p) _mm512_storeu_si512(out + p * kStepBytes, columns[p]);
      } else {
        for (int64_t p = 0; p < pairs_here; ++p) _mm512_storeu_si512(out + p * kStepBytes, columns[p]);
      }
    }
  }
}

void PackValues(const uint16_t* kv, int64_t stride, int64_t tokens, int64_t dim, int64_t first, int64_t columns,
                uint8_t* values) {
  const Interleaver interleaver = MakeInterleaver();
  for (int64_t t = 0; t < kAttentionBlock; t += 2) {
    for (int64_t i = 0; i < dim; i += 32) {
      const __mmask32 mask = FirstWords(dim - i);
      const uint16_t* source = kv + t * stride + i;
      const __m512i even = LoadToken(t < tokens, mask, source);
      const __m512i odd = LoadToken(t + 1 < tokens, mask, source + stride);
      uint8_t* out =
          values + i / kRowGroup * kRowGroup * columns * 2 + (first + t) / 2 * kStepBytes + i % kRowGroup * 4;
      _mm512_storeu_si512(out, _mm512_permutex2var_epi16(even, interleaver.first, odd));
      _mm512_storeu_si512(out + kTileBytes, _mm512_permutex2var_epi16(even, interleaver.second, odd));
    }
    if ((dim - 1) % kRowGroup < 32) {  // padding rows of the last group
      uint8_t* out = values + dim / kRowGroup * kRowGroup * columns * 2 + (first + t) / 2 * kStepBytes + 2 * kTileBytes;
      _mm512_storeu_si512(out, _mm512_setzero_si512());
      _mm512_storeu_si512(out + kTileBytes, _mm512_setzero_si512());
    }
  }
}

float SoftmaxStep(const float* scores, int64_t tokens, int64_t columns, float scale, SoftmaxState* state,
                  uint16_t* weights) {
  const float old_max = state->max_score;
  const float block_max = GreatestScore(scores, tokens, scale);
  const float new_max = block_max > old_max ? block_max : old_max;
  const float sum = StoreWeights(scores, tokens, columns, scale, new_max, weights);
  const float rescale = _mm512_cvtss_f32(Exp(_mm512_set1_ps(old_max - new_max)));
  state->max_score = new_max;
  state->sum = __builtin_fmaf(state->sum, rescale, sum);
  return rescale;
}

}  // namespace moestro::avx512
