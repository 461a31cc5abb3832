// Tiles for FP8 weights and up to 16 tokens: one row group at a time in 4 accumulator tiles of 16 rows, with weights in
// memory order. Weights are expanded into a BF16 panel slightly more than a step ahead of their products.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/amx/fp8.h"
#include "common/kernels/cpu/amx/tiles.h"

namespace moestro::amx {

constexpr int64_t kStepCodeBytes = kStepQuads * kPairBytes;  // a group's FP8 weights

// Two of a step's eight quads: the unit of expansion, and its lead over the products.
constexpr int64_t kPartQuads = 2;
constexpr int64_t kStepParts = kStepQuads / kPartQuads;
constexpr int64_t kLeadParts = 5;
static_assert(kLeadParts <= kStepParts + 1,
              "what is expanded last in a step may lie where its products were read, no sooner");

// For weights in a cache, prefetched into L1 only: 1.1 to 1.2 times as fast as kNearBytes with a second prefetch for
// DRAM.
constexpr int64_t kCachedNearBytes = 2048;

// Bytes between rows of a panel; a row is two inputs of 16 weight rows.
constexpr int64_t kPanelRowBytes = 128;

struct FewTokensScratch {
  // Tiles 0 and 1 of the steps' panels, then 2 and 3. A panel has the page offset of its codes, minus two lines. The
  // CPU delays a load whose page offset equals that of an earlier, unfinished store, whatever the page. At this offset,
  // no load of codes waits for a store in flight, and products do not wait for the stores of the next panel. At any
  // other offset, stores and memory reads do not overlap.
  alignas(kPageBytes) uint8_t panels[2][2 * kPageBytes];
  alignas(64) uint16_t inputs[kTileTokens][kScaleBlock];
  alignas(64) float sums[kTileTokens][kRowGroup];
  alignas(64) float totals[kTileTokens][kRowGroup];
};

namespace {  // for internal linkage of the members

template <typename Tiles, bool kCached>
class FewTokens {
 public:
  // Rows [row, row + rows), at most a group.
  FewTokens(const Problem& p, FewTokensScratch& scratch, int64_t row, int64_t rows)
      : p_(p), scratch_(scratch), weights_(p.weights(row, 0)), row_(row), rows_(rows) {}

  void Run() {
    for (int64_t part = 0; part < kLeadParts; ++part) ExpandPart(part, Exceptions(0) >> part * kPartQuads);
    for (int64_t block = 0; block < p_.blocks(); ++block) {
      const TileInputs x = InputsOf(block);
      Tiles::template Zero<0>();
      Tiles::template Zero<1>();
      Tiles::template Zero<2>();
      Tiles::template Zero<3>();
      const int64_t end = Min(steps_, (block + 1) * kBlockSteps);
      uint64_t exceptions = Exceptions(block) >> kLeadParts * kPartQuads;
      for (int64_t step = block * kBlockSteps; step < end; ++step, exceptions >>= kStepQuads) {
        if (step == whole_steps_) MakeLastPanel();
        Multiply(step, {x.x + step % kBlockSteps * kStepInputs, x.stride}, exceptions);
      }
      AddSums(block);
    }
    Store();
  }

 private:
  // Copies the inputs if columns end within a step.
  TileInputs InputsOf(int64_t block) {
    const uint16_t* x = p_.x + block * kScaleBlock;
    const int64_t cols = p_.cols(block);
    if (cols % kStepInputs == 0) return {x, p_.x_stride * 2};
    for (int64_t t = 0; t < p_.tokens; ++t) CopyInputs(x + t * p_.x_stride, cols, scratch_.inputs[t]);
    return {scratch_.inputs[0], kScaleBlock * 2};
  }

  // Exceptions of two blocks.
  uint64_t Exceptions(int64_t block) const {
    const uint64_t next = block + 1 < p_.blocks() ? p_.exceptions(row_, block + 1) : 0;
    return next << 32 | p_.exceptions(row_, block);
  }

  const uint8_t* Weights(int64_t step) const { return weights_ + step * kStepCodeBytes; }

  // One tile of the step's panel: 16 rows.
  uint8_t* Panel(int64_t step, int tile) const {
    const uintptr_t codes = reinterpret_cast<uintptr_t>(weights_) + static_cast<uintptr_t>(step * kStepCodeBytes);
    return scratch_.panels[tile / 2] + (codes - kPanelRowBytes) % kPageBytes + tile * 64;
  }

  // exceptions: of the part's quads and of any quads after them.
  [[gnu::always_inline]] inline void ExpandPart(int64_t part, uint64_t exceptions) const {
    if (part >= parts_) return;
    const int64_t step = part / kStepParts;
    const int64_t quad = part % kStepParts * kPartQuads;
    if ((exceptions & ((1 << kPartQuads) - 1)) == 0) [[likely]] {
      ExpandQuads<kPartQuads, ExpandNormal>(step, quad);
    } else {
      ExpandPartByTable(step, quad);
    }
  }
  // Not inlined: with both forms in the loop over steps, it is 1.4 times as slow.
  [[gnu::noinline, gnu::cold]] void ExpandPartByTable(int64_t step, int64_t quad) const {
    ExpandQuads<kPartQuads, ExpandAny>(step, quad);
  }

  template <int64_t kQuads, void (*kExpand)(__m512i, __m512i*, __m512i*)>
  [[gnu::always_inline]] inline void ExpandQuads(int64_t step, int64_t quad) const {
    const uint8_t* codes = Weights(step) + quad * kPairBytes;
    uint8_t* const panels[] = {Panel(step, 0) + quad * 2 * kPanelRowBytes, Panel(step, 2) + quad * 2 * kPanelRowBytes};
#pragma GCC unroll 8
    for (int i = 0; i < kQuads * kGroupTiles; ++i) {
      const uint8_t* line = codes + i * 64;
      PrefetchNear(line + (kCached ? kCachedNearBytes : kNearBytes));
      if (!kCached) PrefetchFar(FarPair(codes + i / kGroupTiles * kPairBytes, far_bytes_) + i % kGroupTiles * 64);
      __m512i inputs01, inputs23;
      kExpand(_mm512_loadu_si512(line), &inputs01, &inputs23);
      uint8_t* to = panels[i % kGroupTiles / 2] + i % 2 * 64 + i / kGroupTiles * 2 * kPanelRowBytes;
      _mm512_store_si512(to, inputs01);
      _mm512_store_si512(to + kPanelRowBytes, inputs23);
    }
  }

  // The step in which the columns end: the existing weights, then zeros.
  void MakeLastPanel() const {
    const int64_t inputs = PaddedCols(p_.w.cols - whole_steps_ * kStepInputs);
    for (int64_t quad = 0; quad < inputs / 4; ++quad) ExpandQuads<1, ExpandAny>(whole_steps_, quad);
    for (int64_t pair = inputs / 2; pair < kStepInputs / 2; ++pair) {
      for (int tile = 0; tile < kGroupTiles; ++tile) {
        _mm512_store_si512(Panel(whole_steps_, tile) + pair * kPanelRowBytes, _mm512_setzero_si512());
      }
    }
  }

  void Multiply(int64_t step, const TileInputs& x, uint64_t exceptions) {
    const uint8_t* first = Panel(step, 0);
    const uint8_t* third = Panel(step, 2);
    const int64_t part = step * kStepParts + kLeadParts;
    Tiles::template Load<4>(x.x, x.stride);
    Tiles::template Load<5>(first, kPanelRowBytes);
    Tiles::template AddProduct<0, 4, 5>();
    ExpandPart(part, exceptions);
    Tiles::template Load<6>(first + 64, kPanelRowBytes);
    Tiles::template AddProduct<1, 4, 6>();
    ExpandPart(part + 1, exceptions >> kPartQuads);
    Tiles::template Load<7>(third, kPanelRowBytes);
    Tiles::template AddProduct<2, 4, 7>();
    ExpandPart(part + 2, exceptions >> 2 * kPartQuads);
    Tiles::template Load<5>(third + 64, kPanelRowBytes);
    Tiles::template AddProduct<3, 4, 5>();
    ExpandPart(part + 3, exceptions >> 3 * kPartQuads);
  }

  void AddSums(int64_t block) {
    constexpr int64_t kStride = sizeof scratch_.sums[0];
    Tiles::template Store<0>(scratch_.sums[0], kStride);
    Tiles::template Store<1>(scratch_.sums[0] + 16, kStride);
    Tiles::template Store<2>(scratch_.sums[0] + 32, kStride);
    Tiles::template Store<3>(scratch_.sums[0] + 48, kStride);
    const __m512 scale = _mm512_set1_ps(p_.scale(row_, block));
    for (int64_t t = 0; t < p_.tokens; ++t) {
#pragma GCC unroll 4
      for (int i = 0; i < kRowGroup; i += 16) {
        const __m512 before = block == 0 ? _mm512_setzero_ps() : _mm512_load_ps(scratch_.totals[t] + i);
        _mm512_store_ps(scratch_.totals[t] + i, _mm512_fmadd_ps(_mm512_load_ps(scratch_.sums[t] + i), scale, before));
      }
    }
  }

  void Store() const {
    for (int64_t t = 0; t < p_.tokens; ++t) {
      StoreTotals(scratch_.totals[t], rows_, p_.add, p_.output(t, row_));
    }
  }

  const Problem& p_;
  FewTokensScratch& scratch_;
  const uint8_t* weights_;
  int64_t row_;
  int64_t rows_;
  int64_t far_bytes_ = p_.far_bytes(0);
  int64_t steps_ = CeilDiv(p_.w.cols, kStepInputs);
  int64_t whole_steps_ = p_.w.cols / kStepInputs;
  int64_t parts_ = whole_steps_ * kStepParts;  // left to expand
};

}  // namespace

template <typename Tiles>
static inline void MultiplyFewTokens(const Problem& p, int64_t row_begin, int64_t row_end) {
  // Tiles have as many rows of inputs and sums as there are tokens: 1.04 to 1.1 times as fast, and no read past the
  // end.
  TileConfig config = kTileConfig;
  for (int tile = 0; tile <= kGroupTiles; ++tile) config.rows[tile] = static_cast<uint8_t>(p.tokens);
  Tiles::Configure(config);
  FewTokensScratch scratch;
  for (int64_t row = row_begin; row < row_end; row += kRowGroup) {
    const int64_t rows = Min(kRowGroup, row_end - row);
    if (p.w.cached) {
      FewTokens<Tiles, true>(p, scratch, row, rows).Run();
    } else {
      FewTokens<Tiles, false>(p, scratch, row, rows).Run();
    }
  }
}

}  // namespace moestro::amx
