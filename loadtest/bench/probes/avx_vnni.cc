#include <immintrin.h>

#include "loadtest/bench/probes/probes.h"

namespace moestro::bench {

// As many chains as those of the 256-bit FMA.
constexpr int kByteChains = 12;

static void DotBytes(int64_t rounds) {
  __m256i a = _mm256_set1_epi8(1), b = a;
  __asm__ volatile("" : "+x"(a), "+x"(b));  // hides that every chain computes the same
  __m256i sums[kByteChains];
#pragma GCC unroll 12
  for (int i = 0; i < kByteChains; ++i) sums[i] = _mm256_setzero_si256();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kByteChains; ++i) {
      sums[i] = _mm256_dpbusd_epi32(sums[i], a, b);
      __asm__ volatile("" : "+x"(sums[i]));
    }
  }
}

extern const Probes kProbesAvxVnni = {.isa = "avx_vnni",
                                      .read = ReadAvx2,
                                      .copy = CopyAvx2,
                                      .dot = DotBytes,
                                      .dot_operations = kByteChains * 64.0,
                                      .dot_instruction = "256-bit vpdpbusd"};

}  // namespace moestro::bench
