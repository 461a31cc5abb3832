// One block of inputs x 64 rows of `linear`, with F32 multiply-adds, for any vector width and any number of tokens.
// Every output has the same fused multiply-adds in input order.
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
//   FromF16Even(p), FromF16Odd(p)      the same of F16 values
//   Add(a, b), Mul(a, b), Sum(v)       Sum adds the lanes in a fixed order
//   ExpandPanel(tiles, quads, panel)   FP8 tiles to the panel that PanelWeights reads; returns whether a code is NaN
//   Words, SignedWords                 kLanes integers of 32 bits, as vectors of the compiler
//   LoadWords(p), FromInts(w), FromBits(w)     p aligned; FromInts converts signed numbers
//   FromNibble<type>(words, shift)     what the four bits of each word from bit `shift` on stand for, unscaled
//   FromHalf<type>(words, odd)         the same of the five or six lower bits of each lower or upper (odd) half
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/tensor/packed_matrix.h"

namespace moestro::linear_f32 {

constexpr int64_t kStepBytes = 256;       // one step of a group: 4 FP8 or 2 BF16 inputs
constexpr int64_t kPanelStepBytes = 512;  // 4 F16 inputs of a group
// Tokens per register block: the number of uses of each weight converted to F32.
constexpr int64_t kBlockTokens = 6;
// Tokens whose totals are kept at once (whole register blocks): 66 KiB of stack, which stays in L2 beside the panel.
constexpr int64_t kBatchTokens = 44 * kBlockTokens;
// Far enough ahead for DRAM latency at the rate one core reads, near enough to stay in cache until used.
constexpr int64_t kPrefetchBytes = 8192;
constexpr int64_t kMaxSubBlocks = 16;  // of a packed block

static inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

[[gnu::always_inline]] static inline void Prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p) + kPrefetchBytes, _MM_HINT_T0);
}

struct F32Scratch {
  alignas(64) float totals[kBatchTokens * kRowGroup];
  alignas(64) uint8_t panel[kScaleBlock * kRowGroup * sizeof(float)];  // of F16 or F32 values
  alignas(64) float x[kBlockTokens * kScaleBlock];
  float minus_sums[kBlockTokens];  // of x
  alignas(64) float scales[kMaxSubBlocks * kRowGroup];
  alignas(64) float mins[kMaxSubBlocks * kRowGroup];
};

// Weight sources: Get(quad, input, v) returns input 0..3 of a quad (4 inputs) for the v-th vector of rows. kDecoded: of
// a step of kInputs inputs, and it takes more than an instruction or two.

// F16 panel: [quads][64 / kLanes vectors of rows][inputs 0, 2, 1, 3][kLanes rows], the order of unpacked words.
template <typename Isa>
struct PanelWeights {
  static constexpr bool kDecoded = false;
  const uint8_t* panel;

  [[gnu::always_inline]] inline typename Isa::Vector Get(int64_t quad, int input, int v) const {
    const int place = input % 2 * 2 + input / 2;
    return Isa::FromF16(panel + quad * kPanelStepBytes + (v * 4 + place) * Isa::kLanes * 2);
  }
  [[gnu::always_inline]] inline void PrefetchQuad(int64_t) const {}
};

// F32 panel: [quads][4 inputs][64 rows].
template <typename Isa>
struct F32PanelWeights {
  static constexpr bool kDecoded = false;
  const uint8_t* panel;

  [[gnu::always_inline]] inline typename Isa::Vector Get(int64_t quad, int input, int v) const {
    return Isa::Load(reinterpret_cast<const float*>(panel) + (4 * quad + input) * kRowGroup + v * Isa::kLanes);
  }
  [[gnu::always_inline]] inline void PrefetchQuad(int64_t) const {}
};

// Published BF16 weights.
template <typename Isa>
struct Bf16Weights {
  static constexpr bool kDecoded = false;
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

// Published F16 weights.
template <typename Isa>
struct F16Weights {
  static constexpr bool kDecoded = true;
  static constexpr int kInputs = 4;
  const uint8_t* tiles;

  [[gnu::always_inline]] inline typename Isa::Vector Get(int64_t quad, int input, int v) const {
    const uint8_t* pairs = tiles + (2 * quad + input / 2) * kStepBytes + v * Isa::kLanes * 4;
    return input % 2 == 0 ? Isa::FromF16Even(pairs) : Isa::FromF16Odd(pairs);
  }
  [[gnu::always_inline]] inline void PrefetchStep(int64_t quad) const {
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) Prefetch(tiles + 2 * quad * kStepBytes + line * 64);
  }
};

// Scales: AddTo(total, sum, v, t) adds the scaled sum of the v-th vector of rows and token t to their total.

// One scale for all rows.
template <typename Isa>
struct UniformScale {
  float scale;

  [[gnu::always_inline]] inline void SumInputs(int64_t, int64_t, F32Scratch&) const {}
  [[gnu::always_inline]] inline typename Isa::Vector AddTo(typename Isa::Vector total, typename Isa::Vector sum, int,
                                                           int) const {
    return Isa::Fma(sum, Isa::Broadcast(&scale), total);
  }
};

// Each row has a scale and, unless `mins` is null, a min that multiplies the sum of the inputs.
template <typename Isa>
struct RowScales {
  const float* scales;
  const float* mins;
  const float* minus_sums;  // of a token's inputs

  // Vector by vector, then the lanes.
  inline void SumInputs(int64_t tokens, int64_t cols, F32Scratch& scratch) const {
    for (int64_t t = 0; mins != nullptr && t < tokens; ++t) {
      const float* x = scratch.x + t * kScaleBlock;
      typename Isa::Vector sum = Isa::Load(x);
      for (int64_t i = Isa::kLanes; i < cols; i += Isa::kLanes) sum = Isa::Add(sum, Isa::Load(x + i));
      scratch.minus_sums[t] = -Isa::Sum(sum);
    }
  }
  [[gnu::always_inline]] inline typename Isa::Vector AddTo(typename Isa::Vector total, typename Isa::Vector sum, int v,
                                                           int t) const {
    const typename Isa::Vector scaled = Isa::Fma(sum, Isa::Load(scales + v * Isa::kLanes), total);
    if (mins == nullptr) return scaled;
    return Isa::Fma(Isa::Load(mins + v * Isa::kLanes), Isa::Broadcast(minus_sums + t), scaled);
  }
};

// totals[t][r] += scale * (chain of row r and token t over 4 * quads inputs), for the rows of kVectors vectors from
// `first` on; x is F32 [kTokens][kScaleBlock].
template <typename Isa, int kTokens, int kVectors, typename Weights, typename Scale>
[[gnu::always_inline]] static inline void AddRows(const Weights& weights, int first, int64_t quads, const float* x,
                                                  const Scale& scale, float* totals) {
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
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      float* total = totals + t * kRowGroup + (first + v) * Isa::kLanes;
      Isa::Store(total, scale.AddTo(Isa::Load(total), sums[t][v], first + v, t));
    }
  }
}

// The same for weights that are decoded, Weights::kInputs inputs at a step: vector by vector, so that a step's words
// stay in a register.
template <typename Isa, int kTokens, int kVectors, typename Weights, typename Scale>
[[gnu::always_inline]] static inline void AddDecodedRows(const Weights& weights, int first, int64_t quads,
                                                         const float* x, const Scale& scale, float* totals) {
  typename Isa::Vector sums[kTokens][kVectors];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[t][v] = Isa::Zero();
  }
  for (int64_t step = 0; step < 4 * quads / Weights::kInputs; ++step) {
    if (first == 0) weights.PrefetchStep(step);
    const float* inputs = x + step * Weights::kInputs;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
      for (int input = 0; input < Weights::kInputs; ++input) {
        const typename Isa::Vector w = weights.Get(step, input, first + v);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          sums[t][v] = Isa::Fma(w, Isa::Broadcast(inputs + t * kScaleBlock + input), sums[t][v]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* total = totals + t * kRowGroup + (first + v) * Isa::kLanes;
      Isa::Store(total, scale.AddTo(Isa::Load(total), sums[t][v], first + v, t));
    }
  }
}

// The same for all 64 rows.
template <typename Isa, int kTokens, typename Weights, typename Scale>
static inline void AddBlock(const Weights& weights, int64_t quads, const float* x, const Scale& scale, float* totals) {
  constexpr int kVectors = Isa::VectorsAtOnce(kTokens);
  for (int first = 0; first < kRowGroup / Isa::kLanes; first += kVectors) {
    if constexpr (Weights::kDecoded) {
      AddDecodedRows<Isa, kTokens, kVectors>(weights, first, quads, x, scale, totals);
    } else {
      AddRows<Isa, kTokens, kVectors>(weights, first, quads, x, scale, totals);
    }
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
template <typename Isa, typename Weights, typename Scale>
static inline void AddBlockTokens(const Weights& weights, int64_t cols, const uint16_t* x, int64_t x_stride,
                                  int64_t tokens, const Scale& scale, F32Scratch& scratch) {
  const int64_t quads = PaddedCols(cols) / 4;
  const int64_t register_blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  const int64_t size = (tokens + register_blocks - 1) / register_blocks;
  for (int64_t t = 0; t < tokens; t += size) {
    const int64_t count = Min(size, tokens - t);
    float* totals = scratch.totals + t * kRowGroup;
    WidenInputs<Isa>(x + t * x_stride, x_stride, count, cols, scratch.x);
    scale.SumInputs(count, cols, scratch);
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

// The panel that F32PanelWeights reads.
template <typename Isa, typename Weights>
static inline void ExpandWeights(const Weights& weights, int64_t steps, float* panel) {
  for (int64_t step = 0; step < steps; ++step) {
    weights.PrefetchStep(step);
#pragma GCC unroll 8
    for (int v = 0; v < kRowGroup / Isa::kLanes; ++v) {
#pragma GCC unroll 8
      for (int input = 0; input < Weights::kInputs; ++input) {
        Isa::Store(panel + (step * Weights::kInputs + input) * kRowGroup + v * Isa::kLanes,
                   weights.Get(step, input, v));
      }
    }
  }
}

// AddBlockTokens for weights that take several instructions to decode: a single register block decodes them as it
// multiplies, several use a panel.
template <typename Isa, typename Weights, typename Scale>
static inline void AddDecodedTokens(const Weights& weights, int64_t cols, const uint16_t* x, int64_t x_stride,
                                    int64_t tokens, const Scale& scale, F32Scratch& scratch) {
  if (tokens <= kBlockTokens) {
    AddBlockTokens<Isa>(weights, cols, x, x_stride, tokens, scale, scratch);
  } else {
    ExpandWeights<Isa>(weights, PaddedCols(cols) / Weights::kInputs, reinterpret_cast<float*>(scratch.panel));
    AddBlockTokens<Isa>(F32PanelWeights<Isa>{scratch.panel}, cols, x, x_stride, tokens, scale, scratch);
  }
}

}  // namespace moestro::linear_f32
