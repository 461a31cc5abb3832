// Formats of blocks for one token or two, by vector instructions: tiles would be nearly empty. Codes become F32 in
// registers. A sub-block's sums have a tile product's order (tiles.h): even and odd inputs of a step in one chain of
// fused multiply-adds each, from zero. So the bits are those of blocks.h.
//
// Up to four row groups are read side by side, a sub-block of each in turn, as in gemv.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/amx/gemv.h"
#include "common/kernels/cpu/avx512_bf16/block_weights.h"
#include "common/kernels/cpu/linear_spans.h"

namespace moestro::amx {

using avx512_bf16::kSpanInputs;
using avx512_bf16::SpanScales;

constexpr int64_t kBlockVectorTokens = 2;     // at most
constexpr int64_t kScalingFetchBytes = 1024;  // of each group, fetched while a span's sums are scaled

template <DType kType>
struct FloatTable {
  alignas(64) uint32_t entries[32];
};
template <DType kType>
static constexpr FloatTable<kType> MakeFloatTable() {
  FloatTable<kType> table{};
  for (int i = 0; i < 32; ++i) {
    table.entries[i] = uint32_t{avx512_bf16::CodeToBf16(kType, i % (1 << FormatOf(kType).code_bits))} << 16;
  }
  return table;
}

namespace {  // for internal linkage of the members

// Units as in block_weights.h: kLines lines of 16 rows x kInputs, and behind them a line of upper bits if kUpper. Pair
// gives inputs 2 kPair and 2 kPair + 1 of line kLine in F32.

// 4 bits: vpermps looks at 4 bits of an index.
template <DType kType>
class FloatCodes4 {
 public:
  static constexpr int kInputs = 8;
  static constexpr int kLines = 1;
  static constexpr bool kUpper = false;

  template <int kLine, int kPair>
  [[gnu::always_inline]] inline void Pair(__m512i nibbles, __m512i, __m512* even, __m512* odd) const {
    *even = _mm512_permutexvar_ps(kPair == 0 ? nibbles : _mm512_srli_epi32(nibbles, 4 * kPair), table_);
    *odd = _mm512_permutexvar_ps(_mm512_srli_epi32(nibbles, 16 + 4 * kPair), table_);
  }

 private:
  static constexpr FloatTable<kType> kTable = MakeFloatTable<kType>();
  __m512 table_ = _mm512_load_ps(kTable.entries);
};

// The pair's upper bits, of which bit kBit of each 16 becomes bit 4, above its nibbles. Other bits are left over.
template <int kPair, int kBit>
[[gnu::always_inline]] static inline __m512i WithUpper(__m512i nibbles, __m512i upper) {
  const __m512i low = kPair == 0 ? nibbles : _mm512_srli_epi32(nibbles, 4 * kPair);
  return _mm512_ternarylogic_epi32(avx512_bf16::ToBit4<kBit>(upper), low, _mm512_set1_epi16(15), avx512_bf16::kByMask);
}

// 5 bits: vpermi2ps looks at 5 bits.
template <DType kType>
class FloatCodes5 {
 public:
  static constexpr int kInputs = 32;
  static constexpr int kLines = 4;
  static constexpr bool kUpper = true;

  template <int kLine, int kPair>
  [[gnu::always_inline]] inline void Pair(__m512i nibbles, __m512i upper, __m512* even, __m512* odd) const {
    const __m512i index = WithUpper<kPair, 4 * kLine + kPair>(nibbles, upper);
    *even = _mm512_permutex2var_ps(first_, index, second_);
    *odd = _mm512_permutex2var_ps(first_, _mm512_srli_epi32(index, 16), second_);
  }

 private:
  static constexpr FloatTable<kType> kTable = MakeFloatTable<kType>();
  __m512 first_ = _mm512_load_ps(kTable.entries), second_ = _mm512_load_ps(kTable.entries + 16);
};

// 6 bits: with an exponent above it, a code is a number to subtract from.
template <DType kType>
class FloatCodes6 {
 public:
  static constexpr int kInputs = 16;
  static constexpr int kLines = 2;
  static constexpr bool kUpper = true;

  template <int kLine, int kPair>
  [[gnu::always_inline]] inline void Pair(__m512i nibbles, __m512i upper, __m512* even, __m512* odd) const {
    const __m512i codes = WithUpper<kPair, kPair / 2 * 8 + (kLine * 2 + kPair % 2) * 2>(nibbles, upper);
    *even = Number<0x3f>(codes, 0x1p23f);
    *odd = Number<0x3f0000>(codes, 0x1p7f);
  }

 private:
  static_assert(kType == DType::kQ6K);

  // kMask: where the code is; unit: the power of two of which the lowest of these bits is 1.
  template <int kMask>
  [[gnu::always_inline]] static inline __m512 Number(__m512i codes, float unit) {
    constexpr int kOrWithMasked = 0xf8;  // a | (b & c)
    const __m512i bits = _mm512_ternarylogic_epi32(_mm512_castps_si512(_mm512_set1_ps(unit)), codes,
                                                   _mm512_set1_epi32(kMask), kOrWithMasked);
    return _mm512_sub_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(unit + 32));
  }
};

// 8 bits: vpdpbusd picks one byte of each four.
template <DType kType>
class FloatCodes8 {
 public:
  static constexpr int kInputs = 4;
  static constexpr int kLines = 1;
  static constexpr bool kUpper = false;

  template <int kLine, int kPair>
  [[gnu::always_inline]] inline void Pair(__m512i codes, __m512i, __m512* even, __m512* odd) const {
    *even = Byte(codes, kPair);  // bytes are inputs 0 2 1 3
    *odd = Byte(codes, kPair + 2);
  }

 private:
  static_assert(kType == DType::kQ8_0);

  [[gnu::always_inline]] static inline __m512 Byte(__m512i codes, int byte) {
    return _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi32(1 << (8 * byte)), codes));
  }
};

template <DType kType, int64_t kBits = FormatOf(kType).code_bits>
struct FloatCodesOf;
template <DType kType>
struct FloatCodesOf<kType, 4> {
  using Type = FloatCodes4<kType>;
};
template <DType kType>
struct FloatCodesOf<kType, 5> {
  using Type = FloatCodes5<kType>;
};
template <DType kType>
struct FloatCodesOf<kType, 6> {
  using Type = FloatCodes6<kType>;
};
template <DType kType>
struct FloatCodesOf<kType, 8> {
  using Type = FloatCodes8<kType>;
};

// Rows [row, row + rows) of kGroups row groups; only the last group may be short.
template <DType kType, int kTokens, int kGroups>
class BlockGroups {
  static constexpr BlockFormat kFormat = FormatOf(kType);
  static constexpr int64_t kBlockSpans = kFormat.block / kSpanInputs;
  static constexpr int64_t kSubBlock = kFormat.sub_block;
  static constexpr int64_t kSubBlocks = kSpanInputs / kSubBlock;
  static constexpr int64_t kInputBytes = kRowGroup * kFormat.code_bits / 8;
  static constexpr int64_t kStep = kSubBlock < kStepInputs ? kSubBlock : kStepInputs;
  using Source = typename FloatCodesOf<kType>::Type;
  static constexpr int64_t kUnitBytes = (Source::kLines + (Source::kUpper ? 1 : 0)) * 64;
  using Sums = VectorSums<kTokens>;

 public:
  BlockGroups(const Problem& p, int64_t row, int64_t rows) : p_(p), row_(row), rows_(rows) {}

  void Multiply() {
    SpanSums sums;
    SpanScales scales;
    Sums totals[kGroups];
    for (Sums& total : totals) total.Clear();
    for (int64_t span = 0; span < p_.blocks(); ++span) {
      SumSpan(span, &sums);
      for (int g = 0; g < kGroups; ++g) {
        FetchAhead(g, span + 1);
        avx512_bf16::ExpandHeader<kType, avx512_bf16::HeaderFetch::kNone>(Group(g) + HeaderAt(span), span % kBlockSpans,
                                                                          &scales);
        AddSums(sums.sums[g], sums.inputs, scales, &totals[g]);
      }
    }
    for (int g = 0; g < kGroups; ++g) {
      const int64_t row = row_ + g * kRowGroup;
      for (int t = 0; t < kTokens; ++t) {
        alignas(64) float out[kRowGroup];
        for (int v = 0; v < kVectors; ++v) _mm512_store_ps(out + v * kTileRows, totals[g].v[t][v]);
        StoreTotals(out, Min(kRowGroup, row_ + rows_ - row), p_.add, p_.output(t, row));
      }
    }
  }

 private:
  static constexpr bool kBeside = kGroups > 1;

  struct SpanSums {
    Sums sums[kGroups][kSubBlocks];
    float inputs[kTokens][kSubBlocks];  // where the format has mins
  };

  // What tiles compute, and so what flushes denormals: a function of its own, as the compiler may move arithmetic over
  // a change of MXCSR.
  [[gnu::noinline]] void SumSpan(int64_t span, SpanSums* out) const {
    const FlushDenormals flush;
    alignas(64) float x[kTokens][kSpanInputs];
    for (int t = 0; t < kTokens; ++t) {
      WidenInputs(p_.x + t * p_.x_stride + span * kSpanInputs, p_.cols(span), x[t]);
      if constexpr (kFormat.has_mins) SumInputs(x[t], out->inputs[t]);
    }
    const Source source;
    const int64_t header_at = HeaderAt(span);
    const int64_t codes_at = header_at + kFormat.header_bytes + span % kBlockSpans * kSpanInputs * kInputBytes;
    for (int64_t input = 0; input < kSpanInputs; input += kStep) {
      const int64_t at = codes_at + input * kInputBytes, ahead = Ahead(at);
#pragma GCC unroll 1
      for (int g = 0; g < kGroups; ++g) {
        if (input == 0 && span % kBlockSpans == 0) FetchBehind(Group(g) + header_at, Ahead(header_at));
        Sums sum = SumStep(source, Group(g) + at, x[0] + input, ahead);
        Sums& total = out->sums[g][input / kSubBlock];
        if (input % kSubBlock == 0) total.Clear();
        ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) {
          total.v[t][v] = _mm512_add_ps(total.v[t][v], sum.v[t][v]);
        });
      }
    }
  }

  // Scales a span's sums.
  static void AddSums(const Sums (&sums)[kSubBlocks], const float (&inputs)[kTokens][kSubBlocks],
                      const SpanScales& scales, Sums* totals) {
    Sums total = *totals;  // in registers
#pragma GCC unroll 8
    for (int j = 0; j < kSubBlocks; ++j) {
      ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) {
        const __m512 scale = _mm512_load_ps(scales.scales[j] + v * kTileRows);
        total.v[t][v] = _mm512_fmadd_ps(sums[j].v[t][v], scale, total.v[t][v]);
        if constexpr (kFormat.has_mins) {
          const __m512 min = _mm512_load_ps(scales.mins[j] + v * kTileRows);
          total.v[t][v] = _mm512_fnmadd_ps(min, _mm512_set1_ps(inputs[t][j]), total.v[t][v]);
        }
      });
    }
    *totals = total;
  }

  // The sums of inputs that mins take, as tiles form them.
  static void SumInputs(const float* x, float* sums) {
    for (int64_t j = 0; j < kSubBlocks; ++j) {
      sums[j] = 0;
      for (int64_t step = 0; step < kSubBlock; step += kStep) {
        float even = 0, odd = 0;
        for (int64_t i = 0; i < kStep; i += 2, x += 2) {
          even += x[0];
          odd += x[1];
        }
        sums[j] += even + odd;
      }
    }
  }

  // A tile product's sums but for the last addition.
  [[gnu::always_inline]] static inline Sums SumStep(const Source& source, const uint8_t* codes, const float* x,
                                                    int64_t ahead) {
    Sums even, odd;
    even.Clear();
    odd.Clear();
    for (int64_t i = 0; i < kStep; i += Source::kInputs, codes += kVectors * kUnitBytes) {
      __m512i upper[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        upper[v] = Source::kUpper ? Load(codes + v * kUnitBytes + Source::kLines * 64, ahead) : _mm512_setzero_si512();
      }
      [&]<int... kLine>(spans::Numbers<kLine...>) __attribute__((always_inline)) {
        (AddLine<kLine>(source, codes, upper, x + i, ahead, &even, &odd), ...);
      }
      (spans::NumbersBelow<Source::kLines>());
    }
    ForAll<kTokens>([&](int t, int v)
                        __attribute__((always_inline)) { even.v[t][v] = _mm512_add_ps(even.v[t][v], odd.v[t][v]); });
    return even;
  }

  // A line of each tile of the group: so chains of four tiles overlap.
  template <int kLine>
  [[gnu::always_inline]] static inline void AddLine(const Source& source, const uint8_t* codes,
                                                    const __m512i (&upper)[kVectors], const float* x, int64_t ahead,
                                                    Sums* even, Sums* odd) {
    constexpr int kInputs = Source::kInputs / Source::kLines;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512i line = Load(codes + v * kUnitBytes + kLine * 64, ahead);
      [&]<int... kPair>(spans::Numbers<kPair...>) __attribute__((always_inline)) {
        (AddPair<kLine, kPair>(source, line, upper[v], x + kLine * kInputs, v, even, odd), ...);
      }
      (spans::NumbersBelow<kInputs / 2>());
    }
  }
  template <int kLine, int kPair>
  [[gnu::always_inline]] static inline void AddPair(const Source& source, __m512i line, __m512i upper, const float* x,
                                                    int v, Sums* even, Sums* odd) {
    __m512 w0, w1;
    source.template Pair<kLine, kPair>(line, upper, &w0, &w1);
#pragma GCC unroll 2
    for (int t = 0; t < kTokens; ++t) {
      const float* const pair = x + t * kSpanInputs + 2 * kPair;
      even->v[t][v] = _mm512_fmadd_ps(w0, _mm512_set1_ps(pair[0]), even->v[t][v]);
      odd->v[t][v] = _mm512_fmadd_ps(w1, _mm512_set1_ps(pair[1]), odd->v[t][v]);
    }
  }

  [[gnu::always_inline]] static inline __m512i Load(const uint8_t* line, int64_t ahead) {
    if constexpr (kBeside) return avx512_bf16::LoadAndFetch(line, line + ahead);
    PrefetchNear(line + kNearBytes);
    PrefetchFar(line + ahead);
    return _mm512_loadu_si512(line);
  }
  // Fetches what comes this far behind a header, as Load does behind codes.
  static void FetchBehind(const uint8_t* header, int64_t ahead) {
    for (const uint8_t* line = header; line < header + kFormat.header_bytes; line += 64) {
      if constexpr (!kBeside) PrefetchNear(line + kNearBytes);
      kBeside ? PrefetchNear(line + ahead) : PrefetchFar(line + ahead);
    }
  }
  // Beside scaling, which reads no codes: from DRAM 1.0 to 1.07 times as fast.
  [[gnu::always_inline]] inline void FetchAhead(int g, int64_t span) const {
    if constexpr (!kBeside) return;
    const int64_t at = HeaderAt(span) + span % kBlockSpans * kSpanInputs * kInputBytes + kScalingFetchBytes;
    const uint8_t* const ahead = Group(g) + at + Ahead(at);
#pragma GCC unroll 16
    for (int64_t line = 0; line < kScalingFetchBytes; line += 64) PrefetchNear(ahead + line);
  }
  int64_t HeaderAt(int64_t span) const { return span / kBlockSpans * kFormat.packed_block_bytes(); }
  const uint8_t* Group(int g) const { return p_.w.data + (row_ / kRowGroup + g) * group_bytes_; }
  int64_t Ahead(int64_t in_group) const { return kBeside ? BesideAhead(in_group, group_bytes_, kGroups) : kFarBytes; }

  const Problem& p_;
  const int64_t row_;
  const int64_t rows_;
  const int64_t group_bytes_ = PackedGroupBytes(kType, p_.w.cols);
};

// Processes rows [row, row_end) while kGroups row groups are left; returns the next row.
template <DType kType, int kTokens, int kGroups>
static int64_t MultiplyBlockRows(const Problem& p, int64_t row, int64_t row_end) {
  constexpr int64_t kRows = kGroups * kRowGroup;
  for (; row_end - row > kRows - kRowGroup; row += kRows) {
    BlockGroups<kType, kTokens, kGroups>(p, row, Min(kRows, row_end - row)).Multiply();
  }
  return row;
}

template <DType kType, int kTokens>
static void MultiplyBlockTokens(const Problem& p, int64_t row_end) {
  int64_t row = MultiplyBlockRows<kType, kTokens, 4>(p, p.row_begin, row_end);
  row = MultiplyBlockRows<kType, kTokens, 2>(p, row, row_end);
  MultiplyBlockRows<kType, kTokens, 1>(p, row, row_end);
}

}  // namespace

// REQUIRES: IsBlockFormat(p.w.dtype), 1 or 2 tokens.
static inline void MultiplyBlocksByVectors(const Problem& p, int64_t row_end) {
  WithFormat(p.w.dtype, [&]<DType kType>() {
    p.tokens == 1 ? MultiplyBlockTokens<kType, 1>(p, row_end) : MultiplyBlockTokens<kType, 2>(p, row_end);
  });
}

}  // namespace moestro::amx
