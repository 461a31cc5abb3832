// `linear` for instruction sets that accumulate with F32 fused multiply-adds, for any vector width. Works on blocks of
// 128 inputs x 64 rows, or on sub-blocks. FP8 codes are expanded once, for all tokens, into a panel of F16 values; one
// conversion on load turns these into F32. BF16 weights are converted on load. I8 codes are decoded as those of Q8_0.
//
// E4M3 as F16: the code's 7 lower bits move to F16's 4 lower exponent bits and 3 upper mantissa bits. The result is the
// code's value times 2^-8, the difference of the biases, subnormals included. The block's scale absorbs the 2^8. NaN
// has no such form and is patched in. No published weight is NaN, so a block is searched only if its expansion saw one.
//
// Isa: the policy of linear_f32_block.h.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/linear_f32_block.h"
#include "common/kernels/cpu/linear_f32_formats.h"

namespace moestro::linear_f32 {

constexpr float kPanelScale = 0x1p8f;  // a code's value over its F16

// Codes 0x7f and 0xff became 480 * 2^-8, which no other code does.
static inline void PatchNans(uint8_t* panel, int64_t quads) {
  for (int64_t i = 0; i < quads * kPanelStepBytes; i += 2) {
    uint16_t f16;
    __builtin_memcpy(&f16, panel + i, sizeof f16);
    if ((f16 & 0x7fff) == 0x3f80) f16 = static_cast<uint16_t>(f16 | 0x7e00);
    __builtin_memcpy(panel + i, &f16, sizeof f16);
  }
}

// Adds all blocks of the row group at `row` to the totals.
template <typename Isa>
static inline void AddBlocks(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, int64_t row,
                             F32Scratch& scratch) {
  const int64_t blocks = (w.cols + kScaleBlock - 1) / kScaleBlock;
  // Of a type known here, or the compiler would keep a weak function of this instruction set.
  const int64_t group_bytes = w.dtype == DType::kI8       ? PackedGroupBytes(DType::kI8, w.cols)
                              : w.dtype == DType::kF8E4M3 ? PackedGroupBytes(DType::kF8E4M3, w.cols)
                                                          : PackedGroupBytes(DType::kBF16, w.cols);
  const uint8_t* group = w.data + row / kRowGroup * group_bytes;
  if (w.dtype == DType::kI8) __builtin_memcpy(scratch.scales, w.scales + row, kRowGroup * sizeof(float));  // aligned
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t col = b * kScaleBlock;
    const int64_t cols = Min(kScaleBlock, w.cols - col);
    const int64_t quads = PaddedCols(cols) / 4;
    const uint8_t* tiles = group + col * kRowGroup * DTypeBytes(w.dtype);
    const auto add = [&](const auto& weights, float scale) {
      AddBlockTokens<Isa>(weights, cols, x + col, x_stride, tokens, UniformScale<Isa>{scale}, scratch);
    };
    if (w.dtype == DType::kF8E4M3) {
      if (Isa::ExpandPanel(tiles, quads, scratch.panel)) PatchNans(scratch.panel, quads);
      add(PanelWeights<Isa>{scratch.panel}, w.scales[row / kScaleBlock * blocks + b] * kPanelScale);
    } else if (w.dtype == DType::kF16) {
      AddDecodedTokens<Isa>(F16Weights<Isa>{tiles}, cols, x + col, x_stride, tokens, UniformScale<Isa>{1.0f}, scratch);
    } else if (w.dtype == DType::kI8) {  // codes lie as those of Q8_0
      AddDecodedTokens<Isa>(Codes<Isa, DType::kQ8_0>{tiles}, cols, x + col, x_stride, tokens,
                            RowScales<Isa>{scratch.scales, nullptr, nullptr}, scratch);
    } else {
      add(Bf16Weights<Isa>{tiles}, 1.0f);
    }
  }
}

// Rows [row, min(row + 64, row_end)) for at most kBatchTokens tokens. y starts at `row`.
template <typename Isa>
static inline void LinearGroup(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                               int64_t y_stride, int64_t row, int64_t row_end, bool add, F32Scratch& scratch) {
  for (int64_t i = 0; i < tokens * kRowGroup; i += Isa::kLanes) Isa::Store(scratch.totals + i, Isa::Zero());
  (IsBlockFormat(w.dtype) ? AddFormat<Isa> : AddBlocks<Isa>)(w, x, x_stride, tokens, row, scratch);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < Min(kRowGroup, row_end - row); r += Isa::kLanes) {
      float* totals = scratch.totals + t * kRowGroup + r;
      float* out = y + t * y_stride + r;
      const int64_t lanes = Min(Isa::kLanes, row_end - row - r);
      for (int64_t lane = 0; add && lane < lanes; ++lane) totals[lane] += out[lane];
      Isa::StoreFirst(out, lanes, Isa::Load(totals));
    }
  }
}

template <typename Isa>
static inline void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                          int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  static_assert(kRowGroup % Isa::kLanes == 0 && kTileRows % Isa::kLanes == 0, "the packed layout");
  F32Scratch scratch;
  for (int64_t row = row_begin; row < row_end; row += kRowGroup) {
    for (int64_t t = 0; t < tokens; t += kBatchTokens) {
      LinearGroup<Isa>(w, x + t * x_stride, x_stride, Min(kBatchTokens, tokens - t),
                       y + t * y_stride + (row - row_begin), y_stride, row, row_end, add, scratch);
    }
  }
}

}  // namespace moestro::linear_f32
