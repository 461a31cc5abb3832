// The inner loops of Linear: one block of at most 128 inputs x 64 rows for a few tokens, with all accumulators in
// registers. Every variant gives an output the same vdpbf16ps sequence in input order, then one fused multiply-add with
// the block's scale. So a row's bits do not depend on the variant or on the number of tokens in the call.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/avx512/simd.h"
#include "common/kernels/cpu/avx512_bf16/fp8.h"

namespace moestro::avx512_bf16 {

using avx512::KeepOrder;
using avx512::Prefetch;
using avx512::PrefetchFar;

constexpr int kVectors = avx512::kGroupVectors;
// Tokens per register block: 6 x 4 accumulators leave 8 of 32 registers for weights, inputs and FP8 tables.
constexpr int64_t kBlockTokens = 6;
static inline int64_t RegisterBlocks(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

constexpr int64_t kStepBytes = 256;  // one step of a group: 4 FP8 or 2 BF16 inputs
constexpr int64_t kGroupRows = 64;
// Far enough ahead for DRAM latency at the rate one core reads, near enough to stay in L1 until used. On Zen 5 FP8 GEMV
// from DRAM reaches 0.99 of read bandwidth with 4 and 6 KiB, 0.98 with 8, 0.97 with 16, 0.96 with 24. On Zen 4 FP8
// weights that are expanded on the fly are up to 1.03 times as fast with 4 KiB as with 6.
constexpr int64_t kPrefetchBytes = 6144, kFp8PrefetchBytes = 4096;

struct Block {
  const uint8_t* weights;  // first tile of the block
  int64_t quads;           // whole groups of 4 inputs
  int64_t tail;            // 0..3 remaining inputs: the weights are padded to 4, x is not
  float scale;
};

// Each token's inputs after the last whole quad, zero-padded: x is never read past its end.
template <int kTokens>
struct Tail {
  uint16_t x[kTokens][4];
};
template <int kTokens>
static inline Tail<kTokens> PadTail(const uint16_t* x, int64_t x_stride, int64_t tail) {
  Tail<kTokens> padded{};
  for (int t = 0; t < kTokens; ++t) {
    for (int64_t i = 0; i < tail; ++i) padded.x[t][i] = x[t * x_stride + i];
  }
  return padded;
}

namespace {  // for internal linkage of the members

// The inputs of a few tokens. Every token's address is one of two or three registers plus a multiple of the stride that
// an instruction can add. With one register per token, or computed offsets, the loops would run out of registers.
template <int kTokens>
class Inputs {
 public:
  [[gnu::always_inline]] inline Inputs(const uint16_t* x, int64_t stride)
      : first_(x),
        fourth_(kTokens > 3 ? x + 3 * stride : x),
        seventh_(kTokens > 6 ? x + 6 * stride : x),
        stride_(stride) {
    asm("" : "+r"(fourth_));  // keeps the compiler from recomputing it from first_
    if (kTokens > 6) asm("" : "+r"(seventh_));
  }

  [[gnu::always_inline]] inline const uint16_t* Of(int token) const {
    if (token < 3) return first_ + token * stride_;
    return token < 6 ? fourth_ + (token - 3) * stride_ : seventh_ + (token - 6) * stride_;
  }
  [[gnu::always_inline]] inline void Advance(int64_t inputs) {
    first_ += inputs;
    fourth_ += inputs;
    seventh_ += inputs;
  }

 private:
  const uint16_t* first_;
  const uint16_t* fourth_;
  const uint16_t* seventh_;
  int64_t stride_;
};

}  // namespace

[[gnu::always_inline]] static inline __m512i Pair(const uint16_t* x) {
  int bits;
  __builtin_memcpy(&bits, x, sizeof bits);
  return _mm512_set1_epi32(bits);
}
[[gnu::always_inline]] static inline __m512 DotPairs(__m512 sum, __m512i w, __m512i x) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
}

// Loads a line, then fetches another into L1. If the compiler gathers the fetches of several lines, GEMV from DRAM on a
// Xeon with AMX is 0.94 times as fast, and plain reading 0.9.
[[gnu::always_inline]] static inline __m512i LoadAndFetch(const uint8_t* line, const uint8_t* later) {
  __m512i bytes;
  __asm__ volatile("vmovdqu64 %1, %0\n\tprefetcht0 %2"
                   : "=v"(bytes)
                   : "m"(*reinterpret_cast<const __m512i_u*>(line)), "m"(*later));
  return bytes;
}

// FP8 tiles, expanded on the fly.
struct Fp8Weights {
  Fp8Expander expander = MakeFp8Expander();

  template <int kTokens>
  [[gnu::always_inline]] inline void AddQuad(const uint8_t* weights, int64_t quad, const uint16_t* x, int64_t x_stride,
                                             __m512 (&sums)[kTokens][kVectors]) const {
    const uint8_t* tiles = weights + quad * kStepBytes;
    AddTiles<kTokens>(tiles, tiles + kFp8PrefetchBytes, x, x_stride, sums);
  }

  // `next`: four lines to prefetch.
  template <int kTokens>
  [[gnu::always_inline]] inline void AddTiles(const uint8_t* tiles, const uint8_t* next, const uint16_t* x,
                                              int64_t x_stride, __m512 (&sums)[kTokens][kVectors]) const {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      __m512i w01, w23;
      ExpandCodes(expander, LoadAndFetch(tiles + v * 64, next + v * 64), &w01, &w23);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        sums[t][v] = DotPairs(sums[t][v], w01, Pair(x + t * x_stride));
        sums[t][v] = DotPairs(sums[t][v], w23, Pair(x + t * x_stride + 2));
      }
    }
  }
};

// BF16 tiles: published BF16 weights, or FP8 weights expanded into a panel.
template <bool kPrefetch>
struct Bf16BlockWeights {
  int64_t prefetch = kPrefetchBytes;  // prefetch distance in bytes

  template <int kTokens>
  [[gnu::always_inline]] inline void AddQuad(const uint8_t* weights, int64_t quad, const uint16_t* x, int64_t x_stride,
                                             __m512 (&sums)[kTokens][kVectors]) const {
    const Inputs<kTokens> inputs(x, x_stride);
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) AddPair(weights + (2 * quad + pair) * kStepBytes, inputs, 2 * pair, sums);
  }

  // The two inputs from `input` on.
  template <int kTokens>
  [[gnu::always_inline]] inline void AddPair(const uint8_t* tiles, const Inputs<kTokens>& inputs, int64_t input,
                                             __m512 (&sums)[kTokens][kVectors]) const {
    KeepOrder();
    __m512i w[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      if (kPrefetch) {  // so few products a line leave fetches into L1 too little time
        PrefetchFar(tiles + v * 64 + prefetch + kPrefetchBytes);
        Prefetch(tiles + v * 64 + prefetch);
      }
      w[v] = _mm512_loadu_si512(tiles + v * 64);
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const __m512i pair = Pair(inputs.Of(t) + input);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[t][v] = DotPairs(sums[t][v], w[v], pair);
    }
  }
};

// The destination of a group's 64 row sums: token t's at data + t * stride, any alignment.
struct Totals {
  float* data;
  int64_t stride;
  bool first;  // still empty: start from 0
};

// Loops over sums are unrolled by force: an array with a variable index would be kept in memory.
template <int kTokens>
[[gnu::always_inline]] static inline void ClearSums(__m512 (&sums)[kTokens][kVectors]) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[t][v] = _mm512_setzero_ps();
  }
}
template <int kTokens>
[[gnu::always_inline]] static inline void AddToTotals(const __m512 (&sums)[kTokens][kVectors], float scale,
                                                      const Totals& totals) {
  const Totals out = totals;  // in registers, despite writes through pointers
  const __m512 factor = _mm512_set1_ps(scale);
  if (out.first) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        _mm512_storeu_ps(out.data + t * out.stride + v * 16, _mm512_fmadd_ps(sums[t][v], factor, _mm512_setzero_ps()));
      }
    }
    return;
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* total = out.data + t * out.stride + v * 16;
      _mm512_storeu_ps(total, _mm512_fmadd_ps(sums[t][v], factor, _mm512_loadu_ps(total)));
    }
  }
}

// totals[t][r] += scale * (block's chain of row r and token t), for kTokens tokens.
template <int kTokens, typename Weights>
static inline void AddBlock(const Weights& weights, const Block& block, const uint16_t* x, int64_t x_stride,
                            const Totals& totals) {
  __m512 sums[kTokens][kVectors];
  ClearSums(sums);
#pragma GCC unroll 2
  for (int64_t quad = 0; quad < block.quads; ++quad) {
    weights.template AddQuad<kTokens>(block.weights, quad, x + 4 * quad, x_stride, sums);
  }
  if (block.tail != 0) {
    const Tail<kTokens> tail = PadTail<kTokens>(x + 4 * block.quads, x_stride, block.tail);
    weights.template AddQuad<kTokens>(block.weights, block.quads, tail.x[0], 4, sums);
  }
  AddToTotals(sums, block.scale, totals);
}

// Steps of an unrolled loop: side work beside the dot products knows its place among them.
constexpr int kUnrolledQuads = 4;

// No side work.
struct NoSideWork {
  static constexpr int64_t kCarriers = 0;  // register blocks that do side work
  [[gnu::always_inline]] inline void Step(int) {}
  [[gnu::always_inline]] inline void Advance() {}
};

// The same for a block in the cache, with a multiple of 16 inputs and no tail. Calls side_work.Step(i) once per 4
// inputs, with i = 0 .. 3 in turn, and Advance() after each 4 calls. This work uses other execution ports and overlaps
// with the dot products. No branch depends on it: a register block lasts only 800 cycles.
template <int kTokens, typename SideWork>
static inline void AddCachedBlock(const Block& block, const uint16_t* x, int64_t x_stride, const Totals& totals,
                                  SideWork& side_work) {
  const Bf16BlockWeights<false> weights;
  __m512 sums[kTokens][kVectors];
  ClearSums(sums);
  SideWork side = side_work;  // in registers, despite its writes
  Inputs<kTokens> inputs(x, x_stride);
  const uint8_t* tiles = block.weights;
  for (int64_t quad = 0; quad < block.quads; quad += kUnrolledQuads) {
#pragma GCC unroll 4
    for (int i = 0; i < kUnrolledQuads; ++i) {
      weights.AddPair(tiles + 2 * i * kStepBytes, inputs, 4 * i, sums);
      side.Step(i);
      weights.AddPair(tiles + (2 * i + 1) * kStepBytes, inputs, 4 * i + 2, sums);
    }
    tiles += 2 * kUnrolledQuads * kStepBytes;
    inputs.Advance(4 * kUnrolledQuads);
    side.Advance();
  }
  side_work = side;
  AddToTotals(sums, block.scale, totals);
}

}  // namespace moestro::avx512_bf16
