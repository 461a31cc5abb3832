// E4M3 to BF16 by table. Without its sign, a code has 7 bits. So the low and high bytes of its BF16 come from two
// 128-entry tables for vpermi2b, whose index ignores the top bit. One ternary-logic operation restores the sign. Exact
// for all 256 codes: subnormals are normal BF16 values, NaN stays NaN.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace moestro::avx512_bf16 {

struct Fp8Tables {
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t high[128];
};

// BF16 bits of the magnitude with this 7-bit code: bias 7 becomes 127, the 3 mantissa bits become the upper ones of 7.
static constexpr uint16_t E4M3MagnitudeToBf16(int code) {
  int exponent = code >> 3;
  int mantissa = code & 7;
  if (code == 0x7f) return 0x7fc0;
  if (code == 0) return 0;
  if (exponent == 0) {  // mantissa * 2^-9: shift the leading one to the implicit position of normal numbers
    exponent = 1;
    while (mantissa < 8) {
      mantissa *= 2;
      --exponent;
    }
  }
  return static_cast<uint16_t>((exponent + 120) << 7 | (mantissa & 7) << 4);
}

static constexpr Fp8Tables MakeFp8Tables() {
  Fp8Tables tables{};
  for (int code = 0; code < 128; ++code) {
    const uint16_t bits = E4M3MagnitudeToBf16(code);
    tables.low[code] = static_cast<uint8_t>(bits & 0xff);
    tables.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  return tables;
}

static constexpr Fp8Tables kFp8Tables = MakeFp8Tables();

// Keeps the tables in registers across a loop. Turns one 64-byte tile (16 rows x 4 inputs) into two operands of
// vdpbf16ps: 16 rows x inputs (0, 1) and 16 rows x inputs (2, 3).
struct Fp8Expander {
  __m512i low0, low1, high0, high1, sign;
};

static inline Fp8Expander MakeFp8Expander() {
  return {_mm512_load_si512(kFp8Tables.low), _mm512_load_si512(kFp8Tables.low + 64), _mm512_load_si512(kFp8Tables.high),
          _mm512_load_si512(kFp8Tables.high + 64), _mm512_set1_epi8(static_cast<char>(0x80))};
}

static inline void ExpandCodes(const Fp8Expander& e, __m512i codes, __m512i* inputs01, __m512i* inputs23) {
  constexpr int kOrWithMasked = 0xf8;  // a | (b & c)
  const __m512i low = _mm512_permutex2var_epi8(e.low0, codes, e.low1);
  const __m512i magnitude = _mm512_permutex2var_epi8(e.high0, codes, e.high1);
  const __m512i high = _mm512_ternarylogic_epi64(magnitude, codes, e.sign, kOrWithMasked);
  *inputs01 = _mm512_unpacklo_epi8(low, high);
  *inputs23 = _mm512_unpackhi_epi8(low, high);
}

static inline void Expand(const Fp8Expander& e, const uint8_t* tile, __m512i* inputs01, __m512i* inputs23) {
  ExpandCodes(e, _mm512_loadu_si512(tile), inputs01, inputs23);
}

}  // namespace moestro::avx512_bf16
