#include <immintrin.h>

#include "loadtest/bench/probes/probes.h"

namespace moestro::bench {

// As many chains as those of vdpbf16ps.
constexpr int kByteChains = 24;

static void DotBytes(int64_t rounds) {
  __m512i a = _mm512_set1_epi8(1), b = a;
  __asm__ volatile("" : "+v"(a), "+v"(b));  // hides that every chain computes the same
  __m512i sums[kByteChains];
#pragma GCC unroll 24
  for (int i = 0; i < kByteChains; ++i) sums[i] = _mm512_setzero_si512();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kByteChains; ++i) {
      sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
      __asm__ volatile("" : "+v"(sums[i]));
    }
  }
}

extern const Probes kProbesAvx512Vnni = {.isa = "avx512_vnni",
                                         .read = ReadAvx512,
                                         .copy = CopyAvx512,
                                         .dot = DotBytes,
                                         .dot_operations = kByteChains * 128.0,
                                         .dot_instruction = "512-bit vpdpbusd"};

}  // namespace moestro::bench
