// The inner loops for formats of blocks with coded inputs: a span of 128 inputs x 64 rows for a few tokens. Every
// variant sums the same integers and has the F32 operations of common/kernels/cpu/kernels.h in their order, so a row's
// bits do not depend on the variant.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/avx512/block_header.h"
#include "common/kernels/cpu/avx512/simd.h"
#include "common/kernels/cpu/avx512/span_bytes.h"
#include "common/kernels/cpu/linear_spans.h"

namespace moestro::avx512_vnni {

using avx512::KeepOrder;
using avx512::PrefetchFar;
using avx512::SpanScales;
using spans::Numbers;
using spans::NumbersBelow;

constexpr int kVectors = avx512::kGroupVectors;

namespace {  // for internal linkage of the members

struct VnniSpans : avx512::SpanBytes {
  static constexpr bool kSignedBytes = false;
};

// Four codes of a token's inputs, for all rows.
[[gnu::always_inline]] static inline __m512i FourCodes(const int8_t* codes) {
  int32_t four;
  __builtin_memcpy(&four, codes, sizeof four);
  return _mm512_set1_epi32(four);
}

// The sources of a span's bytes. Each call of AddSubBlock adds the products of the next sub-block with tokens' codes,
// `stride` bytes apart, to sums[token][tile].

// Whether so many tokens fetch codes where they lie into L2: where products take about as long as reading. Fetches into
// L1 would hold them up (five bits, one token: 0.65 of read bandwidth instead of 0.9; four tokens: 0.7 of 0.85). Where
// memory takes longer, L1 is better (four bits, one token: 0.9 instead of 0.75).
template <DType kType>
constexpr bool FetchesFar(int tokens) {
  constexpr BlockFormat kFormat = FormatOf(kType);
  constexpr bool kCostly = kFormat.sub_block == 16 || (kFormat.has_mins && kFormat.sub_block == 32);
  return kFormat.code_bits == 5 || tokens >= (kCostly ? 2 : 3);
}

// Codes where they lie, tile by tile in the order of addresses. Those that lie kCodesAhead behind are fetched, the
// lines of a unit one beside each quad: fetches in the compiler's order, or several in a row, cost one token a tenth of
// read bandwidth.
template <typename Isa, DType kType>
class CodesInPlace {
  using U = spans::Unit<kType>;
  static constexpr int kSubBlock = FormatOf(kType).sub_block;

 public:
  explicit CodesInPlace(const uint8_t* codes) : codes_(codes) {}

  template <int kTokens>
  [[gnu::always_inline]] inline void AddSubBlock(const int8_t* inputs, int64_t stride,
                                                 __m512i (&sums)[kTokens][kVectors]) {
#pragma GCC unroll 4
    for (int i = 0; i < kSubBlock; i += U::kInputs, codes_ += U::kStepBytes) {
      AddUnits(inputs + i, stride, sums, NumbersBelow<U::kQuads>());
    }
  }

 private:
  template <int kTokens, int... kQuad>
  [[gnu::always_inline]] inline void AddUnits(const int8_t* inputs, int64_t stride, __m512i (&sums)[kTokens][kVectors],
                                              Numbers<kQuad...>) const {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) (AddQuad<kQuad>(v, inputs + 4 * kQuad, stride, sums), ...);
  }
  template <int kQuad, int kTokens>
  [[gnu::always_inline]] inline void AddQuad(int v, const int8_t* inputs, int64_t stride,
                                             __m512i (&sums)[kTokens][kVectors]) const {
    constexpr int64_t kLines = U::kStepBytes / kVectors / 64;  // of a tile
    static_assert(kLines <= U::kQuads);
    const auto bytes = reinterpret_cast<__m512i>(spans::GetQuad<Isa, kType, kQuad>(codes_, v));
    KeepOrder();
    if (kQuad < kLines) {
      const uint8_t* const ahead = codes_ + (v * kLines + kQuad) * 64 + avx512::kCodesAhead;
      FetchesFar<kType>(kTokens) ? PrefetchFar(ahead) : avx512::Prefetch(ahead);
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      sums[t][v] = _mm512_dpbusd_epi32(sums[t][v], bytes, FourCodes(inputs + t * stride));
    }
  }

  const uint8_t* codes_;
};

// Fetches kLines lines into L2 beside each quad, in the order of addresses.
template <int kLines>
class QuadFetches {
 public:
  static constexpr int64_t kSpanBytes = kCodeSpan / 4 * kLines * 64;

  explicit QuadFetches(const uint8_t* next) : next_(next) {}

  [[gnu::always_inline]] inline void Step() {
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line, next_ += 64) PrefetchFar(next_);
  }

 private:
  const uint8_t* next_;
};

// A panel: [quads][4 tiles][16 rows][4 bytes] of a span.
template <DType kType, int kFetchLines>
class PanelBytes {
 public:
  PanelBytes(const uint8_t* panel, const uint8_t* fetch) : panel_(panel), fetches_(fetch) {}

  template <int kTokens>
  [[gnu::always_inline]] inline void AddSubBlock(const int8_t* inputs, int64_t stride,
                                                 __m512i (&sums)[kTokens][kVectors]) {
    constexpr int kQuads = FormatOf(kType).sub_block / 4;
    constexpr int kTurn = kQuads < 8 ? kQuads : 8;
#pragma GCC unroll 1
    for (int quad = 0; quad < kQuads; quad += kTurn, panel_ += kTurn * spans::kQuadBytes, inputs += 4 * kTurn) {
#pragma GCC unroll 8
      for (int i = 0; i < kTurn; ++i) {
        KeepOrder();
        fetches_.Step();
        __m512i x[kTokens];
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) x[t] = FourCodes(inputs + 4 * i + t * stride);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const __m512i bytes = _mm512_load_si512(panel_ + i * spans::kQuadBytes + v * 64);
#pragma GCC unroll 4
          for (int t = 0; t < kTokens; ++t) sums[t][v] = _mm512_dpbusd_epi32(sums[t][v], bytes, x[t]);
        }
      }
    }
  }

 private:
  const uint8_t* panel_;
  QuadFetches<kFetchLines> fetches_;
};

// Codes where they lie, whose bytes are stored to such a panel beside their products.
template <typename Isa, DType kType, int kFetchLines>
class CodesToPanel {
  using U = spans::Unit<kType>;
  static constexpr int kSubBlock = FormatOf(kType).sub_block;

 public:
  CodesToPanel(const uint8_t* codes, uint8_t* panel, const uint8_t* fetch)
      : codes_(codes), panel_(panel), fetches_(fetch) {}

  template <int kTokens>
  [[gnu::always_inline]] inline void AddSubBlock(const int8_t* inputs, int64_t stride,
                                                 __m512i (&sums)[kTokens][kVectors]) {
#pragma GCC unroll 4
    for (int i = 0; i < kSubBlock; i += U::kInputs, codes_ += U::kStepBytes) {
      AddUnits(inputs + i, stride, sums, NumbersBelow<U::kQuads>());
      panel_ += U::kQuads * spans::kQuadBytes;
    }
  }

 private:
  template <int kTokens, int... kQuad>
  [[gnu::always_inline]] inline void AddUnits(const int8_t* inputs, int64_t stride, __m512i (&sums)[kTokens][kVectors],
                                              Numbers<kQuad...>) {
    (AddQuad<kQuad>(inputs + 4 * kQuad, stride, sums), ...);
  }
  template <int kQuad, int kTokens>
  [[gnu::always_inline]] inline void AddQuad(const int8_t* inputs, int64_t stride, __m512i (&sums)[kTokens][kVectors]) {
    KeepOrder();
    fetches_.Step();
    __m512i x[kTokens];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) x[t] = FourCodes(inputs + t * stride);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const auto bytes = reinterpret_cast<__m512i>(spans::GetQuad<Isa, kType, kQuad>(codes_, v));
      _mm512_store_si512(panel_ + kQuad * spans::kQuadBytes + v * 64, bytes);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) sums[t][v] = _mm512_dpbusd_epi32(sums[t][v], bytes, x[t]);
    }
  }

  const uint8_t* codes_;
  uint8_t* panel_;
  QuadFetches<kFetchLines> fetches_;
};

}  // namespace

// Adds a span to the totals, [kTokens][64 rows], of a few tokens from `x` on.
template <DType kType, int kTokens, typename Source>
static inline void AddSpan(const Source& bytes, const SpanScales& scales, const spans::CodedTokens& x, int64_t span,
                           float* totals) {
  constexpr BlockFormat kFormat = FormatOf(kType);
  Source source = bytes;  // in registers, despite writes through pointers
  const spans::CodedTokens tokens = x;
  __m512 parts[kTokens][kVectors] = {};
#pragma GCC unroll 1
  for (int64_t j = 0; j < kCodeSpan / kFormat.sub_block; ++j) {
    __m512i sums[kTokens][kVectors];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const __m512i start = spans::Start<VnniSpans, kType>(tokens.Span(t, span), j);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[t][v] = start;
    }
    source.AddSubBlock(tokens.Span(0, span).codes + j * kFormat.sub_block, tokens.stride, sums);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512 scale = _mm512_load_ps(scales.scales[j] + v * kTileRows);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        parts[t][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[t][v]), scale, parts[t][v]);
      }
    }
    if constexpr (kFormat.has_mins) {
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const __m512i minus_sum = VnniSpans::StartOf(spans::MinusSum<kType>(tokens.Span(t, span), j));
        const __m512 inputs = _mm512_cvtepi32_ps(minus_sum);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          parts[t][v] = _mm512_fmadd_ps(inputs, _mm512_load_ps(scales.mins[j] + v * kTileRows), parts[t][v]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    const __m512 scale = _mm512_set1_ps(spans::SpanScale<kType>(tokens.Span(t, span)));
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* total = totals + t * kRowGroup + v * kTileRows;
      _mm512_store_ps(total, _mm512_fmadd_ps(parts[t][v], scale, _mm512_load_ps(total)));
    }
  }
}

}  // namespace moestro::avx512_vnni
