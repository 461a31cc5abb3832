// Side work during a block's dot products: expanding and prefetching for the next block. Without it, the first of
// several register blocks would wait for memory, and the others would leave it idle. Some register blocks carry the
// work, spread evenly over all; each of their steps does the same amount.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/avx512_bf16/fp8.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::avx512_bf16 {

// Whether register block i of n is one of `carriers` evenly spread blocks.
static inline bool IsCarrier(int64_t i, int64_t n, int64_t carriers) {
  return (i + 1) * carriers / n != i * carriers / n;
}

// Expands one FP8 tile into a BF16 panel.
[[gnu::always_inline]] static inline void ExpandTile(const uint8_t* tile, uint8_t* panel) {
  Prefetch(tile + kPrefetchBytes);
  __m512i w01, w23;
  Expand(MakeFp8Expander(), tile, &w01, &w23);
  _mm512_store_si512(panel, w01);
  _mm512_store_si512(panel + kStepBytes, w23);
}

// Expands a whole block at once, without other work.
static inline void ExpandPanel(const uint8_t* tiles, int64_t quads, uint8_t* panel) {
  for (int64_t quad = 0; quad < quads; ++quad) {
    for (int v = 0; v < kVectors; ++v)
      ExpandTile(tiles + quad * kStepBytes + v * 64, panel + quad * 2 * kStepBytes + v * 64);
  }
}

namespace {  // for internal linkage of the members

// Expands FP8 tiles into the panel of the next block while this block is in use.
template <int kTilesPerStep>
class PanelExpansion {
 public:
  static constexpr int64_t kCarriers = kVectors / kTilesPerStep;  // carriers needed to expand a block of equal length

  PanelExpansion(const uint8_t* tiles, uint8_t* panel) : tiles_(tiles), panel_(panel) {}

  [[gnu::always_inline]] inline void Step(int i) {
#pragma GCC unroll 4
    for (int tile = i * kTilesPerStep; tile < (i + 1) * kTilesPerStep; ++tile) {
      ExpandTile(tiles_ + tile * 64, panel_ + tile / kVectors * 2 * kStepBytes + tile % kVectors * 64);
    }
  }
  [[gnu::always_inline]] inline void Advance() {
    tiles_ += kUnrolledQuads * kTilesPerStep * 64;
    panel_ += kUnrolledQuads * kTilesPerStep * 128;
  }

 private:
  static_assert(kUnrolledQuads * kTilesPerStep % kVectors == 0);
  const uint8_t* tiles_;
  uint8_t* panel_;
};

// Prefetches the next block of BF16 weights.
class BlockPrefetch {
 public:
  static constexpr int64_t kCarriers = 2;

  explicit BlockPrefetch(const uint8_t* block) : next_(block) {}

  [[gnu::always_inline]] inline void Step(int i) {
#pragma GCC unroll 4
    for (int line = 0; line < kLinesPerStep; ++line) Prefetch(next_ + (i * kLinesPerStep + line) * 64);
  }
  [[gnu::always_inline]] inline void Advance() { next_ += kUnrolledQuads * kLinesPerStep * 64; }

 private:
  static constexpr int kLinesPerStep = 2 * kVectors / kCarriers;
  const uint8_t* next_;
};

}  // namespace

}  // namespace moestro::avx512_bf16
