// Group by group of 64 rows, block by block of 128 inputs, a few tokens at a time (linear_block.h). FP8 weights are
// expanded on the fly for few tokens; for more, a block is expanded once into a 16 KiB BF16 panel and used for all.
#include "common/kernels/cpu/avx512_bf16/kernels.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"

namespace moestro::avx512_bf16 {

static_assert(kGroupRows == kRowGroup && kVectors * kTileRows == kRowGroup, "the packed layout");

// Tokens of a register block: 6 x 4 accumulators leave 8 of 32 registers for weights, inputs and FP8 tables.
constexpr int64_t kBlockTokens = 6;
// Up to here expanding FP8 weights anew for every register block is cheaper than writing and reading back a panel.
constexpr int64_t kDirectTokens = 32;
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

// Expands FP8 tiles into a BF16 panel, one tile a step.
class PanelExpansion {
 public:
  PanelExpansion(const uint8_t* tiles, int64_t quads, uint8_t* panel)
      : tile_(tiles), panel_(panel), left_(quads * kVectors) {}

  // Spreads what is left over that many blocks of steps.
  [[gnu::always_inline]] inline void Refill(int64_t blocks) { steps_ = (left_ + blocks - 1) / blocks; }

  [[gnu::always_inline]] inline bool Step() {
    if (steps_ == 0) return false;
    --steps_;
    --left_;
    Prefetch(tile_ + kPrefetchBytes);
    __m512i w01, w23;
    Expand(MakeFp8Expander(), tile_, &w01, &w23);
    _mm512_store_si512(panel_, w01);
    _mm512_store_si512(panel_ + kStepBytes, w23);
    tile_ += 64;
    panel_ += left_ % kVectors == 0 ? kStepBytes + 64 : 64;
    return true;
  }

 private:
  const uint8_t* tile_;
  uint8_t* panel_;
  int64_t left_;
  int64_t steps_ = 0;
};

static inline void ExpandNow(PanelExpansion expansion) {
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
  const auto expansion_of = [&](int64_t b) {
    if (b == blocks) return PanelExpansion(nullptr, 0, nullptr);
    const Block block = block_at(b);
    return PanelExpansion(block.weights, block.quads + (block.tail != 0), scratch.panels[b % 2]);
  };
  const bool expand = is_fp8 && tokens > kDirectTokens;
  if (expand) ExpandNow(expansion_of(0));
  for (int64_t b = 0; b < blocks; ++b) {
    Block block = block_at(b);
    const uint16_t* xb = x + b * kScaleBlock;
    if (expand) {
      block.weights = scratch.panels[b % 2];
      AddBlockTokens(Bf16Weights<false>(), block, xb, x_stride, tokens, totals, expansion_of(b + 1));
    } else if (is_fp8) {
      AddBlockTokens(fp8, block, xb, x_stride, tokens, totals, NoSideWork());
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
