// The loops of `linear_coded` for formats of blocks, for the vectors of avx2, avx_vnni and avx512: codes of 64 rows x
// 256 inputs are expanded to a panel of bytes, which all tokens use. common/kernels/cpu/kernels.h describes the
// arithmetic: sums of products are exact, and the F32 operations around them have one order, so all tables have the
// same bits.
//
// `Isa` is a struct of inlined static functions with internal linkage; besides those of span_codes.h:
//   Ints, Floats            kLanes 32-bit sums, or F32 values, one per row
//   kTokens, kVectors       the sums of so many tokens and vectors of rows are in registers together
//   Scales                  of a panel: scales and mins of up to two spans
//   ExpandScales<type>(header, span, slot, scales)   those of a span of a packed block, its first or second one, become
//                           the panel's span `slot`; spans of a block come one after the other
//   ScalesOf<type>(scales, slot), MinsOf<type>(scales, slot)   F32 [sub-blocks][64 rows], aligned
//   Prefetch(p)             a line of weights far enough behind p
//   StoreWords(p, words)
//   ZeroInts(), StartOf(p), ShiftLeft<n>(ints), ToFloat(ints)   StartOf: an integer for all lanes
//   ZeroFloats(), Broadcast(f), LoadFloats(p), StoreFloats(p, v), Fma(a, b, c)
//   AddQuads<type, tokens, quads>(panel, codes, stride, sums)   adds products of bytes and codes to
//   sums[token][vector];
//                           a panel's quads are kQuadBytes apart, tokens' codes `stride` bytes
#pragma once

#include <cstdint>

#include "common/kernels/cpu/coded_span.h"
#include "common/kernels/cpu/span_codes.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::spans {

constexpr int64_t kPanelSpans = 2;
constexpr int64_t kQuadBytes = 4 * kRowGroup;
constexpr int64_t kSpanPanelBytes = kCodeSpan * kRowGroup;
// Tokens whose totals are kept at once: 32 KiB a group.
constexpr int64_t kBatchTokens = 128;
// Groups of rows that use the same inputs in sequence, so that many tokens' inputs are read from memory once for all.
constexpr int64_t kPassGroups = 4;

static inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename Isa>
struct Scratch {
  alignas(64) float totals[kPassGroups][kBatchTokens * kRowGroup];
  alignas(64) uint8_t panel[kPanelSpans * kSpanPanelBytes];
  typename Isa::Scales scales;
};

// Tokens' rows of coded spans, `stride` bytes apart.
struct CodedTokens {
  const uint8_t* rows;
  int64_t stride;

  [[gnu::always_inline]] inline const CodedSpan& Span(int64_t token, int64_t span) const {
    return reinterpret_cast<const CodedSpan*>(rows + token * stride)[span];
  }
};

// The sum of the codes of sub-block j, negative.
template <DType kType>
[[gnu::always_inline]] static inline const int32_t* MinusSum(const CodedSpan& span, int64_t j) {
  constexpr int64_t kSubBlock = FormatOf(kType).sub_block;
  static_assert(kSubBlock == 16 || kSubBlock == 32 || kSubBlock == kCodeSpan);
  return kSubBlock == 16 ? span.minus_sums16 + j : kSubBlock == 32 ? span.minus_sums32 + j : &span.minus_sum;
}

// What a chain of products of a sub-block starts from.
template <typename Isa, DType kType>
[[gnu::always_inline]] static inline typename Isa::Ints Start(const CodedSpan& span, int64_t j) {
  constexpr int kShift = ZeroShift<Isa, kType>();
  if constexpr (kShift == kNoZero) {
    return Isa::ZeroInts();
  } else {
    return Isa::template ShiftLeft<kShift>(Isa::StartOf(MinusSum<kType>(span, j)));
  }
}

// The factor of a span's sum: the scale of its inputs.
template <DType kType>
[[gnu::always_inline]] static inline float SpanScale(const CodedSpan& span) {
  return kType == DType::kMXFP4 ? span.scale * 0.5f : span.scale;
}

// Expands the codes of a span, at `codes`, to [quads][64 rows][4 bytes].
template <typename Isa, DType kType>
static inline void ExpandSpan(const uint8_t* codes, uint8_t* panel) {
  using U = Unit<kType>;
  for (int64_t unit = 0; unit < kCodeSpan / U::kInputs; ++unit, codes += U::kStepBytes) {
#pragma GCC unroll 20
    for (int64_t line = 0; line < U::kStepBytes; line += 64) Isa::Prefetch(codes + line);
    for (int v = 0; v < kRowGroup / Isa::kLanes; ++v) {
      [&]<int... kQuad>(Numbers<kQuad...>) __attribute__((always_inline)) {
        (Isa::StoreWords(panel + kQuad * kQuadBytes + v * Isa::kLanes * 4, GetQuad<Isa, kType, kQuad>(codes, v)), ...);
      }
      (NumbersBelow<U::kQuads>());
    }
    panel += U::kQuads * kQuadBytes;
  }
}

// Adds an expanded span to the totals, [kTokens][64 rows], of a few tokens from `x` on.
template <typename Isa, DType kType, int kTokens>
static inline void AddPanel(const uint8_t* panel, const float* scales, const float* mins, const CodedTokens& x,
                            int64_t span, float* totals) {
  constexpr BlockFormat kFormat = FormatOf(kType);
  constexpr int kVectors = Isa::kVectors;
  constexpr int kQuads = kFormat.sub_block / 4;
  const CodedTokens tokens = x;  // in registers, despite writes through pointers
  for (int64_t first = 0; first < kRowGroup; first += kVectors * Isa::kLanes) {
    typename Isa::Floats parts[kTokens][kVectors];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) parts[t][v] = Isa::ZeroFloats();
    }
#pragma GCC unroll 1
    for (int64_t j = 0; j < kCodeSpan / kFormat.sub_block; ++j) {
      typename Isa::Ints sums[kTokens][kVectors];
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const typename Isa::Ints start = Start<Isa, kType>(tokens.Span(t, span), j);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[t][v] = start;
      }
      Isa::template AddQuads<kType, kTokens, kQuads>(panel + j * kQuads * kQuadBytes + first * 4,
                                                     tokens.Span(0, span).codes + j * kFormat.sub_block, tokens.stride,
                                                     sums);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const typename Isa::Floats scale = Isa::LoadFloats(scales + j * kRowGroup + first + v * Isa::kLanes);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) parts[t][v] = Isa::Fma(Isa::ToFloat(sums[t][v]), scale, parts[t][v]);
      }
      if constexpr (kFormat.has_mins) {
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const typename Isa::Floats inputs = Isa::ToFloat(Isa::StartOf(MinusSum<kType>(tokens.Span(t, span), j)));
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) {
            const typename Isa::Floats min = Isa::LoadFloats(mins + j * kRowGroup + first + v * Isa::kLanes);
            parts[t][v] = Isa::Fma(inputs, min, parts[t][v]);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const typename Isa::Floats scale = Isa::Broadcast(SpanScale<kType>(tokens.Span(t, span)));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* total = totals + t * kRowGroup + first + v * Isa::kLanes;
        Isa::StoreFloats(total, Isa::Fma(parts[t][v], scale, Isa::LoadFloats(total)));
      }
    }
  }
}

// The same for `count` tokens, 1 <= count <= kTokens.
template <typename Isa, DType kType, int kTokens = Isa::kTokens>
[[gnu::always_inline]] static inline void AddPanelOf(int64_t count, const uint8_t* panel, const float* scales,
                                                     const float* mins, const CodedTokens& x, int64_t span,
                                                     float* totals) {
  if constexpr (kTokens == 1) {
    AddPanel<Isa, kType, 1>(panel, scales, mins, x, span, totals);
  } else if (count == kTokens) {
    AddPanel<Isa, kType, kTokens>(panel, scales, mins, x, span, totals);
  } else {
    AddPanelOf<Isa, kType, kTokens - 1>(count, panel, scales, mins, x, span, totals);
  }
}

// Adds spans [begin, begin + count), count <= kPanelSpans, of the group of rows at `row` to the totals of all tokens.
template <typename Isa, DType kType>
static inline void AddSpans(const PackedMatrix& w, int64_t row, int64_t begin, int64_t count, const CodedTokens& x,
                            int64_t tokens, float* totals, Scratch<Isa>& scratch) {
  constexpr BlockFormat kFormat = FormatOf(kType);
  constexpr int64_t kBlockSpans = kFormat.block / kCodeSpan;
  constexpr int64_t kSpanBytes = kCodeSpan * kRowGroup * kFormat.code_bits / 8;
  // As PackedGroupBytes says; a call would leave a weak function of this instruction set.
  const int64_t group_bytes = (w.cols + kFormat.block - 1) / kFormat.block * kFormat.packed_block_bytes();
  const uint8_t* group = w.data + row / kRowGroup * group_bytes;
  for (int64_t s = 0; s < count; ++s) {
    const int64_t span = (begin + s) % kBlockSpans;
    const uint8_t* header = group + (begin + s) / kBlockSpans * kFormat.packed_block_bytes();
    if (span == 0) {
      for (int64_t line = 0; line < kFormat.header_bytes; line += 64) Isa::Prefetch(header + line);
    }
    Isa::template ExpandScales<kType>(header, span, s, &scratch.scales);
    ExpandSpan<Isa, kType>(header + kFormat.header_bytes + span * kSpanBytes, scratch.panel + s * kSpanPanelBytes);
  }
  const int64_t blocks = (tokens + Isa::kTokens - 1) / Isa::kTokens;
  int64_t t = 0;
  for (int64_t i = 0; i < blocks; ++i) {  // of nearly equal sizes
    const int64_t size = tokens / blocks + (i < tokens % blocks ? 1 : 0);
    const CodedTokens part{x.rows + t * x.stride, x.stride};
    for (int64_t s = 0; s < count; ++s) {
      AddPanelOf<Isa, kType>(size, scratch.panel + s * kSpanPanelBytes,
                             Isa::template ScalesOf<kType>(scratch.scales, s),
                             Isa::template MinsOf<kType>(scratch.scales, s), part, begin + s, totals + t * kRowGroup);
    }
    t += size;
  }
}

// Stores or adds totals, [tokens][64 rows], to `rows` columns of y.
static inline void StoreTotals(const float* totals, int64_t rows, int64_t tokens, float* y, int64_t y_stride,
                               bool add) {
  for (int64_t t = 0; t < tokens; ++t, totals += kRowGroup, y += y_stride) {
    for (int64_t r = 0; r < rows; ++r) y[r] = add ? y[r] + totals[r] : totals[r];
  }
}

// At most kPassGroups groups of rows for at most kBatchTokens tokens. y starts at `row`.
template <typename Isa, DType kType>
static inline void RunPass(const PackedMatrix& w, int64_t row, int64_t row_end, const CodedTokens& x, int64_t tokens,
                           float* y, int64_t y_stride, bool add, Scratch<Isa>& scratch) {
  const int64_t groups = (row_end - row + kRowGroup - 1) / kRowGroup, spans = (w.cols + kCodeSpan - 1) / kCodeSpan;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < tokens * kRowGroup; i += Isa::kLanes)
      Isa::StoreFloats(scratch.totals[g] + i, Isa::ZeroFloats());
  }
  for (int64_t begin = 0; begin < spans; begin += kPanelSpans) {
    for (int64_t g = 0; g < groups; ++g) {
      AddSpans<Isa, kType>(w, row + g * kRowGroup, begin, Min(kPanelSpans, spans - begin), x, tokens, scratch.totals[g],
                           scratch);
    }
  }
  for (int64_t g = 0; g < groups; ++g) {
    StoreTotals(scratch.totals[g], Min(kRowGroup, row_end - row - g * kRowGroup), tokens, y + g * kRowGroup, y_stride,
                add);
  }
}

template <typename Isa, DType kType>
static void LinearOf(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                     int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  Scratch<Isa> scratch;
  for (int64_t row = row_begin; row < row_end; row += kPassGroups * kRowGroup) {
    for (int64_t t = 0; t < tokens; t += kBatchTokens) {
      RunPass<Isa, kType>(w, row, Min(row_end, row + kPassGroups * kRowGroup), {x + t * x_stride, x_stride},
                          Min(kBatchTokens, tokens - t), y + t * y_stride + (row - row_begin), y_stride, add, scratch);
    }
  }
}

// `tokens` coded rows, x_stride bytes apart.
template <typename Isa>
static inline void Linear(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                          int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  WithFormat(w.dtype, [&]<DType kType>() {
    LinearOf<Isa, kType>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
  });
}

}  // namespace moestro::spans
