// The FP8 GEMV kernels of the paper on cloud-grade SLOs for local MoE, section 3.4, written from its description: what
// the project's own kernel is compared with. AVX-512 BF16 only: the caller asks the CPU first. Plain data only.
//
// y[n] = sum_k W[n, k] * x[k] for rows [row_begin, row_end) (multiples of kPaperTileRows). w: E4M3, row-major [rows,
// cols]; scales: F32 [rows / 128, cols / 128]; x: BF16. cols is a multiple of 128. Subnormal weights count as zero:
// vdpbf16ps flushes what their expansion gives.
#pragma once

#include <cstdint>

namespace moestro::bench {

inline constexpr int64_t kPaperTileRows = 4;

struct PaperGemv {
  const uint8_t* w;
  const float* scales;
  int64_t cols;
  const uint16_t* x;
  float* y;
};

// Figure 8: 16 weights at a time to F32, times scale and exponent correction, narrowed to BF16, then vdpbf16ps.
void PaperStandardGemv(const PaperGemv& gemv, int64_t row_begin, int64_t row_end);

// Figures 9 and 10: 32 weights at a time to BF16 by shifts, vdpbf16ps, scale and exponent correction once for each
// 128-input block; tiles of several rows share the activations.
void PaperPostScalingGemv(const PaperGemv& gemv, int64_t row_begin, int64_t row_end);

// Not the paper's: the same with an expansion of three instructions instead of six, the fastest that we know of on
// row-major weights. It, too, drops subnormals and takes NaN for a number.
void SignExtendingGemv(const PaperGemv& gemv, int64_t row_begin, int64_t row_end);

}  // namespace moestro::bench
