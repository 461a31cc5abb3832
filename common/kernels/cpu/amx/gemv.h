// One or two tokens, by vector instructions: the sums of a tile product (tiles.h), in the same order, so with the same
// bits. So few tokens leave tiles idle; what it costs to expand weights into memory for them and to load them from
// there, is more than the multiply-adds cost.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/amx/common.h"

namespace moestro::amx {

constexpr int kVectors = 4;  // of 16 rows: a group

namespace {  // for internal linkage of the members

// Pairs of BF16 weights, (0, 1) and (2, 3) of 4 inputs, for the 16 rows of one vector.
struct Fp8Quads {
  static constexpr int64_t kBytes = kPairBytes;
  avx512_bf16::Fp8Expander expander = avx512_bf16::MakeFp8Expander();

  [[gnu::always_inline]] inline void Get(const uint8_t* quad, int v, int64_t far_bytes, __m512i* w01,
                                         __m512i* w23) const {
    PrefetchNear(quad + v * 64 + kNearBytes);
    PrefetchFar(quad + v * 64 + far_bytes);
    ExpandTile(expander, quad + v * 64, w01, w23);
  }
};
struct Bf16Quads {
  static constexpr int64_t kBytes = 2 * kPairBytes;

  [[gnu::always_inline]] inline void Get(const uint8_t* quad, int v, int64_t far_bytes, __m512i* w01,
                                         __m512i* w23) const {
    for (int pair = 0; pair < 2; ++pair) {
      PrefetchNear(quad + pair * kPairBytes + v * 64 + kNearBytes);
      PrefetchFar(quad + pair * kPairBytes + v * 64 + far_bytes);
    }
    *w01 = _mm512_loadu_si512(quad + v * 64);
    *w23 = _mm512_loadu_si512(quad + kPairBytes + v * 64);
  }
};

}  // namespace

// f(token, vector) for all of both, unrolled: an array that is indexed by a variable is kept in memory.
template <int kTokens, typename F>
[[gnu::always_inline]] static inline void ForAll(F f) {
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) f(t, v);
  }
}

[[gnu::always_inline]] static inline __m512 Even(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
[[gnu::always_inline]] static inline __m512 Odd(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
}

// n numbers as F32, then zeros up to kScaleBlock; no number past the n-th is read.
static inline void WidenInputs(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < kScaleBlock; i += 16) {
    const __mmask16 mask = n > i ? FirstLanes(n - i) : __mmask16{0};
    const __m256i bf16 = mask == 0 ? _mm256_setzero_si256() : _mm256_maskz_loadu_epi16(mask, x + i);
    _mm512_store_ps(out + i, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16)));
  }
}

// sums[token]: of a block of the 64 rows at `weights`, `quads` times 4 inputs.
template <int kTokens, typename Quads>
[[gnu::always_inline]] static inline void SumBlock(const Quads& source, const uint8_t* weights, int64_t quads,
                                                   const float (&x)[kTokens][kScaleBlock], int64_t far_bytes,
                                                   __m512 (&sums)[kTokens][kVectors]) {
  ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) { sums[t][v] = _mm512_setzero_ps(); });
  for (int64_t begin = 0; begin < quads; begin += kStepQuads) {
    __m512 even[kTokens][kVectors], odd[kTokens][kVectors];
    ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) { even[t][v] = odd[t][v] = _mm512_setzero_ps(); });
    const int64_t end = Min(begin + kStepQuads, quads);
    for (int64_t quad = begin; quad < end; ++quad, weights += Quads::kBytes) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        __m512i w01, w23;
        source.Get(weights, v, far_bytes, &w01, &w23);
        const __m512 w0 = Even(w01), w1 = Odd(w01), w2 = Even(w23), w3 = Odd(w23);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          const float* xt = x[t] + 4 * quad;
          even[t][v] = _mm512_fmadd_ps(w0, _mm512_set1_ps(xt[0]), even[t][v]);
          odd[t][v] = _mm512_fmadd_ps(w1, _mm512_set1_ps(xt[1]), odd[t][v]);
          even[t][v] = _mm512_fmadd_ps(w2, _mm512_set1_ps(xt[2]), even[t][v]);
          odd[t][v] = _mm512_fmadd_ps(w3, _mm512_set1_ps(xt[3]), odd[t][v]);
        }
      }
    }
    ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) {
      sums[t][v] = _mm512_add_ps(sums[t][v], _mm512_add_ps(even[t][v], odd[t][v]));
    });
  }
}

// Rows [row, row + rows), at most 64.
template <int kTokens, typename Quads>
static inline void MultiplyGroup(const Problem& p, int64_t row, int64_t rows) {
  const Quads source;
  alignas(64) float x[kTokens][kScaleBlock];
  __m512 totals[kTokens][kVectors];
  ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) { totals[t][v] = _mm512_setzero_ps(); });
  const int64_t far_bytes = p.far_bytes();
  for (int64_t block = 0; block < p.blocks(); ++block) {
    const int64_t cols = p.cols(block);
    for (int t = 0; t < kTokens; ++t) WidenInputs(p.x + t * p.x_stride + block * kScaleBlock, cols, x[t]);
    __m512 sums[kTokens][kVectors];
    SumBlock(source, p.weights(row, block), CeilDiv(cols, 4), x, far_bytes, sums);
    const __m512 scale = _mm512_set1_ps(p.scale(row, block));
    ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) {
      totals[t][v] = _mm512_fmadd_ps(sums[t][v], scale, totals[t][v]);
    });
  }
  ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) {
    const __mmask16 lanes = rows > v * 16 ? FirstLanes(rows - v * 16) : __mmask16{0};
    float* out = p.y + t * p.y_stride + row + v * 16;
    if (p.add) totals[t][v] = _mm512_add_ps(totals[t][v], _mm512_maskz_loadu_ps(lanes, out));
    _mm512_mask_storeu_ps(out, lanes, totals[t][v]);
  });
}

// kTokens == p.tokens
template <int kTokens>
static inline void MultiplyByVectors(const Problem& p, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; row += kRowGroup) {
    const int64_t rows = Min(kRowGroup, row_end - row);
    if (p.is_fp8()) {
      MultiplyGroup<kTokens, Fp8Quads>(p, row, rows);
    } else {
      MultiplyGroup<kTokens, Bf16Quads>(p, row, rows);
    }
  }
}

}  // namespace moestro::amx
