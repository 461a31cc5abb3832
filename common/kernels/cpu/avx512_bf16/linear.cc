// Blocks of 128 inputs, a few groups of 64 rows in sequence, a few tokens at a time (linear_block.h). For few tokens,
// FP8 weights are expanded on the fly. For more, they are expanded once into a 16 KiB BF16 panel that all tokens use,
// while the previous panel is in use (side_work.h).
#include "common/kernels/cpu/avx512/linear_pass.h"
#include "common/kernels/cpu/avx512_bf16/fp8_gemv.h"
#include "common/kernels/cpu/avx512_bf16/kernels.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"
#include "common/kernels/cpu/avx512_bf16/side_work.h"

namespace moestro::avx512_bf16 {

using avx512::ForRegisterBlocks;
using avx512::kBatchTokens;
using avx512::kPassGroups;
using avx512::Min;
using avx512::StoreTotals;
using avx512::WithNumber;

static_assert(kGroupRows == kRowGroup && kVectors * kTileRows == kRowGroup, "the packed layout");

struct PassScratch {
  alignas(64) float totals[kPassGroups][kBatchTokens * kGroupRows];
  alignas(64) uint8_t panels[2][kScaleBlock * kRowGroup * 2];
};

static inline Totals FromToken(const Totals& totals, int64_t t) {
  return {totals.data + t * totals.stride, totals.stride, totals.first};
}

// One block for any number of tokens.
template <typename Weights>
static inline void AddBlockTokens(const Weights& weights, const Block& block, const uint16_t* x, int64_t x_stride,
                                  int64_t tokens, const Totals& totals) {
  ForRegisterBlocks<kBlockTokens>(
      tokens, RegisterBlocks(tokens), [&](int64_t t, auto size, int64_t) __attribute__((always_inline)) {
        AddBlock<size.value>(weights, block, x + t * x_stride, x_stride, FromToken(totals, t));
      });
}

// The same for a block supported by AddCachedBlock; `side` is done step by step.
template <typename SideWork>
static inline void AddCachedBlockTokens(const Block& block, const uint16_t* x, int64_t x_stride, int64_t tokens,
                                        const Totals& totals, SideWork side) {
  const int64_t n = RegisterBlocks(tokens);
  ForRegisterBlocks<kBlockTokens>(
      tokens, n, [&](int64_t t, auto size, int64_t i) __attribute__((always_inline)) {
        const uint16_t* xt = x + t * x_stride;
        if (IsCarrier(i, n, SideWork::kCarriers)) {
          AddCachedBlock<size.value>(block, xt, x_stride, FromToken(totals, t), side);
        } else {
          NoSideWork nothing;
          AddCachedBlock<size.value>(block, xt, x_stride, FromToken(totals, t), nothing);
        }
      });
}

namespace {  // otherwise members would be weak symbols, which the linker might use for baseline code

// At most kPassGroups row groups for at most kBatchTokens tokens.
class LinearPass {
 public:
  LinearPass(const PackedMatrix& w, const Fp8Weights& fp8, PassScratch& scratch, int64_t row, int64_t row_end)
      : w_(w), fp8_(fp8), scratch_(scratch), row_(row), rows_(Min(kPassGroups * kGroupRows, row_end - row)) {}

  // y starts at the pass's first row.
  void Run(const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride, bool add) {
    // Totals of a single block are the result and go directly to y. Totals of several blocks are kept in a buffer: rows
    // of y may be at addresses that evict each other from the cache. With `add`, the direct way would scale and add in
    // one rounding, the other way in two.
    const bool direct = blocks_ == 1 && rows_ % kGroupRows == 0 && !(add && is_fp8_);
    const auto totals = [&](int64_t g, int64_t b) {
      return direct ? Totals{y + g * kGroupRows, y_stride, !add} : Totals{scratch_.totals[g], kGroupRows, b == 0};
    };
    // A single register block reads the weights once and expands them on the fly.
    const int64_t register_blocks = RegisterBlocks(tokens);
    if (is_fp8_ && register_blocks > 1) ExpandPanel(Weights(0, 0), Quads(0), scratch_.panels[0]);
    int64_t b = 0;
    if (register_blocks == 1 && w_.cols >= kScaleBlock) {
      b = w_.cols / kScaleBlock;
      const int64_t block_bytes = kScaleBlock * kGroupRows * column_bytes_;
      for (int64_t g = 0; g < groups_; ++g) {
        const float* scales = is_fp8_ ? w_.scales + (row_ + g * kGroupRows) / kScaleBlock * blocks_ : nullptr;
        if (is_fp8_ && w_.cached && tokens == 1) {
          MultiplyBlocks(fp8_, Weights(0, g), scales, x, b, totals(g, 0).data);
          continue;
        }
        WithNumber<kBlockTokens>(
            tokens, [&](auto count) __attribute__((always_inline)) {
              if (is_fp8_) {
                MultiplyBlocksInOrder<count.value>(fp8_, block_bytes, Weights(0, g), scales, x, x_stride, b,
                                                   totals(g, 0));
              } else {
                MultiplyBlocksInOrder<count.value>(Bf16BlockWeights<true>{PrefetchDistance(kPrefetchBytes)},
                                                   block_bytes, Weights(0, g), scales, x, x_stride, b, totals(g, 0));
              }
            });
      }
    }
    for (; b < blocks_; ++b) {
      for (int64_t g = 0; g < groups_; ++g) {
        AddBlockOfGroup(b, g, x + b * kScaleBlock, x_stride, tokens, register_blocks, totals(g, b));
      }
    }
    if (!direct) StoreTotals(scratch_.totals, rows_, tokens, y, y_stride, add);
  }

 private:
  static constexpr int64_t Groups(int64_t rows) { return (rows + kGroupRows - 1) / kGroupRows; }

  // Tiles of group g in block b.
  const uint8_t* Weights(int64_t b, int64_t g) const {
    return w_.data + (row_ + g * kGroupRows) * column_bytes_ * PaddedCols(w_.cols) +
           b * kScaleBlock * kGroupRows * column_bytes_;
  }
  int64_t Cols(int64_t b) const { return Min(kScaleBlock, w_.cols - b * kScaleBlock); }
  int64_t Quads(int64_t b) const { return (Cols(b) + 3) / 4; }

  int64_t PrefetchDistance(int64_t in_matrix) const {
    return w_.prefetch == nullptr ? in_matrix : w_.prefetch - w_.data;
  }

  void AddBlockOfGroup(int64_t b, int64_t g, const uint16_t* x, int64_t x_stride, int64_t tokens,
                       int64_t register_blocks, const Totals& totals) {
    Block block{Weights(b, g), Cols(b) / 4, Cols(b) % 4, 1.0f};
    if (is_fp8_) block.scale = w_.scales[(row_ + g * kGroupRows) / kScaleBlock * blocks_ + b];
    if (is_fp8_ && register_blocks > 1) {
      const int64_t step = b * groups_ + g;
      block.weights = scratch_.panels[step % 2];
      const bool last_group = g + 1 == groups_;
      const int64_t next_b = last_group ? b + 1 : b;
      AddPanel(block, x, x_stride, tokens, totals,
               next_b == blocks_ ? nullptr : Weights(next_b, last_group ? 0 : g + 1),
               next_b == blocks_ ? 0 : Quads(next_b), scratch_.panels[(step + 1) % 2]);
    } else if (is_fp8_) {
      AddBlockTokens(fp8_, block, x, x_stride, tokens, totals);
    } else if (register_blocks > 1 && IsUnrollable(block)) {
      const int64_t distance = PrefetchDistance(kScaleBlock * kGroupRows * column_bytes_);
      AddCachedBlockTokens(block, x, x_stride, tokens, totals, BlockPrefetch(block.weights + distance));
    } else {
      AddBlockTokens(Bf16BlockWeights<true>{PrefetchDistance(kPrefetchBytes)}, block, x, x_stride, tokens, totals);
    }
  }

  static bool IsUnrollable(const Block& block) { return block.quads % kUnrolledQuads == 0 && block.tail == 0; }

  // An expanded block. Meanwhile, the next one of `next_quads` is expanded into next_panel.
  static void AddPanel(const Block& block, const uint16_t* x, int64_t x_stride, int64_t tokens, const Totals& totals,
                       const uint8_t* next, int64_t next_quads, uint8_t* next_panel) {
    const int64_t register_blocks = RegisterBlocks(tokens);
    if (!IsUnrollable(block)) {
      AddBlockTokens(Bf16BlockWeights<false>(), block, x, x_stride, tokens, totals);
    } else if (next_quads != block.quads) {
      AddCachedBlockTokens(block, x, x_stride, tokens, totals, NoSideWork());
    } else if (register_blocks >= PanelExpansion<1>::kCarriers) {
      AddCachedBlockTokens(block, x, x_stride, tokens, totals, PanelExpansion<1>(next, next_panel));
      return;
    } else {
      AddCachedBlockTokens(block, x, x_stride, tokens, totals, PanelExpansion<2>(next, next_panel));
      return;
    }
    ExpandPanel(next, next_quads, next_panel);
  }

  const PackedMatrix& w_;
  const Fp8Weights& fp8_;
  PassScratch& scratch_;
  int64_t row_;
  int64_t rows_;
  int64_t groups_ = Groups(rows_);
  int64_t blocks_ = (w_.cols + kScaleBlock - 1) / kScaleBlock;
  bool is_fp8_ = w_.dtype == DType::kF8E4M3;
  int64_t column_bytes_ = is_fp8_ ? 1 : 2;
};

}  // namespace

static inline void RunPasses(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                             int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  const Fp8Weights fp8;
  PassScratch scratch;
  // Few tokens' inputs stay in the cache anyway, so each group's weights are read sequentially.
  const int64_t pass_rows = (tokens > kBlockTokens ? kPassGroups : 1) * kGroupRows;
  for (int64_t row = row_begin; row < row_end; row += pass_rows) {
    LinearPass pass(w, fp8, scratch, row, Min(row_end, row + pass_rows));
    for (int64_t t = 0; t < tokens; t += kBatchTokens) {
      pass.Run(x + t * x_stride, x_stride, Min(kBatchTokens, tokens - t), y + t * y_stride + (row - row_begin),
               y_stride, add);
    }
  }
}

void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
            int64_t row_begin, int64_t row_end) {
  if (IsBlockFormat(w.dtype)) {
    return LinearOfBlocks(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/false);
  }
  RunPasses(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/false);
}

void LinearAdd(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
               int64_t row_begin, int64_t row_end) {
  if (IsBlockFormat(w.dtype)) {
    return LinearOfBlocks(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/true);
  }
  RunPasses(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/true);
}

}  // namespace moestro::avx512_bf16
