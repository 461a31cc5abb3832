// The FP8 GEMV kernels of the paper on cloud-grade SLOs for local MoE, section 3.4, written from its description, for
// comparison with the project's own kernel. AVX-512 BF16 only: the caller must check the CPU first. Plain data only.
//
// y[n] = sum_k W[n, k] * x[k] for rows [row_begin, row_end) (multiples of kPaperTileRows). w: E4M3, row-major [rows,
// cols]; scales: F32 [rows / 128, cols / 128]; x: BF16. cols is a multiple of 128. Subnormal weights count as zero,
// because vdpbf16ps flushes their expansion.
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

// Figure 8: expands 16 weights at a time to F32, multiplies by scale and exponent correction, rounds to BF16, then
// vdpbf16ps.
void PaperStandardGemv(const PaperGemv& gemv, int64_t row_begin, int64_t row_end);

// Figures 9 and 10: expands 32 weights at a time to BF16 by shifts, then vdpbf16ps. Applies scale and exponent
// correction once per 128-input block. Tiles of several rows share the activations.
void PaperPostScalingGemv(const PaperGemv& gemv, int64_t row_begin, int64_t row_end);

// Not the paper's: as above with an expansion of three instructions instead of six, the fastest known to us on
// row-major weights. It also drops subnormals and treats NaN as a number.
void SignExtendingGemv(const PaperGemv& gemv, int64_t row_begin, int64_t row_end);

}  // namespace moestro::bench
