// Converts between BF16 vectors of tokens and the order of packed matrices.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace moestro::avx512 {

static inline __mmask32 FirstWords(int64_t n) {
  return n >= 32 ? ~__mmask32{0} : n <= 0 ? __mmask32{0} : static_cast<__mmask32>((1u << n) - 1);
}

// Loads 32 elements of a token; zeros if `present` is false. Then the address is not used even for a fully masked load:
// on a page that was never touched, such a load takes hundreds of cycles.
static inline __m512i LoadToken(bool present, __mmask32 mask, const uint16_t* p) {
  if (!present) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi16(mask, p);
}

// rows[r] holds 16 pairs of row r; pairs[p] becomes pair p of 16 rows: a transpose of 32-bit units.
static inline void Transpose(const __m512i (&rows)[16], __m512i (&pairs)[16]) {
  __m512i a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // 2 x 2
    a[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    a[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // 4 x 4 inside each lane: b[4 i + c] holds column c of rows 4 i .. 4 i + 3
    b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {  // lane l of b[4 i + c] is column 4 l + c of rows 4 i .. 4 i + 3: a transpose of lanes
    const __m512i low02 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88);
    const __m512i low13 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xdd);
    const __m512i high02 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
    const __m512i high13 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xdd);
    pairs[c] = _mm512_shuffle_i32x4(low02, high02, 0x88);
    pairs[4 + c] = _mm512_shuffle_i32x4(low13, high13, 0x88);
    pairs[8 + c] = _mm512_shuffle_i32x4(low02, high02, 0xdd);
    pairs[12 + c] = _mm512_shuffle_i32x4(low13, high13, 0xdd);
  }
}

// Operands of permutex2var to interleave two vectors: the first 16 elements of each, then the others.
struct Interleaver {
  __m512i first;
  __m512i second;
};
static inline Interleaver MakeInterleaver() {
  alignas(64) static constexpr uint16_t kFirst[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i first = _mm512_load_si512(kFirst);
  return {first, _mm512_add_epi16(first, _mm512_set1_epi16(16))};
}

}  // namespace moestro::avx512
