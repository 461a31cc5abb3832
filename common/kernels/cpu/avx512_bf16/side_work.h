// Work that goes on beside the dot products of a block: expanding and fetching what the next block needs. When several
// register blocks read a block, the first of them would else have to wait for memory and the others leave it idle.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/avx512_bf16/fp8.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::avx512_bf16 {

static inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

constexpr int64_t kSteps = kScaleBlock / 4;  // of a register block, but for the last inputs of a row

namespace {  // for internal linkage of the members

// The shares of side work of the register blocks that read one block: evenly spread, memory and the execution ports
// that dot products leave idle are busy all the time.
class Shares {
 public:
  // Units are done in steps of `units_per_step`.
  Shares(int64_t units, int64_t units_per_step) : left_((units + units_per_step - 1) / units_per_step) {}

  // Before each register block: how many are still to come, this one included.
  [[gnu::always_inline]] inline void Refill(int64_t blocks) { here_ = (left_ + blocks - 1) / blocks; }
  // Whether this register block has a step to do, which is taken.
  [[gnu::always_inline]] inline bool Take() {
    if (here_ == 0) return false;
    --here_;
    --left_;
    return true;
  }

 private:
  int64_t left_;  // steps
  int64_t here_ = 0;
};

// Expands FP8 tiles, whole steps of them, into a BF16 panel: that of the next block, while this one is used.
template <int kTilesPerStep>
class PanelExpansion {
 public:
  PanelExpansion(const uint8_t* tiles, int64_t quads, uint8_t* panel)
      : shares_(quads * kVectors, kTilesPerStep), tile_(tiles), panel_(panel) {}

  [[gnu::always_inline]] inline void Refill(int64_t blocks) { shares_.Refill(blocks); }
  [[gnu::always_inline]] inline bool Step() {
    if (!shares_.Take()) return false;
#pragma GCC unroll 4
    for (int i = 0; i < kTilesPerStep; ++i) {
      Prefetch(tile_ + i * 64 + kPrefetchBytes);
      __m512i w01, w23;
      Expand(MakeFp8Expander(), tile_ + i * 64, &w01, &w23);
      _mm512_store_si512(panel_ + i * 64, w01);
      _mm512_store_si512(panel_ + i * 64 + kStepBytes, w23);
    }
    tile_ += kTilesPerStep * 64;
    panel_ += kTilesPerStep * 64;
    column_ += kTilesPerStep;
    if (column_ == kVectors) {
      column_ = 0;
      panel_ += kStepBytes;
    }
    return true;
  }

 private:
  static_assert(kVectors % kTilesPerStep == 0);
  Shares shares_;
  const uint8_t* tile_;
  uint8_t* panel_;
  int column_ = 0;
};

// Fetches the next block.
class BlockPrefetch {
 public:
  BlockPrefetch(const uint8_t* block, int64_t bytes) : shares_(bytes / 64, kLinesPerStep), next_(block) {}

  [[gnu::always_inline]] inline void Refill(int64_t blocks) { shares_.Refill(blocks); }
  [[gnu::always_inline]] inline bool Step() {
    if (!shares_.Take()) return false;
#pragma GCC unroll 4
    for (int i = 0; i < kLinesPerStep; ++i) Prefetch(next_ + i * 64);
    next_ += kLinesPerStep * 64;
    return true;
  }

 private:
  static constexpr int kLinesPerStep = 4;
  Shares shares_;
  const uint8_t* next_;
};

}  // namespace

// Does what is left: short blocks do not have steps enough.
template <typename SideWork>
static inline void Finish(SideWork side) {
  side.Refill(1);
  while (side.Step()) {
  }
}

}  // namespace moestro::avx512_bf16
