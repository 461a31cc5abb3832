// Formats of blocks, by spans of 128 inputs, a few groups of 64 rows in sequence (block_panel.h). Few tokens take codes
// where they lie, expanded on the fly. For more, a span's codes are expanded once into a 16 KiB BF16 panel that all
// tokens use, while the previous panel is in use.
#include "common/kernels/cpu/avx512/linear_pass.h"
#include "common/kernels/cpu/avx512_bf16/block_panel.h"
#include "common/kernels/cpu/avx512_bf16/block_weights.h"
#include "common/kernels/cpu/avx512_bf16/kernels.h"
#include "common/kernels/cpu/avx512_bf16/side_work.h"

namespace moestro::avx512_bf16 {

using avx512::ForRegisterBlocks;
using avx512::kBatchTokens;
using avx512::kPassGroups;
using avx512::Min;
using avx512::StoreTotals;

// Tokens for which codes are expanded on the fly, once for each 6. With a panel, 8 tokens are 0.5 to 0.8 times as fast.
constexpr int64_t kFewTokens = 2 * kBlockTokens;

struct BlockScratch {
  alignas(64) float totals[kPassGroups][kBatchTokens * kRowGroup];
  alignas(64) uint8_t panels[2][kSpanInputs * kRowGroup * 2];
  alignas(64) float input_sums[kBatchTokens][kSumsPerSpan];
  SpanScales scales;
};

namespace {  // for internal linkage of the members

// At most kPassGroups row groups for at most kBatchTokens tokens.
template <DType kType>
class BlockPass {
 public:
  BlockPass(const PackedMatrix& w, const Codes<kType>& source, BlockScratch& scratch, int64_t row, int64_t row_end)
      : w_(w), source_(source), scratch_(scratch), row_(row), rows_(Min(kPassGroups * kRowGroup, row_end - row)) {}

  // y starts at the pass's first row.
  void Run(const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride, bool add) {
    for (int64_t g = 0; g < groups_; ++g) {
      for (int64_t i = 0; i < tokens * kRowGroup; i += 16) _mm512_store_ps(scratch_.totals[g] + i, _mm512_setzero_ps());
    }
    const bool few = tokens <= kFewTokens;
    if (!few) Expansion({0, 0}, scratch_.panels[0]).ExpandAll(Inputs({0, 0}));
    int64_t step = 0;
    for (Place at{0, 0}; at.span < spans_; at = After(at), ++step) {
      const uint16_t* xs = x + at.span * kSpanInputs;
      ExpandHeader<kType, HeaderFetch::kFar>(Header(at), at.span % kBlockSpans, &scratch_.scales);
      if (few) {
        AddFew(at, xs, x_stride, tokens);
      } else {
        AddMany(at, xs, x_stride, tokens, step);
      }
    }
    StoreTotals(scratch_.totals, rows_, tokens, y, y_stride, add);
  }

 private:
  static constexpr BlockFormat kFormat = FormatOf(kType);
  static constexpr int kSubBlock = kFormat.sub_block;
  static constexpr int64_t kBlockSpans = kFormat.block / kSpanInputs;
  static constexpr int64_t kSpanBytes = kSpanInputs * kRowGroup * kFormat.code_bits / 8;
  // Register blocks beside which a panel is expanded, one vector a pair of inputs.
  static constexpr int64_t kCarriers = kVectors;

  // A span of one of the pass's groups.
  struct Place {
    int64_t span;
    int64_t group;
  };
  Place After(Place at) const { return at.group + 1 < groups_ ? Place{at.span, at.group + 1} : Place{at.span + 1, 0}; }

  const uint8_t* Header(Place at) const {
    return w_.data + (row_ / kRowGroup + at.group) * PackedGroupBytes(kType, w_.cols) +
           at.span / kBlockSpans * kFormat.packed_block_bytes();
  }
  CodeExpansion<kType> Expansion(Place at, uint8_t* panel) const { return {CodesAt(at), panel}; }
  const uint8_t* CodesAt(Place at) const {
    return Header(at) + kFormat.header_bytes + at.span % kBlockSpans * kSpanBytes;
  }
  int64_t Inputs(Place at) const { return Min(kSpanInputs, w_.cols - at.span * kSpanInputs); }

  // The sums of each sub-block's inputs, of `count` tokens from t on, for all groups of the pass.
  void SumSubBlocks(Place at, int64_t t, int64_t count, const uint16_t* x, int64_t x_stride) const {
    if (!kFormat.has_mins || at.group != 0) return;
    for (const int64_t end = t + count; t < end; ++t) {
      float* const sums = scratch_.input_sums[t];
      SumInputs(x + t * x_stride, Inputs(at) / 32, sums);
      if constexpr (kSubBlock == kSpanInputs) sums[0] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
  }

  SpanTokens From(Place at, int64_t t, const uint16_t* x, int64_t x_stride) const {
    return {x + t * x_stride, x_stride, scratch_.input_sums[t], scratch_.totals[at.group] + t * kRowGroup};
  }

  void AddFew(Place at, const uint16_t* x, int64_t x_stride, int64_t tokens) const {
    const int64_t sub_blocks = Inputs(at) / kSubBlock;
    ForRegisterBlocks<kBlockTokens>(
        tokens, RegisterBlocks(tokens), [&](int64_t t, auto size, int64_t) __attribute__((always_inline)) {
          SumSubBlocks(at, t, size.value, x, x_stride);
          AddCodes<kType, size.value>(source_, CodesAt(at), scratch_.scales, sub_blocks, From(at, t, x, x_stride));
        });
  }

  // Expands the panel of the next place meanwhile.
  void AddMany(Place at, const uint16_t* x, int64_t x_stride, int64_t tokens, int64_t step) {
    const uint8_t* panel = scratch_.panels[step % 2];
    const Place next = After(at);
    const int64_t next_inputs = next.span < spans_ ? Inputs(next) : 0;
    CodeExpansion<kType> expansion = Expansion(next, scratch_.panels[(step + 1) % 2]);
    const int64_t n = (tokens + kPanelTokens - 1) / kPanelTokens;
    const bool beside = next_inputs == kSpanInputs && Inputs(at) == kSpanInputs;
    const int64_t sub_blocks = Inputs(at) / kSubBlock;
    NoPanelWork nothing;
    ForRegisterBlocks<kPanelTokens>(
        tokens, n, [&](int64_t t, auto size, int64_t i) __attribute__((always_inline)) {
          if constexpr (size.value > 1) {  // as more than kFewTokens are divided
            SumSubBlocks(at, t, size.value, x, x_stride);
            const SpanTokens part = From(at, t, x, x_stride);
            if (beside && IsCarrier(i, n, kCarriers)) {
              AddPanel<kSubBlock, kFormat.has_mins, size.value>(panel, scratch_.scales, sub_blocks, part, expansion);
            } else {
              AddPanel<kSubBlock, kFormat.has_mins, size.value>(panel, scratch_.scales, sub_blocks, part, nothing);
            }
          }
        });
    if (!beside) expansion.ExpandAll(next_inputs);
  }

  const PackedMatrix& w_;
  const Codes<kType>& source_;
  BlockScratch& scratch_;
  int64_t row_;
  int64_t rows_;
  int64_t groups_ = (rows_ + kRowGroup - 1) / kRowGroup;
  int64_t spans_ = (w_.cols + kSpanInputs - 1) / kSpanInputs;
};

}  // namespace

template <DType kType>
static void MultiplyBlocks(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                           int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  const Codes<kType> source;
  BlockScratch scratch;
  // Few tokens' inputs stay in the cache anyway, so each group's weights are read sequentially.
  const int64_t pass_rows = (tokens > kFewTokens ? kPassGroups : 1) * kRowGroup;
  for (int64_t row = row_begin; row < row_end; row += pass_rows) {
    BlockPass<kType> pass(w, source, scratch, row, Min(row_end, row + pass_rows));
    for (int64_t t = 0; t < tokens; t += kBatchTokens) {
      pass.Run(x + t * x_stride, x_stride, Min(kBatchTokens, tokens - t), y + t * y_stride + (row - row_begin),
               y_stride, add);
    }
  }
}

void LinearOfBlocks(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                    int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  WithFormat(w.dtype, [&]<DType kType>() {
    MultiplyBlocks<kType>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
  });
}

}  // namespace moestro::avx512_bf16
