// Vector instructions for one token, or two with BF16 weights: so few tokens leave tiles idle. The sums have a tile
// product's order (tiles.h), so the bits are the same. FP8 weights in a cache use tiles all the same, which takes 0.85
// of the time (fp8_few_tokens.h); from DRAM that takes 1.1 times as long.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/amx/fp8.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"

namespace moestro::amx {

constexpr int kVectors = 4;  // of 16 rows: one group

// FP8 weights from DRAM are read from 4 row groups side by side (2 if there are no more), this many quads of each in
// turn. They are prefetched only into L1, this far ahead in each group. This is 1.1 times as fast as group after group,
// of which 1.05 comes from bypassing L2. A single group without L2 is 0.8 times as fast. BF16 weights gain nothing from
// either. After the end of a group, the prefetch continues with the group that replaces it, not with its neighbour,
// which is in use: 1.01 to 1.03 times as fast.
constexpr int64_t kTurnQuads = 2;
constexpr int64_t kBesideNearBytes = 3072;

// The distance to what is fetched while a group's bytes from in_group on are used: behind its end comes the group that
// replaces it.
[[gnu::always_inline]] static inline int64_t BesideAhead(int64_t in_group, int64_t group_bytes, int64_t groups) {
  return kBesideNearBytes + (in_group + kBesideNearBytes < group_bytes ? 0 : (groups - 1) * group_bytes);
}

namespace {  // for internal linkage of the members

// Pairs of BF16 weights, (0, 1) and (2, 3) of 4 inputs, for the 16 rows of one vector. ahead: prefetch distance, into
// L1 if groups are side by side, otherwise into L2.
struct Fp8Quads {
  static constexpr int64_t kBytes = kPairBytes;
  static constexpr bool kScaled = true;

  template <bool kNormal, bool kBeside>
  [[gnu::always_inline]] inline void Get(const uint8_t* quad, int v, int64_t ahead, __m512i* w01, __m512i* w23) const {
    const uint8_t* line = quad + v * 64;
    __m512i codes;
    if (kBeside) {
      codes = avx512_bf16::LoadAndFetch(line, line + ahead);
    } else {
      PrefetchNear(line + kNearBytes);
      PrefetchFar(line + ahead);
      codes = _mm512_loadu_si512(line);
    }
    if (kNormal) {
      ExpandNormal(codes, w01, w23);
    } else {
      ExpandAny(codes, w01, w23);
    }
  }
};
struct Bf16Quads {
  static constexpr int64_t kBytes = 2 * kPairBytes;
  static constexpr bool kScaled = false;

  template <bool, bool>
  [[gnu::always_inline]] inline void Get(const uint8_t* quad, int v, int64_t ahead, __m512i* w01, __m512i* w23) const {
    for (int pair = 0; pair < 2; ++pair) {
      PrefetchNear(quad + pair * kPairBytes + v * 64 + kNearBytes);
      PrefetchFar(quad + pair * kPairBytes + v * 64 + ahead);
    }
    *w01 = _mm512_loadu_si512(quad + v * 64);
    *w23 = _mm512_loadu_si512(quad + kPairBytes + v * 64);
  }
};

}  // namespace

// Calls f(token, vector) for all combinations, unrolled: an array with a variable index would be kept in memory.
template <int kTokens, typename F>
[[gnu::always_inline]] static inline void ForAll(F f) {
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) f(t, v);
  }
}

[[gnu::always_inline]] static inline __m512 Even(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
[[gnu::always_inline]] static inline __m512 Odd(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
}

// Converts n elements to F32 and pads with zeros to kScaleBlock; reads no element past the n-th.
static inline void WidenInputs(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < kScaleBlock; i += 16) {
    const __mmask16 mask = n > i ? FirstLanes(n - i) : __mmask16{0};
    const __m256i bf16 = mask == 0 ? _mm256_setzero_si256() : _mm256_maskz_loadu_epi16(mask, x + i);
    _mm512_store_ps(out + i, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16)));
  }
}

namespace {

template <int kTokens>
struct VectorSums {
  __m512 v[kTokens][kVectors];

  [[gnu::always_inline]] inline void Clear() {
    ForAll<kTokens>([this](int t, int i) __attribute__((always_inline)) { v[t][i] = _mm512_setzero_ps(); });
  }
};

}  // namespace

// even, odd: sums of the 64 rows at `weights`, which receive the products of `quads` times 4 inputs.
template <bool kNormal, bool kBeside, int kTokens, typename Quads>
[[gnu::always_inline]] static inline void AddQuads(const Quads& source, const uint8_t* weights, const float* x,
                                                   int64_t quads, int64_t ahead, VectorSums<kTokens>* even_sums,
                                                   VectorSums<kTokens>* odd_sums) {
  VectorSums<kTokens> even = *even_sums, odd = *odd_sums;  // in registers
  for (int64_t quad = 0; quad < quads; ++quad, weights += Quads::kBytes) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      __m512i w01, w23;
      source.template Get<kNormal, kBeside>(weights, v, ahead, &w01, &w23);
      const __m512 w0 = Even(w01), w1 = Odd(w01), w2 = Even(w23), w3 = Odd(w23);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const float* xt = x + t * kScaleBlock + 4 * quad;
        even.v[t][v] = _mm512_fmadd_ps(w0, _mm512_set1_ps(xt[0]), even.v[t][v]);
        odd.v[t][v] = _mm512_fmadd_ps(w1, _mm512_set1_ps(xt[1]), odd.v[t][v]);
        even.v[t][v] = _mm512_fmadd_ps(w2, _mm512_set1_ps(xt[2]), even.v[t][v]);
        odd.v[t][v] = _mm512_fmadd_ps(w3, _mm512_set1_ps(xt[3]), odd.v[t][v]);
      }
    }
  }
  *even_sums = even;
  *odd_sums = odd;
}

namespace {

// Rows [row, row + rows) of kGroups row groups; only the last group may be short.
template <int kTokens, int kGroups, typename Quads>
class Groups {
 public:
  Groups(const Problem& p, int64_t row, int64_t rows) : p_(p), row_(row), rows_(rows) {}

  // FP8 sums are scaled per block. BF16 weights have one sum over all blocks; with `add` it starts from y.
  void Multiply() {
    alignas(64) float x[kTokens][kScaleBlock];
    VectorSums<kTokens> totals[kGroups], sums[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      totals[g].Clear();
      sums[g].Clear();
      if (!Quads::kScaled && p_.add) Load(g, &sums[g]);
    }
    for (int64_t block = 0; block < p_.blocks(); ++block) {
      const int64_t cols = p_.cols(block);
      for (int t = 0; t < kTokens; ++t) WidenInputs(p_.x + t * p_.x_stride + block * kScaleBlock, cols, x[t]);
      AddBlock(block, CeilDiv(cols, 4), x[0], sums);
      if (!Quads::kScaled) continue;
      for (int g = 0; g < kGroups; ++g) {
        const __m512 scale = _mm512_set1_ps(p_.scale(row_ + g * kRowGroup, block));
        ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) {
          totals[g].v[t][v] = _mm512_fmadd_ps(sums[g].v[t][v], scale, totals[g].v[t][v]);
        });
        sums[g].Clear();
      }
    }
    for (int g = 0; g < kGroups; ++g) {
      VectorSums<kTokens> y = Quads::kScaled ? totals[g] : sums[g];
      if (Quads::kScaled && p_.add) {
        VectorSums<kTokens> before;
        Load(g, &before);
        ForAll<kTokens>([&](int t, int v)
                            __attribute__((always_inline)) { y.v[t][v] = _mm512_add_ps(y.v[t][v], before.v[t][v]); });
      }
      Store(g, y);
    }
  }

 private:
  // x: [kTokens][kScaleBlock]
  [[gnu::always_inline]] inline void AddBlock(int64_t block, int64_t quads, const float* x,
                                              VectorSums<kTokens> (&sums)[kGroups]) const {
    constexpr bool kBeside = kGroups > 1;
    constexpr int64_t kTurn = Quads::kScaled ? kTurnQuads : kStepQuads;
    VectorSums<kTokens> even[kGroups], odd[kGroups];
    uint32_t exceptions[kGroups];
    for (int g = 0; g < kGroups; ++g) exceptions[g] = Quads::kScaled ? p_.exceptions(row_ + g * kRowGroup, block) : 0;
    for (int64_t step = 0; step < quads; step += kStepQuads) {
      for (int g = 0; g < kGroups; ++g) {
        even[g].Clear();
        odd[g].Clear();
      }
      const int64_t step_end = Min(step + kStepQuads, quads);
      for (int64_t quad = step; quad < step_end; quad += kTurn) {
        const int64_t count = Min(kTurn, step_end - quad);
        const int64_t ahead = Ahead(block, quad);
#pragma GCC unroll 1
        for (int g = 0; g < kGroups; ++g) {
          const uint8_t* weights = p_.weights(row_ + g * kRowGroup, block) + quad * Quads::kBytes;
          if ((exceptions[g] >> quad & ((1u << kTurnQuads) - 1)) == 0) [[likely]] {
            AddQuads<true, kBeside>(source_, weights, x + 4 * quad, count, ahead, &even[g], &odd[g]);
          } else {
            AddQuads<false, kBeside>(source_, weights, x + 4 * quad, count, ahead, &even[g], &odd[g]);
          }
        }
      }
      for (int g = 0; g < kGroups; ++g) {
        ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) {
          sums[g].v[t][v] = _mm512_add_ps(sums[g].v[t][v], _mm512_add_ps(even[g].v[t][v], odd[g].v[t][v]));
        });
      }
    }
  }

  [[gnu::always_inline]] inline int64_t Ahead(int64_t block, int64_t quad) const {
    if constexpr (kGroups == 1) return far_bytes_;
    const uint8_t* const group = p_.weights(row_, 0);
    return BesideAhead(p_.weights(row_, block) + quad * Quads::kBytes - group, p_.weights(row_ + kRowGroup, 0) - group,
                       kGroups);
  }

  float* Outputs(int g, int t, int v) const { return p_.output(t, row_ + g * kRowGroup + v * 16); }
  __mmask16 Lanes(int g, int v) const {
    const int64_t first = g * kRowGroup + v * 16;
    return rows_ > first ? FirstLanes(rows_ - first) : __mmask16{0};
  }
  [[gnu::always_inline]] inline void Load(int g, VectorSums<kTokens>* y) const {
    ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) {
      y->v[t][v] = _mm512_maskz_loadu_ps(Lanes(g, v), Outputs(g, t, v));
    });
  }
  [[gnu::always_inline]] inline void Store(int g, const VectorSums<kTokens>& y) const {
    ForAll<kTokens>([&](int t, int v) __attribute__((always_inline)) {
      _mm512_mask_storeu_ps(Outputs(g, t, v), Lanes(g, v), y.v[t][v]);
    });
  }

  const Problem& p_;
  int64_t row_;
  int64_t rows_;
  Quads source_;
  int64_t far_bytes_ = p_.far_bytes(kFarBytes);
};

}  // namespace

// Processes rows [row, row_end) while kGroups row groups are left; returns the next row.
template <int kTokens, int kGroups, typename Quads>
static inline int64_t MultiplyRows(const Problem& p, int64_t row, int64_t row_end) {
  constexpr int64_t kRows = kGroups * kRowGroup;
  for (; row_end - row > kRows - kRowGroup; row += kRows) {
    Groups<kTokens, kGroups, Quads>(p, row, Min(kRows, row_end - row)).Multiply();
  }
  return row;
}

static inline bool GoesByVectors(const Problem& p) {
  return p.is_fp8() ? p.tokens == 1 && !p.w.cached : p.tokens == 1 || p.tokens == 2;
}

static inline void MultiplyByVectors(const Problem& p, int64_t row, int64_t row_end) {
  if (p.tokens == 2) {
    MultiplyRows<2, 1, Bf16Quads>(p, row, row_end);
  } else if (!p.is_fp8()) {
    MultiplyRows<1, 1, Bf16Quads>(p, row, row_end);
  } else {
    row = MultiplyRows<1, 4, Fp8Quads>(p, row, row_end);
    row = MultiplyRows<1, 2, Fp8Quads>(p, row, row_end);
    MultiplyRows<1, 1, Fp8Quads>(p, row, row_end);
  }
}

}  // namespace moestro::amx
