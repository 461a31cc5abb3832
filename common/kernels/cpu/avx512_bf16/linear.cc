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
  alignas(64) uint8_t panel[kScaleBlock * kRowGroup * 2];
};

// One block for any number of tokens, in register blocks of about equal size (8 tokens are 4 + 4, not 6 + 2: the fewer
// tokens share an expanded tile, the dearer it is).
template <typename Weights>
static inline void AddBlockTokens(const Weights& weights, const Block& block, const uint16_t* x, int64_t x_stride,
                                  int64_t tokens, const Totals& totals) {
  const int64_t register_blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  const int64_t size = (tokens + register_blocks - 1) / register_blocks;
  for (int64_t t = 0; t < tokens; t += size) {
    const uint16_t* xt = x + t * x_stride;
    const Totals total{totals.data + t * totals.stride, totals.stride, totals.first};
    switch (Min(size, tokens - t)) {
      case 1:
        AddBlock<1>(weights, block, xt, x_stride, total);
        break;
      case 2:
        AddBlock<2>(weights, block, xt, x_stride, total);
        break;
      case 3:
        AddBlock<3>(weights, block, xt, x_stride, total);
        break;
      case 4:
        AddBlock<4>(weights, block, xt, x_stride, total);
        break;
      case 5:
        AddBlock<5>(weights, block, xt, x_stride, total);
        break;
      default:
        static_assert(kBlockTokens == 6);
        AddBlock<6>(weights, block, xt, x_stride, total);
        break;
    }
  }
}

static inline void ExpandPanel(const Fp8Weights& weights, const uint8_t* tiles, int64_t quads, uint8_t* panel) {
  for (int64_t quad = 0; quad < quads; ++quad, tiles += kStepBytes, panel += 2 * kStepBytes) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Prefetch(tiles + v * 64 + kPrefetchBytes);
      __m512i w01, w23;
      Expand(weights.expander, tiles + v * 64, &w01, &w23);
      _mm512_store_si512(panel + v * 64, w01);
      _mm512_store_si512(panel + kStepBytes + v * 64, w23);
    }
  }
}

static inline void AddFp8Block(const Fp8Weights& weights, const Block& block, const uint16_t* x, int64_t x_stride,
                               int64_t tokens, const Totals& totals, uint8_t* panel_room) {
  if (tokens <= kDirectTokens) {
    AddBlockTokens(weights, block, x, x_stride, tokens, totals);
    return;
  }
  ExpandPanel(weights, block.weights, block.quads + (block.tail != 0), panel_room);
  Block panel = block;
  panel.weights = panel_room;
  AddBlockTokens(Bf16Weights<false>(), panel, x, x_stride, tokens, totals);
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
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t col = b * kScaleBlock;
    const int64_t cols = Min(kScaleBlock, w.cols - col);
    Block block{group + col * column_bytes, cols / 4, cols % 4, 1.0f};
    if (is_fp8) {
      block.scale = w.scales[row / kScaleBlock * blocks + b];
      AddFp8Block(fp8, block, x + col, x_stride, tokens, totals, scratch.panel);
    } else {
      AddBlockTokens(Bf16Weights<true>{PrefetchDistance(w)}, block, x + col, x_stride, tokens, totals);
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
