// The part of a policy of common/kernels/cpu/span_codes.h and linear_spans.h that all kernels by AVX-512 share: bytes
// of codes, and what chains start from.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/span_codes.h"

namespace moestro::avx512 {

namespace {  // for internal linkage of the members

struct SpanBytes {
  typedef uint32_t Words __attribute__((vector_size(64)));
  using Ints = __m512i;
  static constexpr int64_t kLanes = 16;

  [[gnu::always_inline]] static inline Words LoadWords(const uint8_t* p) {
    return reinterpret_cast<Words>(_mm512_loadu_si512(p));
  }
  [[gnu::always_inline]] static inline Words LookUp(const spans::ByteTable& table, Words words) {
    const __m512i entries = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table.bytes)));
    return reinterpret_cast<Words>(_mm512_shuffle_epi8(entries, reinterpret_cast<__m512i>(words & 0x0f0f0f0fu)));
  }
  template <int kPlace>
  [[gnu::always_inline]] static inline Words FifthBits(Words words) {
    return Merge(0x00ff00ff, spans::Shift(words, 4 - kPlace), spans::Shift(words, 10 - kPlace));
  }
  [[gnu::always_inline]] static inline Words Merge(uint32_t mask, Words a, Words b) {
    constexpr int kByFirst = 0xca;  // bits of the second operand where the first has ones, else of the third
    return reinterpret_cast<Words>(_mm512_ternarylogic_epi32(_mm512_set1_epi32(static_cast<int>(mask)),
                                                             reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b),
                                                             kByFirst));
  }
  [[gnu::always_inline]] static inline Ints ZeroInts() { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static inline Ints StartOf(const int32_t* p) { return _mm512_set1_epi32(*p); }
  template <int kBits>
  [[gnu::always_inline]] static inline Ints ShiftLeft(Ints v) {
    return _mm512_slli_epi32(v, kBits);
  }
};

}  // namespace

}  // namespace moestro::avx512
