// A few tokens through whole FP8 blocks of a row group, expanded on the fly. From DRAM: block after block. One token in
// a cache: a block's four chains of vdpbf16ps mostly wait for their own results. So the second half of a block runs
// together with the first half of the next one: eight chains, with unchanged order within each. Weights are prefetched
// sequentially, but used from two places 4 KiB apart, which suits DRAM less than one place (NOTES-kernels.md).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/avx512_bf16/fp8.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"
#include "common/tensor/dtype.h"

namespace moestro::avx512_bf16 {

constexpr int64_t kHalfBlock = kScaleBlock / 2;  // inputs
constexpr int64_t kHalfBytes = kHalfBlock * kGroupRows;

// Adds half of a block, whose chains continue in `sums`; prefetches kPrefetchBytes ahead of it.
[[gnu::always_inline]] static inline void AddHalfBlock(const Fp8Weights& fp8, const uint8_t* weights, const uint16_t* x,
                                                       __m512 (&sums)[1][kVectors]) {
  for (int64_t quad = 0; quad < kHalfBlock / 4; ++quad) fp8.AddQuad<1>(weights, quad, x + 4 * quad, 0, sums);
}

// Two contiguous halves: the end of a block in `before`, the start of the next one in `behind`.
[[gnu::always_inline]] static inline void AddTwoHalfBlocks(const Fp8Weights& fp8, const uint8_t* weights,
                                                           const uint16_t* x, __m512 (&before)[1][kVectors],
                                                           __m512 (&behind)[1][kVectors]) {
  const uint8_t* next = weights + kPrefetchBytes;
  for (int64_t i = 0; i < kHalfBlock; i += 4, weights += kStepBytes, next += 2 * kStepBytes) {
    fp8.AddTiles<1>(weights, next, x + i, 0, before);
    fp8.AddTiles<1>(weights + kHalfBytes, next + kStepBytes, x + kHalfBlock + i, 0, behind);
  }
}

// totals[r] = sum of scale * chain over `blocks` (1 or more), for the 64 rows of a group. weights: the group's first
// tile; scales and x: those of its first block.
static inline void MultiplyBlocks(const Fp8Weights& fp8, const uint8_t* weights, const float* scales, const uint16_t* x,
                                  int64_t blocks, float* totals) {
  __m512 sums[1][kVectors], next_sums[1][kVectors], all[kVectors];
  ClearSums(sums);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) all[v] = _mm512_setzero_ps();
  AddHalfBlock(fp8, weights, x, sums);
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* second_half = weights + (2 * b + 1) * kHalfBytes;
    const uint16_t* second_x = x + (2 * b + 1) * kHalfBlock;
    ClearSums(next_sums);
    if (b + 1 < blocks) {
      AddTwoHalfBlocks(fp8, second_half, second_x, sums, next_sums);
    } else {
      AddHalfBlock(fp8, second_half, second_x, sums);
    }
    const __m512 scale = _mm512_set1_ps(scales[b]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      all[v] = _mm512_fmadd_ps(sums[0][v], scale, all[v]);
      sums[0][v] = next_sums[0][v];
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(totals + 16 * v, all[v]);
}

// The same for a few tokens, in the order of addresses; also of BF16 weights, without scales. Not inlined: a pass's
// choices at each block take a quarter of read bandwidth from FP8 on Zen 4, likely as fewer lines are on their way
// then.
template <int kTokens, typename Weights>
[[gnu::noinline]] static void MultiplyBlocksInOrder(const Weights& source, int64_t block_bytes, const uint8_t* weights,
                                                    const float* scales, const uint16_t* x, int64_t x_stride,
                                                    int64_t blocks, const Totals& totals) {
  const Weights w = source;  // in registers
  const Totals out = totals;
  for (int64_t b = 0; b < blocks; ++b, weights += block_bytes, x += kScaleBlock) {
    __m512 sums[kTokens][kVectors];
    ClearSums(sums);
#pragma GCC unroll 2
    for (int64_t quad = 0; quad < kScaleBlock / 4; ++quad) {
      w.template AddQuad<kTokens>(weights, quad, x + 4 * quad, x_stride, sums);
    }
    AddToTotals(sums, scales == nullptr ? 1.0f : scales[b], {out.data, out.stride, out.first && b == 0});
  }
}

}  // namespace moestro::avx512_bf16
