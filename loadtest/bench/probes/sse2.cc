#include <emmintrin.h>

#include "loadtest/bench/probes/probes.h"

namespace moestro::bench {
namespace {

__m128i Load(const uint8_t* p) { return _mm_load_si128(reinterpret_cast<const __m128i*>(p)); }

uint64_t Read(const uint8_t* data, int64_t bytes, const ReadAhead& ahead) {
  const ReadAhead by = ahead;  // in registers
  __m128i a = _mm_setzero_si128(), b = a, c = a, d = a;
  for (int64_t i = 0; i < bytes; i += 64) {
    if (by.l1 != 0) _mm_prefetch(reinterpret_cast<const char*>(data + i + by.l1), _MM_HINT_T0);
    if (by.l2 != 0) _mm_prefetch(reinterpret_cast<const char*>(data + i + by.l2), _MM_HINT_T1);
    a = _mm_xor_si128(a, Load(data + i));
    b = _mm_xor_si128(b, Load(data + i + 16));
    c = _mm_xor_si128(c, Load(data + i + 32));
    d = _mm_xor_si128(d, Load(data + i + 48));
  }
  const __m128i all = _mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_xor_si128(all, _mm_unpackhi_epi64(all, all))));
}

void Copy(uint8_t* to, const uint8_t* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 16) _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), Load(from + i));
  _mm_sfence();
}

// A multiplication and an addition are two instructions here; 12 chains hide the latency of both.
constexpr int kChains = 12;

void Dot(int64_t rounds) {
  __m128 half = _mm_set1_ps(0.5f);
  __asm__ volatile("" : "+x"(half));  // hides the value from the compiler
  __m128 sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm_setzero_ps();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm_add_ps(sums[i], _mm_mul_ps(half, half));
      __asm__ volatile("" : "+x"(sums[i]), "+x"(half));  // or the compiler would compute the product once
    }
  }
}

}  // namespace

extern const Probes kProbesSse2 = {.isa = "sse2",
                                   .read = Read,
                                   .copy = Copy,
                                   .dot = Dot,
                                   .dot_operations = kChains * 8.0,
                                   .dot_instruction = "mulps + addps"};

}  // namespace moestro::bench
