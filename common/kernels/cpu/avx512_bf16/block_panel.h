// The inner loops for formats of blocks: a span of 128 inputs x 64 rows for a few tokens. Every variant gives an output
// the same sums in the same order: for each sub-block one chain of vdpbf16ps in input order, from zero; a fused
// multiply-add with its scale; with mins, one of -min with the sum of the sub-block's inputs. So a row's bits do not
// depend on the variant.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/avx512_bf16/block_weights.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"
#include "common/tensor/block_format.h"

namespace moestro::avx512_bf16 {

constexpr int64_t kSumsPerSpan = kSpanInputs / 32;  // the most sub-blocks of a format with mins

// out[j] = sum of inputs 32 j .. 32 j + 31 of a span that has them for j below `parts`; else 0.
static inline void SumInputs(const uint16_t* x, int64_t parts, float* out) {
  const __m512i ones = _mm512_set1_epi32(0x3f803f80);
  __m512 sums[kSumsPerSpan];
#pragma GCC unroll 4
  for (int j = 0; j < kSumsPerSpan; ++j) {
    const __m512i inputs = _mm512_maskz_loadu_epi32(j < parts ? 0xffff : 0, x + 32 * j);
    sums[j] = DotPairs(_mm512_setzero_ps(), inputs, ones);
  }
  const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(sums[0], sums[1]), _mm512_unpackhi_ps(sums[0], sums[1]));
  const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(sums[2], sums[3]), _mm512_unpackhi_ps(sums[2], sums[3]));
  const __m512d first = _mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b));
  const __m512d second = _mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b));
  const __m512 lanes = _mm512_add_ps(_mm512_castpd_ps(first), _mm512_castpd_ps(second));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

// A span for a few tokens: their inputs, the sums of their inputs if the format has mins, and where results are added.
struct SpanTokens {
  const uint16_t* x;
  int64_t x_stride;
  const float* input_sums;  // [tokens][kSumsPerSpan]
  float* totals;            // [tokens][kRowGroup]
};

namespace {  // for internal linkage of the members

// Where a register block's totals are: in memory, or in registers from construction to Store.
class TotalsInMemory {
 public:
  explicit TotalsInMemory(float* totals) : totals_(totals) {}

  [[gnu::always_inline]] inline __m512& At(int token, int tile) {
    return *reinterpret_cast<__m512*>(totals_ + token * kRowGroup + tile * kTileRows);
  }

 private:
  float* totals_;
};

template <int kTokens>
class TotalsInRegisters {
 public:
  [[gnu::always_inline]] explicit inline TotalsInRegisters(float* totals) : memory_(totals) {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) totals_[t][v] = memory_.At(t, v);
    }
  }

  [[gnu::always_inline]] inline __m512& At(int token, int tile) { return totals_[token][tile]; }
  [[gnu::always_inline]] inline void Store() {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) memory_.At(t, v) = totals_[t][v];
    }
  }

 private:
  TotalsInMemory memory_;
  __m512 totals_[kTokens][kVectors];
};

}  // namespace

// Scales the chains of sub-block j, and adds them to the totals.
template <bool kMins, int kTokens, typename Totals>
[[gnu::always_inline]] static inline void AddSums(const __m512 (&sums)[kTokens][kVectors], const SpanScales& scales,
                                                  int64_t j, const float* input_sums, Totals& totals) {
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const __m512 scale = _mm512_load_ps(scales.scales[j] + v * kTileRows);
    const __m512 min = kMins ? _mm512_load_ps(scales.mins[j] + v * kTileRows) : scale;
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      __m512 total = _mm512_fmadd_ps(sums[t][v], scale, totals.At(t, v));
      if (kMins) total = _mm512_fnmadd_ps(min, _mm512_set1_ps(input_sums[t * kSumsPerSpan + j]), total);
      totals.At(t, v) = total;
    }
  }
}

// Pair kPair of a step's units: an input is loaded once for four dot products. With one tile after another, each dot
// product would load its own input, and 6 tokens would take 1.5 times as long. Fetches the pair's share of a step's
// lines from `ahead` on into L2. In L1, or all of a step at once, they hold up the products: one token has 0.4 to 0.7
// of read bandwidth instead of 0.7 to 0.95.
template <DType kType, int kTokens, int kPair>
[[gnu::always_inline]] static inline void AddPair(const Codes<kType>& source,
                                                  const typename Codes<kType>::Unit (&units)[kVectors],
                                                  const Inputs<kTokens>& inputs, int64_t input, const uint8_t* ahead,
                                                  __m512 (&sums)[kTokens][kVectors]) {
  constexpr int kPairs = Codes<kType>::kInputs / 2, kLines = kVectors * Codes<kType>::kBytes / 64;
  KeepOrder();
#pragma GCC unroll 2
  for (int line = kPair * kLines / kPairs; line < (kPair + 1) * kLines / kPairs; ++line) PrefetchFar(ahead + line * 64);
  KeepOrder();
  __m512i w[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) w[v] = source.template Pair<kPair>(units[v]);
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    const __m512i pair = Pair(inputs.Of(t) + input + 2 * kPair);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[t][v] = DotPairs(sums[t][v], w[v], pair);
  }
}

// A step's inputs, pair by pair.
template <DType kType, int kTokens, int... kPairs>
[[gnu::always_inline]] static inline void AddPairs(const Codes<kType>& source,
                                                   const typename Codes<kType>::Unit (&units)[kVectors],
                                                   const Inputs<kTokens>& inputs, int64_t input, const uint8_t* ahead,
                                                   __m512 (&sums)[kTokens][kVectors], Numbers<kPairs...>) {
  (AddPair<kType, kTokens, kPairs>(source, units, inputs, input, ahead, sums), ...);
}

// Codes, expanded on the fly.
template <DType kType, int kTokens>
static inline void AddCodes(const Codes<kType>& codes_source, const uint8_t* codes, const SpanScales& scales,
                            int64_t sub_blocks, const SpanTokens& tokens) {
  constexpr BlockFormat kFormat = FormatOf(kType);
  using Source = Codes<kType>;
  const Source source = codes_source;  // in registers
  const SpanTokens at = tokens;
  Inputs<kTokens> inputs(at.x, at.x_stride);
  TotalsInMemory totals(at.totals);
  for (int64_t j = 0; j < sub_blocks; ++j) {
    __m512 sums[kTokens][kVectors];
    ClearSums(sums);
#pragma GCC unroll 4
    for (int64_t input = 0; input < kFormat.sub_block; input += Source::kInputs) {
      const uint8_t* const ahead = codes + kCodesAhead;
      typename Source::Unit units[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v, codes += Source::kBytes) units[v] = source.Load(codes);
      AddPairs<kType, kTokens>(source, units, inputs, input, ahead, sums, NumbersBelow<Source::kInputs / 2>());
    }
    inputs.Advance(kFormat.sub_block);
    AddSums<kFormat.has_mins>(sums, scales, j, at.input_sums, totals);
  }
}

// No side work beside a panel.
struct NoPanelWork {
  static constexpr int kTurnPairs = 4;
  [[gnu::always_inline]] inline void Step(int) {}
};

namespace {  // for internal linkage of the members

// Expands codes into a panel, unit by unit, in the order of addresses.
template <DType kType>
class CodeExpansion {
  using Source = Codes<kType>;

 public:
  static constexpr int kTurnPairs = FormatOf(kType).sub_block == 16 ? 8 : 16;

  CodeExpansion(const uint8_t* codes, uint8_t* panel) : codes_(codes), panel_(panel) {}

  // Writes as many vectors as it is called times with i in turn.
  [[gnu::always_inline]] inline void Step(int i) {
    if (i % kPairs == kPairs - 1) ExpandUnit();
  }
  [[gnu::always_inline]] inline void ExpandUnit() {
#pragma GCC unroll 5
    for (int64_t line = 0; line < Source::kBytes; line += 64) Prefetch(codes_ + line + kCodesAhead);
    const Source source;  // beside many sums, its tables are better read from memory
    const typename Source::Unit unit = source.Load(codes_);
    [&]<int... kPair>(Numbers<kPair...>) __attribute__((always_inline)) {
      (_mm512_store_si512(panel_ + kPair * kStepBytes, source.template Pair<kPair>(unit)), ...);
    }
    (NumbersBelow<kPairs>());
    codes_ += Source::kBytes;
    panel_ += 64;
    if (++tile_ % kVectors == 0) panel_ += (kPairs - 1) * kStepBytes;
  }
  // Of `inputs` inputs, without other work.
  void ExpandAll(int64_t inputs) {
    for (int64_t units = inputs / Source::kInputs * kVectors; units > 0; --units) ExpandUnit();
  }

 private:
  static constexpr int kPairs = Source::kInputs / 2;
  const uint8_t* codes_;
  uint8_t* panel_;
  int tile_ = 0;
};

}  // namespace

// Tokens of a register block: 12 chains and 12 totals leave 8 of 32 registers for weights, inputs and side work. With 8
// tokens x 32 rows, totals would be in memory: 0.69 to 0.82 of the rate of vdpbf16ps for 128 tokens instead of 0.83 to
// 0.90, since a store of 64 bytes holds up dot products for 1.7 cycles on Zen 4.
constexpr int kPanelTokens = 3;

// Adds an expanded span: [kSpanInputs / 2][4 tiles][16 rows][2 inputs] in BF16. `side` is done step by step. REQUIRES:
// whole sub-blocks.
template <int kSubBlock, bool kMins, int kTokens, typename SideWork>
static inline void AddPanel(const uint8_t* panel, const SpanScales& scales, int64_t sub_blocks,
                            const SpanTokens& tokens, SideWork& side_work) {
  constexpr int kTurnPairs = SideWork::kTurnPairs;
  SideWork side = side_work;  // in registers, despite its writes
  const SpanTokens at = tokens;
  Inputs<kTokens> inputs(at.x, at.x_stride);
  TotalsInRegisters<kTokens> totals(at.totals);
#pragma GCC unroll 1
  for (int64_t j = 0; j < sub_blocks; ++j) {
    __m512 sums[kTokens][kVectors];
    ClearSums(sums);
#pragma GCC unroll 1
    for (int input = 0; input < kSubBlock; input += 2 * kTurnPairs) {
#pragma GCC unroll 16
      for (int i = 0; i < kTurnPairs; ++i) {
        KeepOrder();
        __m512i x[kTokens];
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) x[t] = Pair(inputs.Of(t) + 2 * i);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const __m512i w = _mm512_load_si512(panel + i * kStepBytes + v * 64);
#pragma GCC unroll 4
          for (int t = 0; t < kTokens; ++t) sums[t][v] = DotPairs(sums[t][v], w, x[t]);
        }
        side.Step(i);
      }
      panel += kTurnPairs * kStepBytes;
      inputs.Advance(2 * kTurnPairs);
    }
    AddSums<kMins>(sums, scales, j, at.input_sums, totals);
  }
  totals.Store();
  side_work = side;
}

}  // namespace moestro::avx512_bf16
