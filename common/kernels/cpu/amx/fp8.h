// E4M3 to BF16 without tables. Every bit of a normal number's BF16 is a bit of its code, its complement, or constant.
// So `vgf2p8affineqb` makes a whole byte, for which `vpermi2b` takes three micro-operations. Zeros, subnormals and NaN
// have another form. The matrix marks the groups of 4 inputs that contain them (packed_matrix.h); these use the table.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/avx512_bf16/fp8.h"

namespace moestro::amx {

// The operand of vgf2p8affineqb for which bit i of the result is the parity of the code's bits in masks[i].
static constexpr long long BitMatrix(const uint8_t (&masks)[8]) {
  uint64_t matrix = 0;
  for (int i = 0; i < 8; ++i) matrix |= uint64_t{masks[i]} << (8 * (7 - i));
  return static_cast<long long>(matrix);
}

// A code is S EEEE MMM, its BF16 S FFFFFFFF MMM0000 with F = E + 120: E's upper bit, four times its complement, E's
// lower bits.
constexpr uint8_t kExponent = 1 << 6;  // its upper bit
constexpr long long kLowByte = BitMatrix({0, 0, 0, 0, 1 << 0, 1 << 1, 1 << 2, 1 << 3});
constexpr long long kHighByte =
    BitMatrix({1 << 4, 1 << 5, kExponent, kExponent, kExponent, kExponent, kExponent, 1 << 7});
constexpr int kOpposites = 0x3c;

// Expands the codes of one tile, 16 rows x 4 inputs: 16 rows x inputs (0, 1) and 16 rows x inputs (2, 3).
[[gnu::always_inline]] static inline void ExpandNormal(__m512i codes, __m512i* inputs01, __m512i* inputs23) {
  const __m512i low = _mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(kLowByte), 0);
  const __m512i high = _mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(kHighByte), kOpposites);
  *inputs01 = _mm512_unpacklo_epi8(low, high);
  *inputs23 = _mm512_unpackhi_epi8(low, high);
}
[[gnu::always_inline]] static inline void ExpandAny(__m512i codes, __m512i* inputs01, __m512i* inputs23) {
  avx512_bf16::ExpandCodes(avx512_bf16::MakeFp8Expander(), codes, inputs01, inputs23);
}

}  // namespace moestro::amx
