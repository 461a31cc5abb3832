#include "loadtest/bench/baselines/plain_mla.h"

#include <immintrin.h>

namespace moestro::bench {

constexpr int kTokensTogether = 4;  // that share a load of the query
constexpr int kVectors = 8;         // of sums in registers

void PlainMlaScores(const uint16_t* query, const uint16_t* rows, int64_t tokens, float* scores) {
  for (int64_t t = 0; t < tokens; t += kTokensTogether) {
    __m512 sums[kTokensTogether];
#pragma GCC unroll 4
    for (int i = 0; i < kTokensTogether; ++i) sums[i] = _mm512_setzero_ps();
    for (int64_t k = 0; k < kPlainMlaKey; k += 32) {
      const auto q = reinterpret_cast<__m512bh>(_mm512_loadu_si512(query + k));
#pragma GCC unroll 4
      for (int i = 0; i < kTokensTogether; ++i) {
        const __m512i key = _mm512_loadu_si512(rows + (t + i) * kPlainMlaKey + k);
        sums[i] = _mm512_dpbf16_ps(sums[i], reinterpret_cast<__m512bh>(key), q);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kTokensTogether; ++i) scores[t + i] = _mm512_reduce_add_ps(sums[i]);
  }
}

void PlainMlaValues(const uint16_t* weights, const uint16_t* rows, int64_t tokens, float* sums) {
  for (int64_t first = 0; first < kPlainMlaLatent; first += 16 * kVectors) {
    __m512 total[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) total[v] = _mm512_loadu_ps(sums + first + 16 * v);
    for (int64_t t = 0; t < tokens; ++t) {
      const __m512 weight = _mm512_castsi512_ps(_mm512_set1_epi32(weights[t] << 16));
      const uint16_t* row = rows + t * kPlainMlaKey + first;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + 16 * v));
        const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16);
        total[v] = _mm512_fmadd_ps(weight, _mm512_castsi512_ps(wide), total[v]);
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(sums + first + 16 * v, total[v]);
  }
}

}  // namespace moestro::bench
