#include <immintrin.h>

#include "loadtest/bench/probes/probes.h"

namespace moestro::bench {

static inline __m256i Load(const uint8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

template <_mm_hint kHint>
static inline void Prefetch128(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), kHint);
  _mm_prefetch(reinterpret_cast<const char*>(p + 64), kHint);
}

uint64_t ReadAvx2(const uint8_t* data, int64_t bytes, const ReadAhead& ahead) {
  const ReadAhead by = ahead;  // in registers
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (int64_t i = 0; i < bytes; i += 128) {
    if (by.l1 != 0) Prefetch128<_MM_HINT_T0>(data + i + by.l1);
    if (by.l2 != 0) Prefetch128<_MM_HINT_T1>(data + i + by.l2);
    a = _mm256_xor_si256(a, Load(data + i));
    b = _mm256_xor_si256(b, Load(data + i + 32));
    c = _mm256_xor_si256(c, Load(data + i + 64));
    d = _mm256_xor_si256(d, Load(data + i + 96));
  }
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
  const __m128i half = _mm_xor_si128(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_xor_si128(half, _mm_unpackhi_epi64(half, half))));
}

void CopyAvx2(uint8_t* to, const uint8_t* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 128) {
    for (int64_t part = 0; part < 128; part += 32) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + part), Load(from + i + part));
    }
  }
  _mm_sfence();
}

// Two instructions a cycle with a latency of up to 5 cycles need 10 chains; 16 registers hold 12 and the operands.
constexpr int kChains = 12;

static void Dot(int64_t rounds) {
  __m256 half = _mm256_set1_ps(0.5f);
  __asm__ volatile("" : "+x"(half));  // hides the value from the compiler
  __m256 sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_setzero_ps();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm256_fmadd_ps(half, half, sums[i]);
      __asm__ volatile("" : "+x"(sums[i]));
    }
  }
}

extern const Probes kProbesAvx2 = {.isa = "avx2",
                                   .read = ReadAvx2,
                                   .copy = CopyAvx2,
                                   .dot = Dot,
                                   .dot_operations = kChains * 16.0,
                                   .dot_instruction = "256-bit vfmadd231ps"};

}  // namespace moestro::bench
