#include "loadtest/bench/probes/probes.h"

namespace moestro::bench {

struct alignas(64) ProbeTileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Four accumulators, enough to hide the latency, of two by two tiles that are loaded from L1 again and again. This is a
// matrix multiplication without any other cost.
static void DotTiles(int64_t rounds) {
  static const ProbeTileConfig config;
  alignas(64) uint8_t a[2048] = {}, b[2048] = {};
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
  for (int64_t round = 0; round < rounds; ++round) {
    __asm__ volatile(
        "tileloadd (%0, %2), %%tmm4\n\t"
        "tileloadd (%1, %2), %%tmm6\n\t"
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
        "tileloadd 1024(%1, %2), %%tmm7\n\t"
        "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
        "tileloadd 1024(%0, %2), %%tmm5\n\t"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
        "tdpbf16ps %%tmm7, %%tmm5, %%tmm3"
        :
        : "r"(a), "r"(b), "r"(int64_t{64})
        : "memory");
  }
  __asm__ volatile("tilerelease");
}

extern const Probes kProbesAmx = {.isa = "amx",
                                  .read = ReadAvx512,
                                  .copy = CopyAvx512,
                                  .dot = DotTiles,
                                  .dot_operations = 4 * 16 * 16 * 32 * 2.0,
                                  .dot_instruction = "tdpbf16ps"};

}  // namespace moestro::bench
