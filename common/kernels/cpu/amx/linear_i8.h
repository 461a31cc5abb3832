// INT8 weights and activations by tiles of bytes: 16 tokens x 16 rows, 64 inputs deep, for two tokens or more. Coded
// rows are those of `avx512_bf16`: unsigned codes, + 128, in the order of the packed weights. So tiles load both
// factors in place, and zero padding completes the last step. Sums are exact: their order does not matter (linear_i8.h
// of the folder above).
#pragma once

#include <cstdint>

#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/amx/i8_gemv.h"
#include "common/kernels/cpu/linear_i8.h"

namespace moestro::amx {

constexpr int64_t kI8StepInputs = 64;
constexpr int64_t kI8StepBytes = kI8StepInputs * kRowGroup;
constexpr int64_t kI8StepPairs = kI8StepBytes / kPairBytes;
// A chunk of 512 inputs: the 32 KiB of weights of a row group stay in L1 for all tokens of a pass, whose codes come
// from L2 once. With 2048 inputs, half a group at a time, 128 tokens are 0.8 times as fast; with 256 or 1024, 0.8 and
// 0.9.
constexpr int64_t kI8ChunkSteps = 8;

namespace {  // for internal linkage of the members

// The sums of one row group at a time, for up to linear_i8::kMaxBatch tokens.
template <typename Tiles>
class I8Product {
 public:
  I8Product(const PackedMatrix& w, const linear_i8::CodedRows<TileCodes>& x, int64_t tokens, int32_t* sums)
      : w_(w), x_(x), tokens_(tokens), sums_(sums) {}

  void Run(int64_t row) {
    const uint8_t* group = w_.data + row / kRowGroup * steps_ * kI8StepBytes;
    // One tile of tokens reads each weight once, sequentially.
    const int64_t tiles = tokens_ <= kTileTokens ? 0 : tokens_ / kTileTokens;
    if (tiles > 0) RunTiles(group, tiles * kTileTokens);
    if (tokens_ > tiles * kTileTokens) RunRest(group, tiles * kTileTokens);
  }

 private:
  void RunTiles(const uint8_t* group, int64_t tokens) {
    Tiles::Configure();
    const int64_t pairs_beside = CeilDiv(kI8StepPairs, 2 * CeilDiv(tokens, kUnitTokens));
    for (int64_t step = 0; step < steps_; step += kI8ChunkSteps) {
      const int64_t steps = Min(kI8ChunkSteps, steps_ - step);
      const uint8_t* weights = group + step * kI8StepBytes;
      // What follows in memory is the next chunk, or the next row group.
      PendingPairs pending(weights + steps * kI8StepBytes, w_.cached ? 0 : steps * kI8StepPairs);
      for (int64_t token = 0; token < tokens; token += kUnitTokens) {
        const uint8_t* codes = x_.Codes(token) + step * kI8StepInputs;
        for (int half = 0; half < 2; ++half) {
          const uint8_t* tiles = weights + half * 2 * kTileRowBytes;
          int32_t* out = sums_ + token * kRowGroup + half * 2 * kTileRows;
          if (tokens - token > kTileTokens) {
            AddUnit<2>(tiles, steps, codes, step == 0, out, pending, pairs_beside);
          } else {
            AddUnit<1>(tiles, steps, codes, step == 0, out, pending, pairs_beside);
          }
        }
      }
    }
  }

  // kTokenTiles x 2 tiles of sums.
  template <int kTokenTiles>
  void AddUnit(const uint8_t* weights, int64_t steps, const uint8_t* codes, bool first, int32_t* sums,
               PendingPairs& pending, int64_t pairs_beside) const {
    constexpr int64_t kStride = kRowGroup * 4;
    int32_t* const second = sums + kTileTokens * kRowGroup;
    if (first) {
      Tiles::template Zero<0>();
      Tiles::template Zero<1>();
      Tiles::template Zero<2>();
      Tiles::template Zero<3>();
    } else {
      Tiles::template Load<0>(sums, kStride);
      Tiles::template Load<1>(sums + kTileRows, kStride);
      if constexpr (kTokenTiles == 2) {
        Tiles::template Load<2>(second, kStride);
        Tiles::template Load<3>(second + kTileRows, kStride);
      }
    }
    for (int64_t step = 0; step < steps; ++step, weights += kI8StepBytes, codes += kI8StepInputs) {
      Tiles::template Load<4>(codes, x_.stride);
      Tiles::template Load<6>(weights, kPairBytes);
      Tiles::template AddByteProduct<0, 4, 6>();
      pending.Fetch(pairs_beside);
      Tiles::template Load<7>(weights + kTileRowBytes, kPairBytes);
      Tiles::template AddByteProduct<1, 4, 7>();
      if constexpr (kTokenTiles == 2) {
        Tiles::template Load<5>(codes + kTileTokens * x_.stride, x_.stride);
        Tiles::template AddByteProduct<2, 5, 6>();
        Tiles::template AddByteProduct<3, 5, 7>();
      }
    }
    Tiles::template Store<0>(sums, kStride);
    Tiles::template Store<1>(sums + kTileRows, kStride);
    if constexpr (kTokenTiles == 2) {
      Tiles::template Store<2>(second, kStride);
      Tiles::template Store<3>(second + kTileRows, kStride);
    }
  }

  // The tokens from `token` on, at most 16, and all rows of the group.
  void RunRest(const uint8_t* group, int64_t token) const {
    constexpr int64_t kStride = kRowGroup * 4;
    TileConfig config = kTileConfig;
    for (int tile = 0; tile < 5; ++tile) config.rows[tile] = static_cast<uint8_t>(tokens_ - token);
    Tiles::Configure(config);
    Tiles::template Zero<0>();
    Tiles::template Zero<1>();
    Tiles::template Zero<2>();
    Tiles::template Zero<3>();
    const uint8_t* codes = x_.Codes(token);
    for (int64_t step = 0; step < steps_; ++step, group += kI8StepBytes, codes += kI8StepInputs) {
      Tiles::template Load<4>(codes, x_.stride);
      Tiles::template Load<5>(group, kPairBytes);
      Tiles::template AddByteProduct<0, 4, 5>();
      Fetch(group);
      Tiles::template Load<6>(group + kTileRowBytes, kPairBytes);
      Tiles::template AddByteProduct<1, 4, 6>();
      Fetch(group + kI8StepBytes / 4);
      Tiles::template Load<7>(group + 2 * kTileRowBytes, kPairBytes);
      Tiles::template AddByteProduct<2, 4, 7>();
      Fetch(group + kI8StepBytes / 2);
      Tiles::template Load<5>(group + 3 * kTileRowBytes, kPairBytes);
      Tiles::template AddByteProduct<3, 4, 5>();
      Fetch(group + kI8StepBytes / 4 * 3);
    }
    int32_t* const sums = sums_ + token * kRowGroup;
    Tiles::template Store<0>(sums, kStride);
    Tiles::template Store<1>(sums + kTileRows, kStride);
    Tiles::template Store<2>(sums + 2 * kTileRows, kStride);
    Tiles::template Store<3>(sums + 3 * kTileRows, kStride);
  }

  // What follows the quarter of a step at `place`.
  [[gnu::always_inline]] inline void Fetch(const uint8_t* place) const {
#pragma GCC unroll 4
    for (int i = 0; i < kI8StepPairs / 4; ++i, place += kPairBytes) {
      const uint8_t* far = SpreadAhead(place);
#pragma GCC unroll 4
      for (int64_t line = 0; line < kPairBytes; line += 64) {
        PrefetchNear(place + line + kNearBytes);
        if (!w_.cached) PrefetchFar(far + line);
      }
    }
  }

  const PackedMatrix& w_;
  const linear_i8::CodedRows<TileCodes> x_;
  const int64_t tokens_;
  int32_t* const sums_;  // [tokens][kRowGroup]
  const int64_t steps_ = CeilDiv(w_.cols, kI8StepInputs);
};

}  // namespace

// The arguments of linear_coded (kernels.h).
template <typename Tiles>
static inline void MultiplyI8(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                              int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  if (tokens == 1) return MultiplyI8ByVectors(w, x, y, row_begin, row_end, add);
  linear_i8::Scratch scratch;
  for (int64_t t = 0; t < tokens; t += linear_i8::kMaxBatch) {
    const int64_t count = Min(linear_i8::kMaxBatch, tokens - t);
    const linear_i8::CodedRows<TileCodes> rows{x + t * x_stride, x_stride};
    I8Product<Tiles> product(w, rows, count, scratch.sums);
    for (int64_t row = row_begin; row < row_end; row += kRowGroup) {
      product.Run(row);
      linear_i8::Scale(w, row, Min(kRowGroup, row_end - row), rows, count, scratch.sums,
                       y + t * y_stride + (row - row_begin), y_stride, add);
    }
  }
}

}  // namespace moestro::amx
