// Tiles for FP8 weights and many tokens: 32 tokens x 32 rows at a time (4 accumulator tiles), in blocks of 128 inputs,
// four tile products deep. During tile products, vector instructions do the work before and after them. They expand FP8
// weights into the BF16 panel of the next half row group, and add the previous tiles' scaled sums to their totals.
//
// Every output has the same tile products in the same order, whatever the rest of the call. Edges are padded with zero
// inputs, or produce results for tokens that nobody reads.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/avx512_bf16/fp8.h"

namespace moestro::amx {

constexpr int64_t kHalfRows = kRowGroup / 2;  // rows of a panel, which leaves room in L1 for other data
constexpr int64_t kHalfPairBytes = kPairBytes / 2;

// Tokens that share an expanded panel: their totals for a group, 16 KiB, stay in L1 between blocks.
constexpr int64_t kBatchTokens = 64;
// Tokens and row groups whose totals are kept at once, and the blocks of inputs that they share. Inputs, 512 KiB, stay
// in L2 between groups; a group's expanded weights, 128 KiB, stay there between batches.
constexpr int64_t kPassTokens = 256;
constexpr int64_t kPassGroups = 4;
constexpr int64_t kPassBlocks = 8;

struct GemmScratch {
  // Two panels in turn; with several batches, one per half of a group's blocks.
  alignas(64) uint8_t panels[2 * kPassBlocks][kScaleBlock * kHalfRows * 2];
  alignas(64) uint16_t inputs[2][kBatchTokens][kScaleBlock];
  alignas(64) float sums[2][kUnitTokens][kHalfRows];
  alignas(64) float totals[kPassGroups][kPassTokens][kRowGroup];
};

namespace {  // for internal linkage of the members

// A unit's tile sums that are yet to be scaled and added to their totals.
struct PendingSums {
  const float (*sums)[kHalfRows] = nullptr;
  float* totals = nullptr;
  int64_t tokens = 0;
  float scale = 0;
  bool first = false;  // totals are still empty: start from 0

  // Adds some of them; all are done after parts 0 .. kBlockSteps - 1.
  [[gnu::always_inline]] inline void Add(int64_t part) const {
    constexpr int64_t kPartTokens = kUnitTokens / kBlockSteps;
    const int64_t begin = part * kPartTokens;
    const PendingSums all = *this;  // in registers, despite writes to totals
    if (tokens == kUnitTokens && !first) {
#pragma GCC unroll 8
      for (int64_t t = 0; t < kPartTokens; ++t) all.AddToken(begin + t);
      return;
    }
    for (int64_t t = begin; t < Min(tokens, begin + kPartTokens); ++t) {
      if (first) {
        for (int i = 0; i < kHalfRows; i += 16) _mm512_storeu_ps(totals + t * kRowGroup + i, _mm512_setzero_ps());
      }
      all.AddToken(t);
    }
  }

 private:
  [[gnu::always_inline]] inline void AddToken(int64_t t) const {
    const __m512 factor = _mm512_set1_ps(scale);
    float* total = totals + t * kRowGroup;
#pragma GCC unroll 2
    for (int i = 0; i < kHalfRows; i += 16) {
      const __m512 sum = _mm512_load_ps(sums[t] + i);
      _mm512_storeu_ps(total + i, _mm512_fmadd_ps(sum, factor, _mm512_loadu_ps(total + i)));
    }
  }
};

// FP8 weights of half a group that are yet to be expanded into a panel.
struct PendingPanel {
  const uint8_t* weights = nullptr;
  uint8_t* panel = nullptr;
  int64_t quads = 0;
  int64_t far_bytes = 0;

  template <int kQuads>
  [[gnu::always_inline]] inline void ExpandSome() {
    if (quads < kQuads) return;
    const avx512_bf16::Fp8Expander expander = avx512_bf16::MakeFp8Expander();
    PendingPanel rest = *this;  // in registers, despite writes to the panel
#pragma GCC unroll 8
    for (int i = 0; i < kQuads; ++i) rest.ExpandQuad(expander);
    *this = rest;
  }
  void ExpandRest() {
    const avx512_bf16::Fp8Expander expander = avx512_bf16::MakeFp8Expander();
    while (quads > 0) ExpandQuad(expander);
  }

 private:
  [[gnu::always_inline]] inline void ExpandQuad(const avx512_bf16::Fp8Expander& expander) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      PrefetchNear(weights + v * 64 + kNearBytes);
      PrefetchFar(FarPair(weights, far_bytes) + v * 64);
      // Loaded once: the two table look-ups overwrite their indices, so the compiler would otherwise load them for each
      // of three uses. 1.03 to 1.08 times as fast, also from DRAM.
      __m512i codes = _mm512_loadu_si512(weights + v * 64);
      __asm__("" : "+v"(codes));
      __m512i inputs01, inputs23;
      avx512_bf16::ExpandCodes(expander, codes, &inputs01, &inputs23);
      _mm512_store_si512(panel + v * 64, inputs01);
      _mm512_store_si512(panel + kHalfPairBytes + v * 64, inputs23);
    }
    weights += kPairBytes;
    panel += 2 * kHalfPairBytes;
    --quads;
  }
};

// At most kPassGroups row groups for at most kPassTokens tokens.
template <typename Tiles>
class GemmPass {
 public:
  // Tokens from `token` on; rows [row, row + rows).
  GemmPass(const Problem& p, GemmScratch& scratch, int64_t token, int64_t tokens, int64_t row, int64_t rows)
      : p_(p),
        scratch_(scratch),
        x_(p.x + token * p.x_stride),
        y_(p.output(token, row)),
        tokens_(tokens),
        row_(row),
        rows_(rows),
        // One batch's inputs stay in the cache anyway, so each group's weights are read sequentially.
        pass_blocks_(tokens > kBatchTokens ? kPassBlocks : blocks_) {}

  void Run() {
    Place place;
    Prepare(place, 0);
    FinishPanel();
    for (int i = 0; place.block < blocks_; i ^= 1) {
      const Place next = After(place);
      if (next.block < blocks_) Prepare(next, i ^ 1);
      Multiply(place, i);
      FinishPanel();
      place = next;
    }
    for (int n = 0; n < 2; ++n, parity_ ^= 1) {
      for (int part = 0; part < kBlockSteps; ++part) sums_[parity_].Add(part);
    }
    Store();
  }

 private:
  // A block of half a group for a batch of tokens; first_block: the first of the blocks walked for all groups in turn.
  struct Place {
    int64_t first_block = 0;
    int64_t group = 0;
    int64_t token = 0;
    int64_t block = 0;
    int64_t half = 0;
  };

  Place After(Place place) const {
    if (place.half == 0) {
      place.half = 1;
      return place;
    }
    place.half = 0;
    if (++place.block < Min(blocks_, place.first_block + pass_blocks_)) return place;
    place.token += kBatchTokens;
    if (place.token >= tokens_) {
      place.token = 0;
      if (++place.group == groups_) {
        place.group = 0;
        place.first_block += pass_blocks_;
      }
    }
    place.block = place.first_block;
    return place;
  }

  int64_t BatchTokens(const Place& place) const { return Min(kBatchTokens, tokens_ - place.token); }
  const uint16_t* Inputs(const Place& place, int64_t token) const {
    return x_ + (place.token + token) * p_.x_stride + place.block * kScaleBlock;
  }
  const uint8_t* Weights(const Place& place) const {
    return p_.weights(row_ + place.group * kRowGroup, place.block) + place.half * kHalfPairBytes;
  }
  // Expanded by the first batch of tokens and shared by all.
  uint8_t* Panel(const Place& place, int i) const {
    return scratch_.panels[tokens_ > kBatchTokens ? 2 * (place.block - place.first_block) + place.half : i];
  }
  // Whether the last column cuts off no tile product.
  bool IsWhole(const Place& place) const { return p_.cols(place.block) % kStepInputs == 0; }

  // Starts to prepare the data of Multiply(place, i) that it does not use in place.
  void Prepare(const Place& place, int i) {
    const int64_t cols = p_.cols(place.block);
    if (place.token == 0) {
      uint8_t* panel = Panel(place, i);
      panel_ = {Weights(place), panel, CeilDiv(cols, 4), p_.far_bytes(0)};
      if (!IsWhole(place)) {
        const int64_t begin = PaddedCols(cols) / 2 * kHalfPairBytes;
        __builtin_memset(panel + begin, 0, static_cast<size_t>(sizeof scratch_.panels[0] - begin));
      }
    }
    const int64_t batch = BatchTokens(place);
    for (int64_t t = IsWhole(place) ? batch / kTileTokens * kTileTokens : 0; t < batch; ++t) {
      CopyInputs(Inputs(place, t), cols, scratch_.inputs[i][t]);
    }
  }

  void FinishPanel() { panel_.ExpandRest(); }

  // The tile that begins at `token` of the batch: a copy if tokens or columns end within it.
  TileInputs InputsOfTile(const Place& place, int64_t token, int i) const {
    const bool full = token + kTileTokens <= BatchTokens(place);
    if (full && IsWhole(place)) return {Inputs(place, token), p_.x_stride * 2};
    return {scratch_.inputs[i][token], kScaleBlock * 2};
  }

  void Multiply(const Place& place, int i) {
    const int64_t batch = BatchTokens(place);
    static_assert(kBatchTokens == 2 * kUnitTokens);
    if (batch <= kTileTokens) {
      MultiplyUnit<1, 1>(place, 0, i);
    } else if (batch <= kUnitTokens) {
      MultiplyUnit<2, 1>(place, 0, i);
    } else {
      MultiplyUnit<2, 2>(place, 0, i);
      if (batch <= kUnitTokens + kTileTokens) {
        MultiplyUnit<1, 2>(place, kUnitTokens, i);
      } else {
        MultiplyUnit<2, 2>(place, kUnitTokens, i);
      }
    }
  }

  // kUnits: units of the batch, which share the side work.
  template <int kTokenTiles, int kUnits>
  void MultiplyUnit(const Place& place, int64_t token, int i) {
    const TileInputs a = InputsOfTile(place, token, i);
    const TileInputs b = kTokenTiles == 2 ? InputsOfTile(place, token + kTileTokens, i) : a;
    Tiles::template Zero<0>();
    Tiles::template Zero<1>();
    if (kTokenTiles == 2) {
      Tiles::template Zero<2>();
      Tiles::template Zero<3>();
    }
    const uint8_t* panel = Panel(place, i);
    const int64_t steps = CeilDiv(p_.cols(place.block), kStepInputs);
    for (int64_t step = 0; step < kBlockSteps; ++step) {
      if (step < steps) {
        const uint8_t* weights = panel + step * (kStepInputs / 2) * kHalfPairBytes;
        Tiles::template Load<4>(a.x + step * kStepInputs, a.stride);
        Tiles::template Load<6>(weights, kHalfPairBytes);
        Tiles::template AddProduct<0, 4, 6>();
        Tiles::template Load<7>(weights + 64, kHalfPairBytes);
        Tiles::template AddProduct<1, 4, 7>();
        if (kTokenTiles == 2) {
          Tiles::template Load<5>(b.x + step * kStepInputs, b.stride);
          Tiles::template AddProduct<2, 5, 6>();
          Tiles::template AddProduct<3, 5, 7>();
        }
      }
      sums_[parity_].Add(step);
      panel_.template ExpandSome<kStepQuads / kUnits>();
    }
    auto* sums = scratch_.sums[parity_];
    constexpr int64_t kRowBytes = sizeof sums[0];
    Tiles::template Store<0>(sums[0], kRowBytes);
    Tiles::template Store<1>(sums[0] + 16, kRowBytes);
    if (kTokenTiles == 2) {
      Tiles::template Store<2>(sums[kTileTokens], kRowBytes);
      Tiles::template Store<3>(sums[kTileTokens] + 16, kRowBytes);
    }
    const int64_t row = place.group * kRowGroup;
    const int64_t at = place.token + token;
    sums_[parity_] = {.sums = sums,
                      .totals = scratch_.totals[place.group][at] + place.half * kHalfRows,
                      .tokens = Min(kUnitTokens, BatchTokens(place) - token),
                      .scale = p_.scale(row_ + row, place.block),
                      .first = place.block == 0};
    parity_ ^= 1;
  }

  void Store() const {
    for (int64_t t = 0; t < tokens_; ++t) {
      for (int64_t r = 0; r < rows_; r += kRowGroup) {
        StoreTotals(scratch_.totals[r / kRowGroup][t], Min(kRowGroup, rows_ - r), p_.add, y_ + t * p_.y_stride + r);
      }
    }
  }

  const Problem& p_;
  GemmScratch& scratch_;
  const uint16_t* x_;
  float* y_;  // starts at the first row
  int64_t tokens_;
  int64_t row_;
  int64_t rows_;
  int64_t groups_ = CeilDiv(rows_, kRowGroup);
  int64_t blocks_ = p_.blocks();
  int64_t pass_blocks_;
  PendingSums sums_[2];  // the last two units
  int parity_ = 0;
  PendingPanel panel_;
};

}  // namespace

template <typename Tiles>
static inline void MultiplyTokens(const Problem& p, int64_t row_begin, int64_t row_end) {
  Tiles::Configure();
  GemmScratch scratch;
  const int64_t pass_rows = (p.tokens > kBatchTokens ? kPassGroups : 1) * kRowGroup;
  for (int64_t row = row_begin; row < row_end; row += pass_rows) {
    for (int64_t t = 0; t < p.tokens; t += kPassTokens) {
      GemmPass<Tiles>(p, scratch, t, Min(kPassTokens, p.tokens - t), row, Min(pass_rows, row_end - row)).Run();
    }
  }
}

}  // namespace moestro::amx
