// One token, by vector instructions: the sums of a tile product (tiles.h), in the same order, so with the same bits. A
// token alone leaves tiles idle; what it costs to expand weights into memory for them and to load them from there, is
// more than the multiply-adds cost.
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

// The sums of a block of the 64 rows at `weights`, `quads` times 4 inputs.
template <typename Quads>
[[gnu::always_inline]] static inline void SumBlock(const Quads& source, const uint8_t* weights, int64_t quads,
                                                   const float* x, int64_t far_bytes, __m512 (&sums)[kVectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) sums[v] = _mm512_setzero_ps();
  for (int64_t begin = 0; begin < quads; begin += kStepQuads) {
    __m512 even[kVectors], odd[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) even[v] = odd[v] = _mm512_setzero_ps();
    const int64_t end = Min(begin + kStepQuads, quads);
    for (int64_t quad = begin; quad < end; ++quad, weights += Quads::kBytes) {
      const __m512 x0 = _mm512_set1_ps(x[4 * quad]);
      const __m512 x1 = _mm512_set1_ps(x[4 * quad + 1]);
      const __m512 x2 = _mm512_set1_ps(x[4 * quad + 2]);
      const __m512 x3 = _mm512_set1_ps(x[4 * quad + 3]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        __m512i w01, w23;
        source.Get(weights, v, far_bytes, &w01, &w23);
        even[v] = _mm512_fmadd_ps(Even(w01), x0, even[v]);
        odd[v] = _mm512_fmadd_ps(Odd(w01), x1, odd[v]);
        even[v] = _mm512_fmadd_ps(Even(w23), x2, even[v]);
        odd[v] = _mm512_fmadd_ps(Odd(w23), x3, odd[v]);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[v] = _mm512_add_ps(sums[v], _mm512_add_ps(even[v], odd[v]));
  }
}

// Rows [row, row + rows), at most 64.
template <typename Quads>
static inline void MultiplyGroup(const Problem& p, int64_t row, int64_t rows) {
  const Quads source;
  alignas(64) float x[kScaleBlock];
  __m512 totals[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) totals[v] = _mm512_setzero_ps();
  const int64_t far_bytes = p.far_bytes();
  for (int64_t block = 0; block < p.blocks(); ++block) {
    const int64_t cols = p.cols(block);
    WidenInputs(p.x + block * kScaleBlock, cols, x);
    __m512 sums[kVectors];
    SumBlock(source, p.weights(row, block), CeilDiv(cols, 4), x, far_bytes, sums);
    const __m512 scale = _mm512_set1_ps(p.scale(row, block));
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) totals[v] = _mm512_fmadd_ps(sums[v], scale, totals[v]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const __mmask16 lanes = rows > v * 16 ? FirstLanes(rows - v * 16) : __mmask16{0};
    float* out = p.y + row + v * 16;
    if (p.add) totals[v] = _mm512_add_ps(totals[v], _mm512_maskz_loadu_ps(lanes, out));
    _mm512_mask_storeu_ps(out, lanes, totals[v]);
  }
}

static inline void MultiplyToken(const Problem& p, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; row += kRowGroup) {
    const int64_t rows = Min(kRowGroup, row_end - row);
    if (p.is_fp8()) {
      MultiplyGroup<Fp8Quads>(p, row, rows);
    } else {
      MultiplyGroup<Bf16Quads>(p, row, rows);
    }
  }
}

}  // namespace moestro::amx
