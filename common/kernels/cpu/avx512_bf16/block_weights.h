// Formats of blocks (common/tensor/block_format.h): packed codes to operands of vdpbf16ps. It is exact: what a code
// stands for is a whole number or E2M1.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/avx512/block_header.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"
#include "common/kernels/cpu/span_codes.h"
#include "common/tensor/block_format.h"

namespace moestro::avx512_bf16 {

using avx512::ExpandHeader;
using avx512::HeaderFetch;
using avx512::kByMask;
using avx512::kCodesAhead;
using avx512::kMaxSubBlocks;
using avx512::kSpanInputs;
using avx512::SpanScales;

// BF16 of half of a whole number below 512 in magnitude that has at most 8 significant bits.
static constexpr uint16_t HalfToBf16(int twice) {
  if (twice == 0) return 0;
  const int sign = twice < 0 ? 0x8000 : 0;
  int magnitude = twice < 0 ? -twice : twice;
  int exponent = 127 + 7;  // of the number whose magnitude, in halves, is 256
  for (; magnitude < 256; magnitude *= 2) --exponent;
  return static_cast<uint16_t>(sign | exponent << 7 | (magnitude >> 1 & 127));
}

// What a code stands for before it is scaled.
static constexpr uint16_t CodeToBf16(DType type, int code) {
  constexpr int kTwiceE2M1[] = {0, 1, 2, 3, 4, 6, 8, 12};
  if (type == DType::kMXFP4) return HalfToBf16(code < 8 ? kTwiceE2M1[code] : -kTwiceE2M1[code - 8]);
  const bool unsigned_codes = FormatOf(type).has_mins || type == DType::kQ8_0;
  return HalfToBf16(2 * (unsigned_codes ? code : code - (1 << (FormatOf(type).code_bits - 1))));
}

// Entries of tables for vpermw and vpermi2w. These look at 5 and 6 bits of an index: 16 entries lie there twice.
template <DType kType>
struct CodeTable {
  alignas(64) uint16_t entries[64];
};
template <DType kType>
static constexpr CodeTable<kType> MakeCodeTable() {
  CodeTable<kType> table{};
  for (int i = 0; i < 64; ++i) table.entries[i] = CodeToBf16(kType, i % (1 << FormatOf(kType).code_bits));
  return table;
}

using spans::Numbers;
using spans::NumbersBelow;

namespace {  // for internal linkage of the members

// A unit is what lies together of a tile: kBytes of codes, 16 rows x kInputs. After Load, Pair<p> gives 16 rows x
// inputs 2 p and 2 p + 1. Four units, of a group's tiles, are a step.

// 4 bits: the 16-bit halves, shifted, are indices whose upper bits vpermw ignores.
template <DType kType>
class Codes4 {
 public:
  static constexpr int kInputs = 8;
  static constexpr int64_t kBytes = 64;

  using Unit = const uint8_t*;
  [[gnu::always_inline]] inline Unit Load(const uint8_t* p) const { return p; }
  template <int kPair>
  [[gnu::always_inline]] inline __m512i Pair(Unit unit) const {
    const __m512i codes = _mm512_loadu_si512(unit);
    return _mm512_permutexvar_epi16(kPair == 0 ? codes : _mm512_srli_epi16(codes, 4 * kPair), table_);
  }

 private:
  static constexpr CodeTable<kType> kTable = MakeCodeTable<kType>();
  __m512i table_ = _mm512_load_si512(kTable.entries);
};

// Moves bit kBit of 16 to bit 4.
template <int kBit>
[[gnu::always_inline]] static inline __m512i ToBit4(__m512i v) {
  if constexpr (kBit >= 4) {
    return _mm512_srli_epi16(v, kBit - 4);
  } else {
    return _mm512_slli_epi16(v, 4 - kBit);
  }
}

// 5 bits: the nibbles of 4 x 8 inputs, then a fifth bit of each.
template <DType kType>
class Codes5 {
 public:
  static constexpr int kInputs = 32;
  static constexpr int64_t kBytes = 320;

  using Unit = const uint8_t*;
  [[gnu::always_inline]] inline Unit Load(const uint8_t* p) const { return p; }
  template <int kPair>
  [[gnu::always_inline]] inline __m512i Pair(Unit unit) const {
    const __m512i nibbles = _mm512_loadu_si512(unit + kPair / 4 * 64), fifth = _mm512_loadu_si512(unit + 256);
    const __m512i low = kPair % 4 == 0 ? nibbles : _mm512_srli_epi16(nibbles, kPair % 4 * 4);
    const __m512i index = _mm512_ternarylogic_epi32(ToBit4<kPair>(fifth), low, _mm512_set1_epi16(15), kByMask);
    return _mm512_permutexvar_epi16(index, table_);
  }

 private:
  static constexpr CodeTable<kType> kTable = MakeCodeTable<kType>();
  __m512i table_ = _mm512_load_si512(kTable.entries);
};

// 6 bits: the nibbles of 2 x 8 inputs, then two more bits of each.
template <DType kType>
class Codes6 {
 public:
  static constexpr int kInputs = 16;
  static constexpr int64_t kBytes = 192;

  using Unit = const uint8_t*;
  [[gnu::always_inline]] inline Unit Load(const uint8_t* p) const { return p; }
  template <int kPair>
  [[gnu::always_inline]] inline __m512i Pair(Unit unit) const {
    constexpr int kShift = kPair % 4 * 4;
    // Nibble n of a 16-bit half is nibble n of its inputs; their bits 4 and 5 are fields 2 u + n % 2 of byte n / 2.
    constexpr int kBit = kPair % 4 / 2 * 8 + (kPair / 4 * 2 + kPair % 2) * 2;
    const __m512i nibbles = _mm512_loadu_si512(unit + kPair / 4 * 64), high = _mm512_loadu_si512(unit + 128);
    const __m512i low = kShift == 0 ? nibbles : _mm512_srli_epi16(nibbles, kShift);
    const __m512i index = _mm512_ternarylogic_epi32(ToBit4<kBit>(high), low, _mm512_set1_epi16(15), kByMask);
    return _mm512_permutex2var_epi16(first_, index, second_);
  }

 private:
  static constexpr CodeTable<kType> kTable = MakeCodeTable<kType>();
  __m512i first_ = _mm512_load_si512(kTable.entries), second_ = _mm512_load_si512(kTable.entries + 32);
};

struct ByteTables {
  alignas(64) uint8_t low[128], high[128];
};
static constexpr ByteTables MakeByteTables() {
  ByteTables tables{};
  for (int i = 0; i < 128; ++i) {
    const uint16_t bits = HalfToBf16(2 * (i == 0 ? 128 : i));
    tables.low[i] = static_cast<uint8_t>(bits & 0xff);
    tables.high[i] = static_cast<uint8_t>(bits >> 8);
  }
  return tables;
}

// 8 bits: the bytes of a magnitude's BF16 by two tables, which look at 7 bits: 0 stands for 128 there, and zeros are
// masked out. The sign is that of the code.
template <DType kType>
class Codes8 {
 public:
  static constexpr int kInputs = 4;
  static constexpr int64_t kBytes = 64;

  struct Unit {
    __m512i low, high;
  };
  [[gnu::always_inline]] inline Unit Load(const uint8_t* p) const {
    constexpr int kOrWithMasked = 0xf8;  // a | (b & c)
    const __m512i codes = _mm512_loadu_si512(p);
    const __m512i magnitudes = _mm512_abs_epi8(codes);
    const __m512i low = _mm512_permutex2var_epi8(low0_, magnitudes, low1_);
    const __m512i high =
        _mm512_maskz_permutex2var_epi8(_mm512_test_epi8_mask(codes, codes), high0_, magnitudes, high1_);
    return {low, _mm512_ternarylogic_epi64(high, codes, _mm512_set1_epi8(static_cast<char>(0x80)), kOrWithMasked)};
  }
  // Even bytes are inputs 0 and 1, odd ones inputs 2 and 3.
  template <int kPair>
  [[gnu::always_inline]] inline __m512i Pair(const Unit& unit) const {
    if constexpr (kPair == 0) {
      return _mm512_mask_alignr_epi8(unit.low, 0xaaaaaaaaaaaaaaaa, unit.high, unit.high, 15);
    } else {
      return _mm512_mask_alignr_epi8(unit.high, 0x5555555555555555, unit.low, unit.low, 1);
    }
  }

 private:
  static constexpr ByteTables kTables = MakeByteTables();
  __m512i low0_ = _mm512_load_si512(kTables.low), low1_ = _mm512_load_si512(kTables.low + 64);
  __m512i high0_ = _mm512_load_si512(kTables.high), high1_ = _mm512_load_si512(kTables.high + 64);
};

template <DType kType, int64_t kBits = FormatOf(kType).code_bits>
struct CodesOf;
template <DType kType>
struct CodesOf<kType, 4> {
  using Type = Codes4<kType>;
};
template <DType kType>
struct CodesOf<kType, 5> {
  using Type = Codes5<kType>;
};
template <DType kType>
struct CodesOf<kType, 6> {
  using Type = Codes6<kType>;
};
template <DType kType>
struct CodesOf<kType, 8> {
  using Type = Codes8<kType>;
};
template <DType kType>
using Codes = typename CodesOf<kType>::Type;

}  // namespace

}  // namespace moestro::avx512_bf16
