// The loops of `linear` for instruction sets that accumulate with F32 fused multiply-adds, for any vector width. They
// work on blocks of 128 inputs x 64 rows. FP8 codes are expanded once, for all tokens, into a panel of F16 values; one
// conversion on load turns these into F32. BF16 weights are converted on load. Every output has the same fused
// multiply-adds in input order, for any number of tokens.
//
// E4M3 as F16: the code's 7 lower bits move to F16's 4 lower exponent bits and 3 upper mantissa bits. The result is the
// code's value times 2^-8, the difference of the biases, subnormals included. The block's scale absorbs the 2^8. NaN
// has no such form and is patched in. No published weight is NaN, so a block is searched only if its expansion saw one.
//
// `Isa` is a struct of inlined static functions with internal linkage (see avx512/linear.cc and avx2/linear.cc):
//   Vector, kLanes                     kLanes F32 values, one per row
//   VectorsAtOnce(tokens)              row vectors whose sums are in registers together; a divisor of 64 / kLanes
//   Zero, Broadcast(p), Fma(a, b, c)   Fma is a * b + c, rounded once
//   Load(p), Store(p, v)               p is aligned to the vector
//   StoreFirst(p, n, v)                writes only the first n lanes, p unaligned
//   FromF16(p)                         kLanes F16 values, p aligned
//   FromBf16(p)                        kLanes BF16 values, p unaligned
//   FromBf16Even(p), FromBf16Odd(p)    every other one of 2 * kLanes BF16 values, p aligned
//   ExpandPanel(tiles, quads, panel)   FP8 tiles to the panel that PanelWeights reads; returns whether a code is NaN
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/tensor/packed_matrix.h"

namespace moestro::linear_f32 {

constexpr int64_t kStepBytes = 256;       // one step of a group: 4 FP8 or 2 BF16 inputs
constexpr int64_t kPanelStepBytes = 512;  // 4 F16 inputs of a group
constexpr float kPanelScale = 0x1p8f;     // a code's value over its F16
// Tokens per register block: the number of uses of each weight converted to F32.
constexpr int64_t kBlockTokens = 6;
// Tokens whose totals are kept at once (whole register blocks): 66 KiB of stack, which stays in L2 beside the panel.
constexpr int64_t kBatchTokens = 44 * kBlockTokens;
// Far enough ahead for DRAM latency at the rate one core reads, near enough to stay in cache until used.
constexpr int64_t kPrefetchBytes = 8192;

static inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

[[gnu::always_inline]] static inline void Prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p) + kPrefetchBytes, _MM_HINT_T0);
}

struct F32Scratch {
  alignas(64) float totals[kBatchTokens * kRowGroup];
  alignas(64) uint8_t panel[kScaleBlock / 4 * kPanelStepBytes];
  alignas(64) float x[kBlockTokens * kScaleBlock];
};

// Weight sources: Get(quad, input, v) returns input 0..3 of a quad (4 inputs) for the v-th vector of rows.

// F16 panel: [quads][64 / kLanes vectors of rows][inputs 0, 2, 1, 3][kLanes rows], the order of unpacked words.
template <typename Isa>
struct PanelWeights {
  const uint8_t* panel;

  [[gnu::always_inline]] inline typename Isa::Vector Get(int64_t quad, int input, int v) const {
    const int place = input % 2 * 2 + input / 2;
    return Isa::FromF16(panel + quad * kPanelStepBytes + (v * 4 + place) * Isa::kLanes * 2);
  }
  [[gnu::always_inline]] inline void PrefetchQuad(int64_t) const {}
};

// Published BF16 weights.
template <typename Isa>
struct Bf16Weights {
  const uint8_t* tiles;

  [[gnu::always_inline]] inline typename Isa::Vector Get(int64_t quad, int input, int v) const {
    const uint8_t* pairs = tiles + (2 * quad + input / 2) * kStepBytes + v * Isa::kLanes * 4;
    return input % 2 == 0 ? Isa::FromBf16Even(pairs) : Isa::FromBf16Odd(pairs);
  }
  [[gnu::always_inline]] inline void PrefetchQuad(int64_t quad) const {
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) Prefetch(tiles + 2 * quad * kStepBytes + line * 64);
  }
};

// totals[t][r] += scale * (chain of row r and token t over 4 * quads inputs), for the rows of kVectors vectors from
// `first` on; x is F32 [kTokens][kScaleBlock].
template <typename Isa, int kTokens, int kVectors, typename Weights>
[[gnu::always_inline]] static inline void AddRows(const Weights& weights, int first, int64_t quads, const float* x,
                                                  float scale, float* totals) {
  typename Isa::Vector sums[kTokens][kVectors];
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kVectors; ++v) sums[t][v] = Isa::Zero();
  }
  for (int64_t quad = 0; quad < quads; ++quad) {
    if (first == 0) weights.PrefetchQuad(quad);
#pragma GCC unroll 4
    for (int input = 0; input < 4; ++input) {
      const float* inputs = x + 4 * quad + input;
      if constexpr (kTokens < kVectors) {  // all tokens' inputs in registers, one vector of weights at a time
        typename Isa::Vector values[kTokens];
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) values[t] = Isa::Broadcast(inputs + t * kScaleBlock);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const typename Isa::Vector w = weights.Get(quad, input, first + v);
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) sums[t][v] = Isa::Fma(w, values[t], sums[t][v]);
        }
      } else {  // all weights in registers, one token at a time
        typename Isa::Vector w[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) w[v] = weights.Get(quad, input, first + v);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const typename Isa::Vector value = Isa::Broadcast(inputs + t * kScaleBlock);
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) sums[t][v] = Isa::Fma(w[v], value, sums[t][v]);
        }
      }
    }
  }
  const typename Isa::Vector factor = Isa::Broadcast(&scale);
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      float* total = totals + t * kRowGroup + (first + v) * Isa::kLanes;
      Isa::Store(total, Isa::Fma(sums[t][v], factor, Isa::Load(total)));
    }
  }
}

// The same for all 64 rows.
template <typename Isa, int kTokens, typename Weights>
static inline void AddBlock(const Weights& weights, int64_t quads, const float* x, float scale, float* totals) {
  constexpr int kVectors = Isa::VectorsAtOnce(kTokens);
  for (int first = 0; first < kRowGroup / Isa::kLanes; first += kVectors) {
    AddRows<Isa, kTokens, kVectors>(weights, first, quads, x, scale, totals);
  }
}

// Converts `cols` elements of each token to F32, zero-padded to whole quads: x is never read past its end.
template <typename Isa>
static inline void WidenInputs(const uint16_t* x, int64_t x_stride, int64_t tokens, int64_t cols, float* out) {
  for (int64_t t = 0; t < tokens; ++t, x += x_stride, out += kScaleBlock) {
    int64_t i = 0;
    for (; i + Isa::kLanes <= cols; i += Isa::kLanes) Isa::Store(out + i, Isa::FromBf16(x + i));
    for (; i < PaddedCols(cols); ++i) {
      const uint32_t bits = i < cols ? static_cast<uint32_t>(x[i]) << 16 : 0;
      __builtin_memcpy(out + i, &bits, sizeof bits);
    }
  }
}

// One block for any number of tokens, in register blocks of nearly equal size: 8 tokens are 4 + 4, not 6 + 2.
template <typename Isa, typename Weights>
static inline void AddBlockTokens(const Weights& weights, int64_t cols, const uint16_t* x, int64_t x_stride,
                                  int64_t tokens, float scale, F32Scratch& scratch) {
  const int64_t quads = PaddedCols(cols) / 4;
  const int64_t register_blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  const int64_t size = (tokens + register_blocks - 1) / register_blocks;
  for (int64_t t = 0; t < tokens; t += size) {
    const int64_t count = Min(size, tokens - t);
    float* totals = scratch.totals + t * kRowGroup;
    WidenInputs<Isa>(x + t * x_stride, x_stride, count, cols, scratch.x);
    switch (count) {
      case 1:
        AddBlock<Isa, 1>(weights, quads, scratch.x, scale, totals);
        break;
      case 2:
        AddBlock<Isa, 2>(weights, quads, scratch.x, scale, totals);
        break;
      case 3:
        AddBlock<Isa, 3>(weights, quads, scratch.x, scale, totals);
        break;
      case 4:
        AddBlock<Isa, 4>(weights, quads, scratch.x, scale, totals);
        break;
      case 5:
        AddBlock<Isa, 5>(weights, quads, scratch.x, scale, totals);
        break;
      default:
        static_assert(kBlockTokens == 6);
        AddBlock<Isa, 6>(weights, quads, scratch.x, scale, totals);
        break;
    }
  }
}

// Codes 0x7f and 0xff became 480 * 2^-8, which no other code does.
static inline void PatchNans(uint8_t* panel, int64_t quads) {
  for (int64_t i = 0; i < quads * kPanelStepBytes; i += 2) {
    uint16_t f16;
    __builtin_memcpy(&f16, panel + i, sizeof f16);
    if ((f16 & 0x7fff) == 0x3f80) f16 = static_cast<uint16_t>(f16 | 0x7e00);
    __builtin_memcpy(panel + i, &f16, sizeof f16);
  }
}

// Rows [row, min(row + 64, row_end)) for at most kBatchTokens tokens. y starts at `row`.
template <typename Isa>
static inline void LinearGroup(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y,
                               int64_t y_stride, int64_t row, int64_t row_end, bool add, F32Scratch& scratch) {
  const bool is_fp8 = w.dtype == DType::kF8E4M3;
  const int64_t column_bytes = kRowGroup * (is_fp8 ? 1 : 2);
  const uint8_t* group = w.data + row / kRowGroup * PaddedCols(w.cols) * column_bytes;
  const int64_t blocks = (w.cols + kScaleBlock - 1) / kScaleBlock;
  for (int64_t i = 0; i < tokens * kRowGroup; i += Isa::kLanes) Isa::Store(scratch.totals + i, Isa::Zero());
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t col = b * kScaleBlock;
    const int64_t cols = Min(kScaleBlock, w.cols - col);
    const uint8_t* tiles = group + col * column_bytes;
    if (is_fp8) {
      const int64_t quads = PaddedCols(cols) / 4;
      if (Isa::ExpandPanel(tiles, quads, scratch.panel)) PatchNans(scratch.panel, quads);
      const float scale = w.scales[row / kScaleBlock * blocks + b] * kPanelScale;
      AddBlockTokens<Isa>(PanelWeights<Isa>{scratch.panel}, cols, x + col, x_stride, tokens, scale, scratch);
    } else {
      AddBlockTokens<Isa>(Bf16Weights<Isa>{tiles}, cols, x + col, x_stride, tokens, 1.0f, scratch);
    }
  }
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
