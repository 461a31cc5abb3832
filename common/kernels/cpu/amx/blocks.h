// Tiles for formats of blocks (common/tensor/block_format.h): 16 tokens at a time, in spans of 128 inputs. A span's
// codes are expanded once into a BF16 panel that all tokens use. Each tile product of a sub-block starts from zero. Its
// sums are stored, then scaled and added to the totals by vector instructions, while tiles compute the next ones.
//
// Coded inputs (common/kernels/cpu/coded_span.h) go the same way: their codes become BF16. Sums of products of codes
// are whole numbers below 2^24, so F32 has them exactly, in whatever order: the bits are those of all tables.
//
// Every output has the same tile products in the same order, whatever the rest of the call.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/amx/tiles.h"
#include "common/kernels/cpu/avx512_bf16/block_panel.h"
#include "common/kernels/cpu/avx512_bf16/block_weights.h"
#include "common/kernels/cpu/linear_spans.h"

namespace moestro::amx {

using avx512_bf16::kSpanInputs;
using avx512_bf16::SpanScales;

// Tokens and row groups whose totals are kept at once, 256 KiB. A span's inputs, 64 KiB, stay in L2 between groups.
constexpr int64_t kBlockTokens = 256;
constexpr int64_t kBlockTiles = kBlockTokens / kTileTokens;
constexpr int64_t kBlockGroups = 4;
constexpr int64_t kMaxUnitSums = 8;

// What sums of a span are multiplied by, besides scales and mins of weights.
struct InputFactors {
  alignas(64) float sums[kTileTokens][kTileRows];  // of each sub-block's inputs, where the format has mins
  float scales[kTileTokens];                       // of coded inputs
};

struct BlockScratch {
  alignas(64) float totals[kBlockGroups][kBlockTiles][kGroupTiles][kTileTokens][kTileRows];
  alignas(64) uint8_t panel[kSpanInputs * kRowGroup * 2];
  alignas(64) float sums[2][kMaxUnitSums][kTileTokens][kTileRows];     // of two units in turn
  alignas(64) uint16_t inputs[kBlockTiles][kTileTokens][kSpanInputs];  // that are not used in place
  InputFactors factors[2][kBlockTiles];                                // of two spans in turn
  SpanScales scales[2];                                                // of two panels in turn
};

// A tile of weights that sums the inputs of a step: one in column kOnesColumn - j if it is loaded from kOnes.pairs + j,
// with all rows the same.
constexpr int kOnesColumn = kTileRows - 1;
struct OnesRow {
  alignas(64) uint32_t pairs[2 * kTileRows];
};
static constexpr OnesRow MakeOnesRow() {
  OnesRow row{};
  row.pairs[kOnesColumn] = 0x3f803f80;
  return row;
}
static constexpr OnesRow kOnes = MakeOnesRow();

// Codes of coded spans lie as 0 4 1 5 2 6 3 7 of each eight inputs. Bytes of 64 inputs, the first half in even places.
struct CodeOrder {
  alignas(64) uint8_t places[64];
};
static constexpr CodeOrder MakeCodeOrder() {
  CodeOrder order{};
  for (int i = 0; i < 64; ++i) {
    const int input = i / 2 + i % 2 * 32;
    order.places[i] = static_cast<uint8_t>(input / 8 * 8 + input % 4 * 2 + input % 8 / 4);
  }
  return order;
}
static constexpr CodeOrder kCodeOrder = MakeCodeOrder();

namespace {  // for internal linkage of the members

// Products of a panel with tiles of tokens. A unit: 16 tokens x kRowTiles tiles of rows, all sub-blocks of the span.
template <typename Tiles, int kSubBlock, bool kMins, bool kCoded>
class BlockUnits {
  static constexpr int kSubBlocks = kSpanInputs / kSubBlock;
  static constexpr int kRowTiles = kSubBlocks == 8 ? 1 : 2;
  static constexpr int kSums = kSubBlocks * kRowTiles;
  static constexpr int kSlots = kSums == 2 ? 4 : kSums;  // of a unit
  static_assert(kSums <= kMaxUnitSums);

 public:
  static constexpr int64_t kStepInputs = kSubBlock < 32 ? kSubBlock : 32;   // of a tile product
  static constexpr int64_t kGroupSlots = kSlots * kGroupTiles / kRowTiles;  // of a tile of tokens

  BlockUnits(BlockScratch& scratch, int64_t tokens) : scratch_(scratch), tokens_(Min(kTileTokens, tokens)) {}

  static TileConfig Config(int64_t tokens) {
    TileConfig config = kTileConfig;
    for (int tile = 0; tile < 6; ++tile) config.rows[tile] = static_cast<uint8_t>(Min(kTileTokens, tokens));
    for (int tile = 4; tile < 6; ++tile) config.row_bytes[tile] = kStepInputs * 2;
    for (int tile = 6; tile < 8; ++tile) config.rows[tile] = kStepInputs / 2;
    return config;
  }

  // Sums each sub-block's inputs.
  static void SumInputs(const TileInputs& x, float* sums) {
    Tiles::template Zero<5>();
    for (int64_t i = 0; i < kSpanInputs; i += kStepInputs) {
      Tiles::template Load<4>(x.x + i, x.stride);
      Tiles::template Load<6>(kOnes.pairs + kOnesColumn - i / kSubBlock, 0);
      Tiles::template AddProduct<5, 4, 6>();
    }
    Tiles::template Store<5>(sums, kTileRows * 4);
  }

  // All rows of a group for a tile of tokens; totals: [4 tiles of rows][16][16].
  [[gnu::noinline]] void Add(const TileInputs& x, const InputFactors& factors, const SpanScales& scales,
                             float (*totals)[kTileTokens][kTileRows]) {
    AddUnit<0>(x, {nullptr, totals, &factors, &scales, 0, tokens_});
    AddUnit<1>(x, {nullptr, totals, &factors, &scales, kRowTiles, tokens_});
    if constexpr (kRowTiles == 1) {
      AddUnit<0>(x, {nullptr, totals, &factors, &scales, 2, tokens_});
      AddUnit<1>(x, {nullptr, totals, &factors, &scales, 3, tokens_});
    }
  }

  // Fetches this memory beside the next `slots` slots.
  void FetchBeside(const uint8_t* begin, int64_t bytes, int64_t slots) {
    const int64_t pairs = CeilDiv(bytes, kPairBytes);
    fetches_ = {begin, pairs};
    pairs_beside_ = CeilDiv(pairs, slots);
  }

  // Adds all that is left.
  void Finish() {
    StoreSum<1, kSums - 2>(pending_.sums);
    StoreSum<1, kSums - 1>(pending_.sums);
    AddTokens(0, pending_.tokens);
  }

 private:
  // Sums that are yet to be scaled and added.
  struct Pending {
    float (*sums)[kTileTokens][kTileRows] = nullptr;
    float (*totals)[kTileTokens][kTileRows] = nullptr;
    const InputFactors* factors = nullptr;
    const SpanScales* scales = nullptr;
    int64_t vector = 0;  // first tile of rows
    int64_t tokens = 0;
  };

  // The register of a sum. Two units of two sums each take turns.
  template <int kParity, int kSum>
  static constexpr int Register() {
    return kSums == 2 ? 2 * kParity + kSum : kSum % 4;
  }
  template <int kParity, int kSum>
  static void StoreSum(float (*sums)[kTileTokens][kTileRows]) {
    Tiles::template Store<Register<kParity, kSum>()>(sums[kSum], kTileRows * 4);
  }

  template <int kParity>
  [[gnu::always_inline]] inline void AddUnit(const TileInputs& x, Pending unit) {
    unit.sums = scratch_.sums[kParity];
    const uint8_t* const weights = scratch_.panel + unit.vector * 64;
    [&]<int... kSlot>(spans::Numbers<kSlot...>) __attribute__((always_inline)) {
      ((AddSlot<kParity, kSlot>(x, weights, unit.sums), fetches_.Fetch(pairs_beside_)), ...);
    }
    (spans::NumbersBelow<kSlots>());
    pending_ = unit;
  }

  // A slot: a sum, or a step of both sums. Meanwhile a sum of two products before is stored, and some of the unit
  // before is added: sums leave the store buffer before they are read.
  template <int kParity, int kSlot>
  [[gnu::always_inline]] inline void AddSlot(const TileInputs& x, const uint8_t* weights,
                                             float (*sums)[kTileTokens][kTileRows]) {
    constexpr int64_t kWeightBytes = kStepInputs / 2 * kPairBytes;  // of a step
    if constexpr (kSums == 2) {
      constexpr int kFirst = 2 * kParity;
      if constexpr (kSlot == 0) {
        Tiles::template Zero<kFirst>();
        Tiles::template Zero<kFirst + 1>();
      }
      Tiles::template Load<4 + kSlot % 2>(x.x + kSlot * kStepInputs, x.stride);
      Tiles::template Load<6>(weights + kSlot * kWeightBytes, kPairBytes);
      Tiles::template AddProduct<kFirst, 4 + kSlot % 2, 6>();
      Tiles::template Load<7>(weights + kSlot * kWeightBytes + 64, kPairBytes);
      Tiles::template AddProduct<kFirst + 1, 4 + kSlot % 2, 7>();
      if constexpr (kSlot < 2) {
        StoreSum<1 - kParity, kSlot>(pending_.sums);
      } else {
        AddPart<kSlot - 2, 2>();
      }
    } else {
      constexpr int kSub = kSlot / kRowTiles, kTile = kSlot % kRowTiles, kSum = kSlot % 4;
      Tiles::template Zero<kSum>();
      if constexpr (kTile == 0) Tiles::template Load<4 + kSub % 2>(x.x + kSub * kSubBlock, x.stride);
      Tiles::template Load<6 + kSlot % 2>(weights + kSub * kWeightBytes + kTile * 64, kPairBytes);
      Tiles::template AddProduct<kSum, 4 + kSub % 2, 6 + kSlot % 2>();
      if constexpr (kSlot < 2) {
        StoreSum<0, kSums - 2 + kSlot>(pending_.sums);
      } else {
        StoreSum<0, kSlot - 2>(sums);
        AddPart<kSlot - 2, kSums - 2>();
      }
    }
  }

  // Part kPart of kParts of the tokens.
  template <int kPart, int kParts>
  [[gnu::always_inline]] inline void AddPart() const {
    constexpr int64_t kBegin = kPart * kTileTokens / kParts, kEnd = (kPart + 1) * kTileTokens / kParts;
    if (pending_.tokens == kTileTokens) [[likely]] {
      AddTokensOf<kEnd - kBegin>(kBegin);
    } else {
      AddTokens(kBegin, Min(pending_.tokens, kEnd));
    }
  }
  void AddTokens(int64_t begin, int64_t end) const {
    for (int64_t t = begin; t < end; ++t) AddTokensOf<1>(t);
  }
  template <int kTokens>
  [[gnu::always_inline]] inline void AddTokensOf(int64_t token) const {
    const Pending all = pending_;  // in registers, despite writes to totals
#pragma GCC unroll 2
    for (int tile = 0; tile < kRowTiles; ++tile) {
      const int64_t first_row = (all.vector + tile) * kTileRows;
      float* const totals = all.totals[all.vector + tile][token];
      __m512 parts[kTokens];
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        parts[t] = kCoded ? _mm512_setzero_ps() : _mm512_load_ps(totals + t * kTileRows);
      }
#pragma GCC unroll 8
      for (int j = 0; j < kSubBlocks; ++j) {
        const __m512 scale = _mm512_load_ps(all.scales->scales[j] + first_row);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          parts[t] = _mm512_fmadd_ps(_mm512_load_ps(all.sums[j * kRowTiles + tile][token + t]), scale, parts[t]);
        }
        if constexpr (kMins) {
          const __m512 min = _mm512_load_ps(all.scales->mins[j] + first_row);
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) {
            parts[t] = _mm512_fnmadd_ps(min, _mm512_set1_ps(all.factors->sums[token + t][j]), parts[t]);
          }
        }
      }
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        if constexpr (kCoded) {
          parts[t] = _mm512_fmadd_ps(parts[t], _mm512_set1_ps(all.factors->scales[token + t]),
                                     _mm512_load_ps(totals + t * kTileRows));
        }
        _mm512_store_ps(totals + t * kTileRows, parts[t]);
      }
    }
  }

  BlockScratch& scratch_;
  const int64_t tokens_;  // of each tile
  Pending pending_ = {.sums = scratch_.sums[1]};
  PendingPairs fetches_;
  int64_t pairs_beside_ = 0;
};

// BF16 inputs. Those of several tiles are copied: rows of x far apart share few sets of L1.
template <DType kType>
class Bf16Tokens {
 public:
  static constexpr bool kCoded = false;

  Bf16Tokens(const uint16_t* x, int64_t stride, int64_t cols, bool copies)
      : x_(x), stride_(stride), cols_(cols), copies_(copies) {}

  Bf16Tokens From(int64_t token) const { return {x_ + token * stride_, stride_, cols_, copies_}; }
  // A span of a tile from `token` on: in place, or the copy that Prepare made.
  TileInputs Span(int64_t token, int64_t span, const uint16_t (*copy)[kSpanInputs]) const {
    if (Copies(span)) return {copy[0], kSpanInputs * 2};
    return {x_ + token * stride_ + span * kSpanInputs, stride_ * 2};
  }
  // For Span, and the sums of inputs.
  template <typename Units>
  void Prepare(int64_t token, int64_t tokens, int64_t span, uint16_t (*copy)[kSpanInputs],
               InputFactors* factors) const {
    if (Copies(span)) {
      const int64_t cols = Min(kSpanInputs, cols_ - span * kSpanInputs);
      const uint16_t* x = x_ + token * stride_ + span * kSpanInputs;
      for (int64_t t = 0; t < tokens; ++t) {
        CopyInputs(x + t * stride_, cols, copy[t]);
        for (int64_t i = cols; i < kSpanInputs; i += 32) {
          _mm512_store_si512(copy[t] + i, _mm512_setzero_si512());
        }
      }
    }
    if constexpr (FormatOf(kType).has_mins) Units::SumInputs(Span(token, span, copy), factors->sums[0]);
  }

 private:
  bool Copies(int64_t span) const { return copies_ || cols_ - span * kSpanInputs < kSpanInputs; }

  const uint16_t* x_;
  int64_t stride_;
  int64_t cols_;
  bool copies_;
};

// Coded rows, which become BF16.
template <DType kType>
class CodedTokens {
 public:
  static constexpr bool kCoded = true;

  CodedTokens(const uint8_t* rows, int64_t stride) : rows_{rows, stride} {}

  CodedTokens From(int64_t token) const { return {rows_.rows + token * rows_.stride, rows_.stride}; }
  TileInputs Span(int64_t, int64_t, const uint16_t (*copy)[kSpanInputs]) const { return {copy[0], kSpanInputs * 2}; }
  template <typename Units>
  void Prepare(int64_t token, int64_t tokens, int64_t span, uint16_t (*copy)[kSpanInputs],
               InputFactors* factors) const {
    const avx512_bf16::Codes<DType::kQ8_0> bytes;
    for (int64_t t = 0; t < tokens; ++t) {
      const CodedSpan& coded = rows_.Span(token + t, span);
      for (int64_t i = 0; i < kSpanInputs; i += 64) {
        alignas(64) uint8_t codes[64];
        _mm512_store_si512(
            codes, _mm512_permutexvar_epi8(_mm512_load_si512(kCodeOrder.places), _mm512_loadu_si512(coded.codes + i)));
        const auto unit = bytes.Load(codes);
        _mm512_store_si512(copy[t] + i, Whole(bytes.template Pair<0>(unit)));
        _mm512_store_si512(copy[t] + i + 32, Whole(bytes.template Pair<1>(unit)));
      }
      factors->scales[t] = spans::SpanScale<kType>(coded);
      if constexpr (FormatOf(kType).has_mins) {
        for (int64_t j = 0; j < spans::SubBlocks<kType>(); ++j) {
          factors->sums[t][j] = -static_cast<float>(*spans::MinusSum<kType>(coded, j));
        }
      }
    }
  }

 private:
  // A code of MXFP4 counts twice, but a panel has it once.
  static __m512i Whole(__m512i bf16) {
    if constexpr (kType != DType::kMXFP4) return bf16;
    return _mm512_mask_add_epi16(bf16, _mm512_test_epi16_mask(bf16, bf16), bf16, _mm512_set1_epi16(1 << 7));
  }

  spans::CodedTokens rows_;
};

// At most kBlockGroups row groups for at most kBlockTokens tokens, 16 or more if there are several tiles.
template <typename Tiles, DType kType, typename Tokens>
class BlockPass {
  static constexpr BlockFormat kFormat = FormatOf(kType);
  static constexpr int64_t kBlockSpans = kFormat.block / kSpanInputs;
  static constexpr int64_t kSpanBytes = kSpanInputs * kRowGroup * kFormat.code_bits / 8;
  using Units = BlockUnits<Tiles, kFormat.sub_block, kFormat.has_mins, Tokens::kCoded>;

 public:
  BlockPass(const PackedMatrix& w, const Tokens& x, int64_t tokens, BlockScratch& scratch)
      : w_(w), x_(x), tokens_(tokens), scratch_(scratch) {
    Tiles::Configure(Units::Config(tokens));
  }

  // y starts at the first row.
  void Run(int64_t row, int64_t rows, float* y, int64_t y_stride, bool add) {
    const int64_t groups = CeilDiv(rows, kRowGroup), tiles = CeilDiv(tokens_, kTileTokens);
    for (int64_t g = 0; g < groups; ++g) {
      float* const totals = scratch_.totals[g][0][0][0];
      for (int64_t i = 0; i < tiles * kTileTokens * kRowGroup; i += 16)
        _mm512_store_ps(totals + i, _mm512_setzero_ps());
    }
    Units units(scratch_, tokens_);
    int turn = 0;
    const int64_t spans = CeilDiv(w_.cols, kSpanInputs);
    for (int64_t span = 0; span < spans; ++span) {
      for (int64_t i = 0; i < tiles; ++i) {
        x_.template Prepare<Units>(FirstToken(i), Min(kTileTokens, tokens_), span, scratch_.inputs[i],
                                   &scratch_.factors[span % 2][i]);
      }
      for (int64_t g = 0; g < groups; ++g, turn ^= 1) {
        SpanScales& scales = scratch_.scales[turn];
        avx512_bf16::ExpandHeader<kType, avx512_bf16::HeaderFetch::kNone>(Header(row / kRowGroup + g, span),
                                                                          span % kBlockSpans, &scales);
        ExpandPanel(Codes(row / kRowGroup + g, span));
        if (g + 1 < groups) {
          FetchSpan(&units, row / kRowGroup + g + 1, span);
        } else if (span + 1 < spans) {
          FetchSpan(&units, row / kRowGroup, span + 1);
        }
        for (int64_t i = 0; i < tiles; ++i) {
          units.Add(x_.Span(FirstToken(i), span, scratch_.inputs[i]), scratch_.factors[span % 2][i], scales,
                    scratch_.totals[g][i]);
        }
      }
    }
    units.Finish();
    for (int64_t t = 0; t < tokens_; ++t, y += y_stride) {
      const int64_t tile = t / kTileTokens;
      for (int64_t r = 0; r < rows; r += kTileRows) {
        StoreTotals(scratch_.totals[r / kRowGroup][tile][r % kRowGroup / kTileRows][t - FirstToken(tile)],
                    Min(kTileRows, rows - r), add, y + r);
      }
    }
  }

 private:
  const uint8_t* Header(int64_t group, int64_t span) const {
    return w_.data + group * PackedGroupBytes(kType, w_.cols) + span / kBlockSpans * kFormat.packed_block_bytes();
  }

  const uint8_t* Codes(int64_t group, int64_t span) const {
    return Header(group, span) + kFormat.header_bytes + span % kBlockSpans * kSpanBytes;
  }

  // Fetches this span while tiles multiply, with its block's header if it is the first one there.
  void FetchSpan(Units* units, int64_t group, int64_t span) const {
    const uint8_t* const begin = span % kBlockSpans == 0 ? Header(group, span) : Codes(group, span);
    units->FetchBeside(begin, Codes(group, span) + kSpanBytes - begin,
                       CeilDiv(tokens_, kTileTokens) * Units::kGroupSlots);
  }

  void ExpandPanel(const uint8_t* codes) const {
    using Source = avx512_bf16::Codes<kType>;
    const Source source;
    uint8_t* panel = scratch_.panel;
    for (int64_t i = 0; i < kSpanInputs; i += Source::kInputs, panel += Source::kInputs / 2 * kPairBytes) {
#pragma GCC unroll 4
      for (int v = 0; v < kGroupTiles; ++v, codes += Source::kBytes) {
#pragma GCC unroll 5
        for (int64_t line = 0; line < Source::kBytes; line += 64) PrefetchNear(codes + line + kNearBytes);
        const typename Source::Unit unit = source.Load(codes);
        [&]<int... kPair>(spans::Numbers<kPair...>) __attribute__((always_inline)) {
          (_mm512_store_si512(panel + kPair * kPairBytes + v * 64, source.template Pair<kPair>(unit)), ...);
        }
        (spans::NumbersBelow<Source::kInputs / 2>());
      }
    }
  }

  // The last tile begins earlier if it would not be full.
  int64_t FirstToken(int64_t tile) const {
    return tokens_ < kTileTokens ? 0 : Min(tile * kTileTokens, tokens_ - kTileTokens);
  }

  const PackedMatrix& w_;
  const Tokens x_;
  const int64_t tokens_;
  BlockScratch& scratch_;
};

template <typename Tiles, DType kType, typename Tokens>
static void MultiplyFormat(const PackedMatrix& w, const Tokens& x, int64_t tokens, float* y, int64_t y_stride,
                           int64_t row_begin, int64_t row_end, bool add) {
  BlockScratch scratch;
  // Few tokens' inputs stay in the cache anyway, so each group's weights are read sequentially.
  const int64_t pass_rows = (tokens > kTileTokens ? kBlockGroups : 1) * kRowGroup;
  const int64_t batches = CeilDiv(tokens, kBlockTokens);
  int64_t t = 0;
  for (int64_t i = 0; i < batches; ++i) {  // of nearly equal sizes, so that tiles are full
    const int64_t size = tokens / batches + (i < tokens % batches ? 1 : 0);
    BlockPass<Tiles, kType, Tokens> pass(w, x.From(t), size, scratch);
    for (int64_t row = row_begin; row < row_end; row += pass_rows) {
      pass.Run(row, Min(pass_rows, row_end - row), y + t * y_stride + (row - row_begin), y_stride, add);
    }
    t += size;
  }
}

}  // namespace

// The arguments of linear and linear_coded (kernels.h). REQUIRES: IsBlockFormat(w.dtype); tokens > 0.
template <typename Tiles>
static inline void MultiplyBlocks(const Problem& p, int64_t row_end) {
  WithFormat(p.w.dtype, [&]<DType kType>() {
    const Bf16Tokens<kType> x(p.x, p.x_stride, p.w.cols, p.tokens > kTileTokens);
    MultiplyFormat<Tiles, kType>(p.w, x, p.tokens, p.y, p.y_stride, p.row_begin, row_end, p.add);
  });
}
template <typename Tiles>
static inline void MultiplyBlocksCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens,
                                       float* y, int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  WithFormat(w.dtype, [&]<DType kType>() {
    const CodedTokens<kType> rows(x, x_stride);
    MultiplyFormat<Tiles, kType>(w, rows, tokens, y, y_stride, row_begin, row_end, add);
  });
}

}  // namespace moestro::amx
