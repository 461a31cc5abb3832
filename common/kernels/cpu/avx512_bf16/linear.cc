// Group by group of 64 rows, block by block of 128 inputs, a few tokens at a time (linear_block.h). FP8 weights are
// expanded on the fly for few tokens; for more, a block is expanded once into a 16 KiB BF16 panel and used for all.
#include "common/kernels/cpu/avx512_bf16/kernels.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"

namespace moestro::avx512_bf16 {

static_assert(kGroupRows == kRowGroup && kVectors * kTileRows == kRowGroup, "the packed layout");

// Tokens of a register block: 6 x 4 accumulators leave 8 of 32 registers for weights, inputs and FP8 tables.
constexpr int64_t kBlockTokens = 6;
// Tokens whose totals are kept at once (whole register blocks): 66 KiB of stack, which stays in L2 beside the panel.
constexpr int64_t kBatchTokens = 44 * kBlockTokens;

static inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

struct Scratch {
  alignas(64) float totals[kBatchTokens * kGroupRows];
  alignas(64) uint8_t panels[2][kScaleBlock * kRowGroup * 2];
};

// One block for any number of tokens, in register blocks of about equal size (8 tokens are 4 + 4, not 6 + 2: the fewer
// tokens share an expanded tile, the dearer it is).
template <typename Weights, typename SideWork>
static inline void AddBlockTokens(const Weights& weights, const Block& block, const uint16_t* x, int64_t x_stride,
                                  int64_t tokens, const Totals& totals, SideWork side) {
  const int64_t register_blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  const int64_t size = (tokens + register_blocks - 1) / register_blocks;
  for (int64_t t = 0; t < tokens; t += size) {
    const uint16_t* xt = x + t * x_stride;
    const Totals total{totals.data + t * totals.stride, totals.stride, totals.first};
    side.Refill((tokens - t + size - 1) / size);
    switch (Min(size, tokens - t)) {
      case 1:
        AddBlock<1>(weights, block, xt, x_stride, total, side);
        break;
      case 2:
        AddBlock<2>(weights, block, xt, x_stride, total, side);
        break;
      case 3:
        AddBlock<3>(weights, block, xt, x_stride, total, side);
        break;
      case 4:
        AddBlock<4>(weights, block, xt, x_stride, total, side);
        break;
      case 5:
        AddBlock<5>(weights, block, xt, x_stride, total, side);
        break;
      default:
        static_assert(kBlockTokens == 6);
        AddBlock<6>(weights, block, xt, x_stride, total, side);
        break;
    }
  }
}

constexpr int64_t kSteps = kScaleBlock / 4;  // of a register block, but for the last inputs of a row

// The shares of side work of the register blocks that read one block: evenly spread, memory and the execution ports
// that dot products leave idle are busy all the time.
class Shares {
 public:
  Shares(int64_t units, int64_t units_per_step) : left_(units), per_step_(units_per_step) {}

  // Before each register block: how many are still to come, this one included.
  [[gnu::always_inline]] inline void Refill(int64_t blocks) {
    const int64_t here = Min(left_, (left_ + blocks * per_step_ - 1) / (blocks * per_step_) * per_step_);
    left_ -= here;
    steps_ = (here + per_step_ - 1) / per_step_;
  }
  // Whether this register block has a step to do, which is taken.
  [[gnu::always_inline]] inline bool Take() { return steps_-- > 0; }

 private:
  int64_t left_;
  int64_t per_step_;
  int64_t steps_ = 0;
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

static inline void ExpandNow(PanelExpansion<kVectors> expansion) {
  expansion.Refill(1);
  while (expansion.Step()) {
  }
}

static inline int64_t PrefetchDistance(const PackedMatrix& w) {
  return w.prefetch == nullptr ? kPrefetchBytes : w.prefetch - w.data;
}

// The rows [row, min(row + 64, row_end)) for at most kBatchTokens tokens.
static inline void LinearGroup(const PackedMatrix& w, const Fp8Weights& fp8, const uint16_t* x, int64_t x_stride,
                               int64_t tokens, float* y, int64_t y_stride, int64_t row, int64_t row_end,
                               Scratch& scratch) {
  const bool is_fp8 = w.dtype == DType::kF8E4M3;
  const int64_t column_bytes = kRowGroup * (is_fp8 ? 1 : 2);
  const uint8_t* group = w.data + row / kRowGroup * ((w.cols + 3) / 4 * 4) * column_bytes;
  const int64_t blocks = (w.cols + kScaleBlock - 1) / kScaleBlock;
  // A single block's totals are the result and go straight to y. Those of several are kept together: rows of y may lie
  // so that they evict each other from the cache.
  const bool direct = blocks == 1 && row_end - row >= kGroupRows;
  Totals totals = direct ? Totals{y + row, y_stride, true} : Totals{scratch.totals, kGroupRows, true};
  const auto block_at = [&](int64_t b) {
    const int64_t col = b * kScaleBlock;
    const int64_t cols = Min(kScaleBlock, w.cols - col);
    return Block{group + col * column_bytes, cols / 4, cols % 4,
                 is_fp8 ? w.scales[row / kScaleBlock * blocks + b] : 1.0f};
  };
  // One register block reads the weights once and expands them on the fly; of several, none has to expand and fetch
  // everything.
  const int64_t register_blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  const bool several = register_blocks > 1;
  const auto panel = [&](int64_t b) { return scratch.panels[b % 2]; };
  const auto quads_to_expand = [&](int64_t b) {
    return b == blocks ? 0 : (Min(kScaleBlock, w.cols - b * kScaleBlock) + 3) / 4;
  };
  const auto tiles = [&](int64_t b) { return group + b * kScaleBlock * column_bytes; };
  if (is_fp8 && several) ExpandNow({tiles(0), quads_to_expand(0), panel(0)});
  for (int64_t b = 0; b < blocks; ++b) {
    Block block = block_at(b);
    const uint16_t* xb = x + b * kScaleBlock;
    if (is_fp8 && several) {
      block.weights = panel(b);
      const int64_t next = b + 1;
      if (register_blocks * kSteps >= kScaleBlock) {
        AddBlockTokens(Bf16Weights<false>(), block, xb, x_stride, tokens, totals,
                       PanelExpansion<1>(tiles(next), quads_to_expand(next), panel(next)));
      } else {
        AddBlockTokens(Bf16Weights<false>(), block, xb, x_stride, tokens, totals,
                       PanelExpansion<2>(tiles(next), quads_to_expand(next), panel(next)));
      }
    } else if (is_fp8) {
      AddBlockTokens(fp8, block, xb, x_stride, tokens, totals, NoSideWork());
    } else if (several) {
      const int64_t distance = w.prefetch == nullptr ? kScaleBlock * column_bytes : w.prefetch - w.data;
      AddBlockTokens(Bf16Weights<false>(), block, xb, x_stride, tokens, totals,
                     BlockPrefetch(block.weights + distance, (block.quads + (block.tail != 0)) * 2 * kStepBytes));
    } else {
      AddBlockTokens(Bf16Weights<true>{PrefetchDistance(w)}, block, xb, x_stride, tokens, totals, NoSideWork());
    }
    totals.first = false;
  }
  if (direct) return;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < Min(kGroupRows, row_end - row); r += 16) {
      const int64_t lanes = Min(16, row_end - row - r);
      _mm512_mask_storeu_ps(y + t * y_stride + row + r, static_cast<__mmask16>((1u << lanes) - 1),
                            _mm512_load_ps(scratch.totals + t * kGroupRows + r));
    }
  }
}

void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
            int64_t row_begin, int64_t row_end) {
  const Fp8Weights fp8;
  Scratch scratch;
  for (int64_t row = row_begin; row < row_end; row += kRowGroup) {
    for (int64_t t = 0; t < tokens; t += kBatchTokens) {
      LinearGroup(w, fp8, x + t * x_stride, x_stride, Min(kBatchTokens, tokens - t), y + t * y_stride, y_stride, row,
                  row_end, scratch);
    }
  }
}

}  // namespace moestro::avx512_bf16
