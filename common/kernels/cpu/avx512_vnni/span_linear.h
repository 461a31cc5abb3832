// Formats of blocks times coded spans by vpdpbusd: unsigned codes of weights times signed codes of inputs
// (span_panel.h). Few tokens take codes where they lie. For more, the first ones do, and leave the bytes in a panel
// that the others use. Meanwhile the next codes come from memory.
//
// `Isa` is VnniSpans, or a faster way to expand codes.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/avx512/block_header.h"
#include "common/kernels/cpu/avx512/linear_pass.h"
#include "common/kernels/cpu/avx512_vnni/span_panel.h"
#include "common/kernels/cpu/linear_spans.h"

namespace moestro::avx512_vnni {

using avx512::ExpandHeader;
using avx512::HeaderFetch;
using avx512::kBatchTokens;
using avx512::kPassGroups;
using avx512::Min;

// Tokens that take codes where they lie.
constexpr int64_t kFewSpanTokens = 4;
// Tokens of a register block: 12 sums and 12 parts leave 8 of 32 registers for bytes, scales and inputs. With 4, whose
// parts are in memory, 128 tokens have 0.66 instead of 0.79 of the rate of vpdpbusd.
constexpr int64_t kSpanBlockTokens = 3;
constexpr int64_t kChunkSpans = 2;  // whose codes and panels all tokens use in turn

struct SpanScratch {
  alignas(64) float totals[kPassGroups][kBatchTokens * kRowGroup];
  alignas(64) uint8_t panels[kChunkSpans][kCodeSpan * kRowGroup];
  SpanScales scales[kChunkSpans];
};

namespace {  // for internal linkage of the members

// At most kPassGroups row groups for more than kFewSpanTokens and at most kBatchTokens tokens.
template <typename Isa, DType kType>
class SpanPass {
 public:
  SpanPass(const PackedMatrix& w, SpanScratch& scratch, int64_t row, int64_t row_end)
      : w_(w), scratch_(scratch), row_(row), rows_(Min(kPassGroups * kRowGroup, row_end - row)) {}

  // y starts at the pass's first row.
  void Run(const spans::CodedTokens& x, int64_t tokens, float* y, int64_t y_stride, bool add) {
    for (int64_t g = 0; g < groups_; ++g) {
      for (int64_t i = 0; i < tokens * kRowGroup; i += 16) _mm512_store_ps(scratch_.totals[g] + i, _mm512_setzero_ps());
    }
    for (Place at{0, 0}; at.span < spans_; at = After(at)) AddChunk(at, x, tokens);
    avx512::StoreTotals(scratch_.totals, rows_, tokens, y, y_stride, add);
  }

 private:
  static constexpr BlockFormat kFormat = FormatOf(kType);
  static constexpr int64_t kBlockSpans = kFormat.block / kCodeSpan;
  static constexpr int64_t kSpanBytes = kCodeSpan * kRowGroup * kFormat.code_bits / 8;
  static constexpr int64_t kChunkBytes = kChunkSpans * kCodeSpan / kFormat.block * kFormat.packed_block_bytes();
  // Lines fetched beside each quad, so that the fewest tokens, two register blocks, fetch a chunk.
  static constexpr int64_t kFewestSteps = 2 * kChunkSpans * kCodeSpan / 4;
  static constexpr int kMostLines = (kChunkBytes / 64 + kFewestSteps - 1) / kFewestSteps;

  // A chunk of one of the pass's groups.
  struct Place {
    int64_t span;
    int64_t group;
  };
  Place After(Place at) const {
    return at.group + 1 < groups_ ? Place{at.span, at.group + 1} : Place{at.span + kChunkSpans, 0};
  }
  // The packed block with this span; chunks are whole blocks.
  const uint8_t* Header(Place at) const {
    return w_.data + (row_ / kRowGroup + at.group) * PackedGroupBytes(kType, w_.cols) +
           at.span / kBlockSpans * kFormat.packed_block_bytes();
  }

  void AddChunk(Place at, const spans::CodedTokens& x, int64_t tokens) {
    const int64_t count = Min(kChunkSpans, spans_ - at.span);
    const uint8_t* codes[kChunkSpans];
    for (int64_t s = 0; s < count; ++s) {
      const uint8_t* const header = Header({at.span + s, at.group});
      const int64_t of_block = (at.span + s) % kBlockSpans;
      ExpandHeader<kType, HeaderFetch::kNone>(header, of_block, &scratch_.scales[s]);
      codes[s] = header + kFormat.header_bytes + of_block * kSpanBytes;
    }
    const Place next = After(at);
    const int64_t blocks = (tokens + kSpanBlockTokens - 1) / kSpanBlockTokens;
    const uint8_t* ahead = next.span < spans_ ? Header(next) : nullptr;
    const uint8_t* const end = next.span < spans_ ? ahead + kChunkBytes : nullptr;
    const bool one_line = blocks * QuadFetches<1>::kSpanBytes * kChunkSpans >= kChunkBytes;
    avx512::ForRegisterBlocks<kSpanBlockTokens>(
        tokens, blocks, [&](int64_t t, auto size, int64_t i) __attribute__((always_inline)) {
          for (int64_t s = 0; s < count; ++s) {
            const auto add = [&]<int kLines>() __attribute__((always_inline)) {
              const spans::CodedTokens part{x.rows + t * x.stride, x.stride};
              float* const totals = scratch_.totals[at.group] + t * kRowGroup;
              if (i > 0) {
                AddSpan<kType, size.value>(PanelBytes<kType, kLines>(scratch_.panels[s], ahead), scratch_.scales[s],
                                           part, at.span + s, totals);
              } else if constexpr (size.value == kSpanBlockTokens) {
                AddSpan<kType, size.value>(CodesToPanel<Isa, kType, kLines>(codes[s], scratch_.panels[s], ahead),
                                           scratch_.scales[s], part, at.span + s, totals);
              }
              ahead += QuadFetches<kLines>::kSpanBytes;
            };
            if constexpr (size.value > 1) {  // as more than kFewSpanTokens are divided
              if (ahead >= end) {
                add.template operator()<0>();
              } else if (one_line) {
                add.template operator()<1>();
              } else {
                add.template operator()<kMostLines>();
              }
            }
          }
        });
  }

  const PackedMatrix& w_;
  SpanScratch& scratch_;
  int64_t row_;
  int64_t rows_;
  int64_t groups_ = (rows_ + kRowGroup - 1) / kRowGroup;
  int64_t spans_ = (w_.cols + kCodeSpan - 1) / kCodeSpan;
};

template <typename Isa, DType kType>
void MultiplyMany(const PackedMatrix& w, const spans::CodedTokens& x, int64_t tokens, float* y, int64_t y_stride,
                  int64_t row_begin, int64_t row_end, bool add) {
  SpanScratch scratch;
  for (int64_t row = row_begin; row < row_end; row += kPassGroups * kRowGroup) {
    SpanPass<Isa, kType> pass(w, scratch, row, row_end);
    const int64_t batches = (tokens + kBatchTokens - 1) / kBatchTokens;
    int64_t t = 0;
    for (int64_t i = 0; i < batches; ++i) {  // of nearly equal sizes, so that none has few tokens
      const int64_t size = tokens / batches + (i < tokens % batches ? 1 : 0);
      pass.Run({x.rows + t * x.stride, x.stride}, size, y + t * y_stride + (row - row_begin), y_stride, add);
      t += size;
    }
  }
}

// A group's totals of a few tokens, [kTokens][64 rows], span by span.
template <typename Isa, DType kType, int kTokens>
void MultiplyFew(const PackedMatrix& w, const spans::CodedTokens& x, float* y, int64_t y_stride, int64_t row_begin,
                 int64_t row_end, bool add) {
  constexpr BlockFormat kFormat = FormatOf(kType);
  constexpr int64_t kBlockSpans = kFormat.block / kCodeSpan;
  constexpr int64_t kSpanBytes = kCodeSpan * kRowGroup * kFormat.code_bits / 8;
  constexpr HeaderFetch kFetch = FetchesFar<kType>(kTokens) ? HeaderFetch::kFar : HeaderFetch::kNear;
  const int64_t group_bytes = PackedGroupBytes(kType, w.cols);
  SpanScales scales;
  for (int64_t row = row_begin; row < row_end; row += kRowGroup) {
    alignas(64) float totals[kTokens * kRowGroup] = {};
    const uint8_t* const group = w.data + row / kRowGroup * group_bytes;
    for (int64_t span = 0; span < (w.cols + kCodeSpan - 1) / kCodeSpan; ++span) {
      const int64_t of_block = span % kBlockSpans;
      const uint8_t* const header = group + span / kBlockSpans * kFormat.packed_block_bytes();
      ExpandHeader<kType, kFetch>(header, of_block, &scales);
      AddSpan<kType, kTokens>(CodesInPlace<Isa, kType>(header + kFormat.header_bytes + of_block * kSpanBytes), scales,
                              x, span, totals);
    }
    spans::StoreTotals(totals, spans::Min(kRowGroup, row_end - row), kTokens, y + (row - row_begin), y_stride, add);
  }
}

}  // namespace

// `linear_coded` of formats of blocks.
template <typename Isa>
static inline void LinearSpans(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                               int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  WithFormat(w.dtype, [&]<DType kType>() {
    const spans::CodedTokens rows{x, x_stride};
    switch (tokens) {
      case 1:
        return MultiplyFew<Isa, kType, 1>(w, rows, y, y_stride, row_begin, row_end, add);
      case 2:
        return MultiplyFew<Isa, kType, 2>(w, rows, y, y_stride, row_begin, row_end, add);
      case 3:
        return MultiplyFew<Isa, kType, 3>(w, rows, y, y_stride, row_begin, row_end, add);
      case kFewSpanTokens:
        return MultiplyFew<Isa, kType, kFewSpanTokens>(w, rows, y, y_stride, row_begin, row_end, add);
      default:
        return MultiplyMany<Isa, kType>(w, rows, tokens, y, y_stride, row_begin, row_end, add);
    }
  });
}

}  // namespace moestro::avx512_vnni
