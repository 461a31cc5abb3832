#include <immintrin.h>

#include "loadtest/bench/probes/probes.h"

namespace moestro::bench {

template <_mm_hint kHint>
static inline void Prefetch256(const uint8_t* p) {
#pragma GCC unroll 4
  for (int line = 0; line < 256; line += 64) _mm_prefetch(reinterpret_cast<const char*>(p + line), kHint);
}

uint64_t ReadAvx512(const uint8_t* data, int64_t bytes, const ReadAhead& ahead) {
  const ReadAhead by = ahead;  // in registers
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (int64_t i = 0; i < bytes; i += 256) {
    if (by.l1 != 0) Prefetch256<_MM_HINT_T0>(data + i + by.l1);
    if (by.l2 != 0) Prefetch256<_MM_HINT_T1>(data + i + by.l2);
    a = _mm512_xor_si512(a, _mm512_load_si512(data + i));
    b = _mm512_xor_si512(b, _mm512_load_si512(data + i + 64));
    c = _mm512_xor_si512(c, _mm512_load_si512(data + i + 128));
    d = _mm512_xor_si512(d, _mm512_load_si512(data + i + 192));
  }
  const __m512i all = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
  return static_cast<uint64_t>(_mm512_reduce_or_epi64(all));
}

void CopyAvx512(uint8_t* to, const uint8_t* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int64_t line = 0; line < 256; line += 64) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i + line), _mm512_load_si512(from + i + line));
    }
  }
  _mm_sfence();
}

// Two instructions a cycle with a latency of up to 6 cycles need 12 chains. Twice as many leave a margin.
constexpr int kChains = 24;

// Hides from the compiler that every chain computes the same.
struct Operands {
  __m512 a;
  __m512 b;
};
static inline Operands MakeOperands(int bits) {
  Operands operands = {_mm512_castsi512_ps(_mm512_set1_epi32(bits)), _mm512_castsi512_ps(_mm512_set1_epi32(bits))};
  __asm__ volatile("" : "+v"(operands.a), "+v"(operands.b));
  return operands;
}

template <typename Step>
static inline void RunChains(int64_t rounds, const Operands& operands, Step step) {
  __m512 sums[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_setzero_ps();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) {
      sums[i] = step(sums[i], operands);
      __asm__ volatile("" : "+v"(sums[i]));
    }
  }
}

static void DotFma(int64_t rounds) {
  constexpr int kHalf = 0x3f000000;  // 0.5
  RunChains(rounds, MakeOperands(kHalf),
            [](__m512 sum, const Operands& operands) { return _mm512_fmadd_ps(operands.a, operands.b, sum); });
}

extern const Probes kProbesAvx512 = {.isa = "avx512",
                                     .read = ReadAvx512,
                                     .copy = CopyAvx512,
                                     .dot = DotFma,
                                     .dot_operations = kChains * 32.0,
                                     .dot_instruction = "512-bit vfmadd231ps"};

static void DotBf16(int64_t rounds) {
  constexpr int kHalves = 0x3f003f00;  // two BF16 values of 0.5
  RunChains(rounds, MakeOperands(kHalves), [](__m512 sum, const Operands& operands) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(operands.a), reinterpret_cast<__m512bh>(operands.b));
  });
}

extern const Probes kProbesAvx512Bf16 = {.isa = "avx512_bf16",
                                         .read = ReadAvx512,
                                         .copy = CopyAvx512,
                                         .dot = DotBf16,
                                         .dot_operations = kChains * 64.0,
                                         .dot_instruction = "512-bit vdpbf16ps"};

}  // namespace moestro::bench
