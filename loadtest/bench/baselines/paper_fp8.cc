#include "loadtest/bench/baselines/paper_fp8.h"

#include <immintrin.h>

namespace moestro::bench {

constexpr int64_t kScaleCols = 128;
constexpr int64_t kScaleRows = 128;
// E4M3 has exponent bias 7, F32 and BF16 have 127. So a code's exponent field read as theirs is 2^120 too small.
constexpr float kBiasCorrection = 0x1p120f;

static inline float Scale(const PaperGemv& gemv, int64_t row, int64_t col) {
  return gemv.scales[row / kScaleRows * (gemv.cols / kScaleCols) + col / kScaleCols] * kBiasCorrection;
}

// 16 codes as F32, 2^120 too small.
static inline __m512 ExpandToF32(const uint8_t* codes) {
  const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(wide, _mm512_set1_epi32(0x80)), 24);
  const __m512i magnitude = _mm512_slli_epi32(_mm512_and_si512(wide, _mm512_set1_epi32(0x7f)), 20);
  return _mm512_castsi512_ps(_mm512_or_si512(sign, magnitude));
}

void PaperStandardGemv(const PaperGemv& gemv, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; row += kPaperTileRows) {
    __m256 sums[kPaperTileRows];
#pragma GCC unroll 4
    for (int64_t r = 0; r < kPaperTileRows; ++r) sums[r] = _mm256_setzero_ps();
    for (int64_t col = 0; col < gemv.cols; col += kScaleCols) {
      const __m512 scale = _mm512_set1_ps(Scale(gemv, row, col));
#pragma GCC unroll 2
      for (int64_t k = col; k < col + kScaleCols; k += 16) {
        const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(gemv.x + k));
#pragma GCC unroll 4
        for (int64_t r = 0; r < kPaperTileRows; ++r) {
          const __m512 weights = _mm512_mul_ps(ExpandToF32(gemv.w + (row + r) * gemv.cols + k), scale);
          sums[r] = _mm256_dpbf16_ps(sums[r], _mm512_cvtneps_pbh(weights), reinterpret_cast<__m256bh>(x));
        }
      }
    }
    for (int64_t r = 0; r < kPaperTileRows; ++r) {
      gemv.y[row + r] = _mm512_reduce_add_ps(_mm512_zextps256_ps512(sums[r]));
    }
  }
}

// 32 codes as BF16, 2^120 too small: sign and magnitude each masked and shifted into place.
struct ShiftExpansion {
  __m512i operator()(__m256i codes) const {
    const __m512i wide = _mm512_cvtepu8_epi16(codes);
    const __m512i sign = _mm512_slli_epi16(_mm512_and_si512(wide, _mm512_set1_epi16(0x80)), 8);
    const __m512i magnitude = _mm512_slli_epi16(_mm512_and_si512(wide, _mm512_set1_epi16(0x7f)), 4);
    return _mm512_or_si512(sign, magnitude);
  }
};

// The same by sign extension: one shift moves both; one mask clears the copies of the sign bit between them.
struct SignExtension {
  __m512i operator()(__m256i codes) const {
    const __m512i wide = _mm512_cvtepi8_epi16(codes);
    return _mm512_and_si512(_mm512_slli_epi16(wide, 4), _mm512_set1_epi16(static_cast<int16_t>(0x87f0)));
  }
};

template <typename Expansion>
[[gnu::always_inline]] static inline void PostScalingGemv(const PaperGemv& gemv, int64_t row_begin, int64_t row_end,
                                                          Expansion expand) {
  for (int64_t row = row_begin; row < row_end; row += kPaperTileRows) {
    __m512 totals[kPaperTileRows];
#pragma GCC unroll 4
    for (int64_t r = 0; r < kPaperTileRows; ++r) totals[r] = _mm512_setzero_ps();
    for (int64_t col = 0; col < gemv.cols; col += kScaleCols) {
      __m512 sums[kPaperTileRows];
#pragma GCC unroll 4
      for (int64_t r = 0; r < kPaperTileRows; ++r) sums[r] = _mm512_setzero_ps();
#pragma GCC unroll 4
      for (int64_t k = col; k < col + kScaleCols; k += 32) {
        const __m512i x = _mm512_loadu_si512(gemv.x + k);
#pragma GCC unroll 4
        for (int64_t r = 0; r < kPaperTileRows; ++r) {
          const uint8_t* codes = gemv.w + (row + r) * gemv.cols + k;
          const __m512i weights = expand(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
          sums[r] = _mm512_dpbf16_ps(sums[r], reinterpret_cast<__m512bh>(weights), reinterpret_cast<__m512bh>(x));
        }
      }
      const __m512 scale = _mm512_set1_ps(Scale(gemv, row, col));
#pragma GCC unroll 4
      for (int64_t r = 0; r < kPaperTileRows; ++r) totals[r] = _mm512_fmadd_ps(sums[r], scale, totals[r]);
    }
    for (int64_t r = 0; r < kPaperTileRows; ++r) gemv.y[row + r] = _mm512_reduce_add_ps(totals[r]);
  }
}

void PaperPostScalingGemv(const PaperGemv& gemv, int64_t row_begin, int64_t row_end) {
  PostScalingGemv(gemv, row_begin, row_end, ShiftExpansion());
}

void SignExtendingGemv(const PaperGemv& gemv, int64_t row_begin, int64_t row_end) {
  PostScalingGemv(gemv, row_begin, row_end, SignExtension());
}

}  // namespace moestro::bench
