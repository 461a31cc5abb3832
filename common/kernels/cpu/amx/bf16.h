// Tiles for BF16 weights and more tokens than gemv.h takes. The accumulator tiles hold the outputs themselves. They
// start with zero, or with y, and are stored to y. So every output is one chain of tile products in input order,
// whatever the rest of the call. Edges are padded with zero inputs, or produce results for tokens that nobody reads.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/amx/common.h"

namespace moestro::amx {

constexpr int64_t kBf16StepBytes = kStepInputs / 2 * kPairBytes;  // a group's weights
// Tokens and rows that traverse a chunk of 1024 inputs together. These inputs, 512 KiB, and the outputs, 256 KiB, stay
// in L2. Chunks of 256 inputs, with more frequent output transfers, are 0.8 times as fast; chunks of 4096 are 0.7 to
// 0.9 times as fast.
constexpr int64_t kBf16PassTokens = 256;
constexpr int64_t kBf16PassRows = 4 * kRowGroup;
constexpr int64_t kBf16ChunkSteps = 32;

struct Bf16Scratch {
  alignas(64) uint16_t inputs[2][kTileTokens][kScaleBlock];
  alignas(64) uint8_t weights[kBf16StepBytes];
  alignas(64) float outputs[4][kTileTokens][kTileRows];
};

namespace {  // for internal linkage of the members

template <typename Tiles>
class Bf16Product {
 public:
  Bf16Product(const Problem& p, Bf16Scratch& scratch) : p_(p), scratch_(scratch) {}

  // At most kTileTokens tokens: reads each weight once, sequentially.
  void RunFew(int64_t row_begin, int64_t row_end) {
    for (int64_t row = row_begin; row < row_end; row += kRowGroup) {
      MultiplyUnit<1, 4>({.row = row, .row_end = row_end, .token_end = p_.tokens, .step_end = steps_});
    }
  }

  void RunMany(int64_t row_begin, int64_t row_end) {
    for (int64_t row = row_begin; row < row_end; row += kBf16PassRows) {
      for (int64_t token = 0; token < p_.tokens; token += kBf16PassTokens) {
        Pass(row, Min(row + kBf16PassRows, row_end), token, Min(token + kBf16PassTokens, p_.tokens));
      }
    }
  }

 private:
  // The outputs of a unit's tiles, from their first row and token on, and the steps whose products they receive.
  struct Unit {
    int64_t row = 0;
    int64_t row_end = 0;
    int64_t token = 0;
    int64_t token_end = 0;
    int64_t step = 0;
    int64_t step_end = 0;
  };
  void Pass(int64_t row_begin, int64_t row_end, int64_t token_begin, int64_t token_end) {
    const int64_t units = CeilDiv(token_end - token_begin, kUnitTokens);
    pairs_beside_ = CeilDiv(kBf16StepBytes / kPairBytes, 2 * units);
    for (int64_t step = 0; step < steps_; step += kBf16ChunkSteps) {
      const int64_t step_end = Min(step + kBf16ChunkSteps, steps_);
      for (int64_t row = row_begin; row < row_end; row += kRowGroup) {
        const uint8_t* next = row + kRowGroup < row_end ? Weights(row + kRowGroup, step) : Weights(row_begin, step_end);
        const int64_t far_bytes = p_.far_bytes(next - Weights(row, step));
        pending_ = {Weights(row, step) + far_bytes, fetches_ ? (step_end - step) * kBf16StepBytes / kPairBytes : 0};
        for (int64_t half = row; half < Min(row + kRowGroup, row_end); half += kRowGroup / 2) {
          for (int64_t token = token_begin; token < token_end; token += kUnitTokens) {
            const Unit unit = {half, row_end, token, token_end, step, step_end};
            if (token_end - token > kTileTokens) {
              MultiplyUnit<2, 2>(unit);
            } else {
              MultiplyUnit<1, 2>(unit);
            }
          }
        }
      }
    }
  }

  // Weights of the group with this row, or of its tiles from this row on.
  const uint8_t* Weights(int64_t row, int64_t step) const {
    return p_.weights(row / kRowGroup * kRowGroup, 0) + step * kBf16StepBytes + row % kRowGroup / kTileRows * 64;
  }

  // Inputs of a block for the unit's token tile `tile`: a copy if tokens or columns end within it.
  TileInputs InputsOf(const Unit& unit, int64_t block, int tile) {
    const int64_t token = unit.token + tile * kTileTokens;
    const int64_t tokens = Min(kTileTokens, unit.token_end - token);
    const int64_t cols = p_.cols(block);
    const uint16_t* x = p_.x + token * p_.x_stride + block * kScaleBlock;
    if (tokens == kTileTokens && cols % kStepInputs == 0) return {x, p_.x_stride * 2};
    uint16_t(*copy)[kScaleBlock] = scratch_.inputs[tile];
    for (int64_t t = 0; t < tokens; ++t) CopyInputs(x + t * p_.x_stride, cols, copy[t]);
    for (int64_t t = tokens; t < kTileTokens; ++t) {
      for (int64_t i = 0; i < cols; i += kStepInputs) _mm512_store_si512(copy[t] + i, _mm512_setzero_si512());
    }
    return {copy[0], kScaleBlock * 2};
  }

  // The step in which columns end: the existing weights, then zeros.
  const uint8_t* LastWeights(int64_t row) {
    const int64_t pairs = PaddedCols(p_.w.cols - whole_steps_ * kStepInputs) / 2;
    const uint8_t* weights = Weights(row / kRowGroup * kRowGroup, whole_steps_);
    __builtin_memcpy(scratch_.weights, weights, static_cast<size_t>(pairs * kPairBytes));
    __builtin_memset(scratch_.weights + pairs * kPairBytes, 0,
                     static_cast<size_t>(kBf16StepBytes - pairs * kPairBytes));
    return scratch_.weights + row % kRowGroup / kTileRows * 64;
  }

  template <int kTokenTiles, int kRowTiles>
  void MultiplyUnit(const Unit& unit) {
    if (unit.step == 0 && !p_.add) {
      ZeroOutputs();
    } else {
      LoadOutput<0, kRowTiles>(unit);
      LoadOutput<1, kRowTiles>(unit);
      if (kTokenTiles * kRowTiles == 4) {
        LoadOutput<2, kRowTiles>(unit);
        LoadOutput<3, kRowTiles>(unit);
      }
    }
    for (int64_t step = unit.step; step < unit.step_end;) {
      const int64_t block = step / kBlockSteps;
      const TileInputs a = InputsOf(unit, block, 0);
      const TileInputs b = kTokenTiles == 2 ? InputsOf(unit, block, 1) : a;
      const int64_t end = Min(unit.step_end, (block + 1) * kBlockSteps);
      for (; step < end; ++step) {
        const uint8_t* weights = step == whole_steps_ ? LastWeights(unit.row) : Weights(unit.row, step);
        const int64_t at = step % kBlockSteps * kStepInputs;
        MultiplyStep<kTokenTiles, kRowTiles>({a.x + at, a.stride}, {b.x + at, b.stride}, weights,
                                             Weights(unit.row, step));
      }
    }
    StoreOutput<0, kRowTiles>(unit);
    StoreOutput<1, kRowTiles>(unit);
    if (kTokenTiles * kRowTiles == 4) {
      StoreOutput<2, kRowTiles>(unit);
      StoreOutput<3, kRowTiles>(unit);
    }
  }

  // place: the address of the weights, copied or not.
  template <int kTokenTiles, int kRowTiles>
  [[gnu::always_inline]] inline void MultiplyStep(const TileInputs& a, const TileInputs& b, const uint8_t* weights,
                                                  const uint8_t* place) {
    constexpr int kSecond = kRowTiles;  // first accumulator of the second token tile
    Tiles::template Load<4>(a.x, a.stride);
    Tiles::template Load<6>(weights, kPairBytes);
    Tiles::template AddProduct<0, 4, 6>();
    FetchBeside<kRowTiles>(place);
    Tiles::template Load<7>(weights + 64, kPairBytes);
    Tiles::template AddProduct<1, 4, 7>();
    if constexpr (kTokenTiles == 2) {
      Tiles::template Load<5>(b.x, b.stride);
      Tiles::template AddProduct<kSecond, 5, 6>();
      Tiles::template AddProduct<kSecond + 1, 5, 7>();
    }
    if constexpr (kRowTiles == 4) {
      FetchBeside<kRowTiles>(place + 4 * kPairBytes);
      Tiles::template Load<5>(weights + 128, kPairBytes);
      Tiles::template AddProduct<2, 4, 5>();
      FetchBeside<kRowTiles>(place + 8 * kPairBytes);
      Tiles::template Load<6>(weights + 192, kPairBytes);
      Tiles::template AddProduct<3, 4, 6>();
      FetchBeside<kRowTiles>(place + 12 * kPairBytes);
    }
  }

  // Prefetches, for few tokens, everything after the four pairs at `place`; otherwise some of the pending memory.
  template <int kRowTiles>
  [[gnu::always_inline]] inline void FetchBeside(const uint8_t* place) {
    if constexpr (kRowTiles == 2) {
      pending_.Fetch(pairs_beside_);
    } else {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, place += kPairBytes) {
#pragma GCC unroll 4
        for (int64_t line = 0; line < kPairBytes; line += 64) PrefetchNear(place + line + kNearBytes);
        if (!fetches_) continue;
        const uint8_t* far = FarPair(place, far_bytes_);
#pragma GCC unroll 4
        for (int64_t line = 0; line < kPairBytes; line += 64) PrefetchFar(far + line);
      }
    }
  }

  static void ZeroOutputs() {
    Tiles::template Zero<0>();
    Tiles::template Zero<1>();
    Tiles::template Zero<2>();
    Tiles::template Zero<3>();
  }

  // The outputs of an accumulator tile; smaller than a tile at the edge of the call.
  struct Output {
    float* y;
    int64_t tokens;
    int64_t rows;

    bool whole() const { return tokens == kTileTokens && rows >= kTileRows; }
  };
  template <int kTile, int kRowTiles>
  Output OutputOf(const Unit& unit) const {
    const int64_t token = unit.token + kTile / kRowTiles * kTileTokens;
    const int64_t row = unit.row + kTile % kRowTiles * kTileRows;
    return {p_.output(token, row), Min(kTileTokens, unit.token_end - token), unit.row_end - row};
  }

  template <int kTile, int kRowTiles>
  void LoadOutput(const Unit& unit) {
    const Output out = OutputOf<kTile, kRowTiles>(unit);
    if (out.whole()) {
      Tiles::template Load<kTile>(out.y, p_.y_stride * 4);
      return;
    }
    const __mmask16 lanes = out.rows > 0 ? FirstLanes(out.rows) : __mmask16{0};
    for (int64_t t = 0; t < kTileTokens; ++t) {
      const __m512 y = t < out.tokens ? _mm512_maskz_loadu_ps(lanes, out.y + t * p_.y_stride) : _mm512_setzero_ps();
      _mm512_store_ps(scratch_.outputs[kTile][t], y);
    }
    Tiles::template Load<kTile>(scratch_.outputs[kTile], sizeof scratch_.outputs[kTile][0]);
  }

  template <int kTile, int kRowTiles>
  void StoreOutput(const Unit& unit) {
    const Output out = OutputOf<kTile, kRowTiles>(unit);
    if (out.whole()) {
      Tiles::template Store<kTile>(out.y, p_.y_stride * 4);
      return;
    }
    if (out.rows <= 0) return;
    Tiles::template Store<kTile>(scratch_.outputs[kTile], sizeof scratch_.outputs[kTile][0]);
    const __mmask16 lanes = FirstLanes(out.rows);
    for (int64_t t = 0; t < out.tokens; ++t) {
      _mm512_mask_storeu_ps(out.y + t * p_.y_stride, lanes, _mm512_load_ps(scratch_.outputs[kTile][t]));
    }
  }

  const Problem& p_;
  Bf16Scratch& scratch_;
  int64_t steps_ = CeilDiv(p_.w.cols, kStepInputs);
  int64_t whole_steps_ = p_.w.cols / kStepInputs;
  bool fetches_ = p_.w.prefetch != nullptr || !p_.w.cached;  // whether anything is prefetched into L2
  int64_t far_bytes_ = p_.far_bytes(0);
  PendingPairs pending_;
  int64_t pairs_beside_ = 0;  // prefetched per step
};

}  // namespace

template <typename Tiles>
static inline void MultiplyBf16(const Problem& p, int64_t row_begin, int64_t row_end) {
  Tiles::Configure();
  Bf16Scratch scratch;
  Bf16Product<Tiles> product(p, scratch);
  if (p.tokens <= kTileTokens) {
    product.RunFew(row_begin, row_end);
  } else {
    product.RunMany(row_begin, row_end);
  }
}

}  // namespace moestro::amx
