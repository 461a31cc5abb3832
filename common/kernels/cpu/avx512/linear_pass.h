// Shared by the passes over row groups and tokens: how tokens are divided, and how totals reach the output.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/tensor/block_format.h"

namespace moestro::avx512 {

// Tokens whose totals are kept at once (whole register blocks of 3 or 6): 66 KiB of stack per row group, which stays in
// L2.
constexpr int64_t kBatchTokens = 264;

// Row groups that use a block of inputs in sequence, so that many tokens' inputs are read from memory once for all of
// them.
constexpr int64_t kPassGroups = 4;

static inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

template <int kValue>
struct Number {
  static constexpr int value = kValue;
};

// Calls f(number n as an integral constant). REQUIRES: 1 <= n <= kMost.
template <int kMost, typename F>
[[gnu::always_inline]] static inline void WithNumber(int64_t n, F f) {
  if constexpr (kMost == 1) {
    f(Number<1>());
  } else if (n == kMost) {
    f(Number<kMost>());
  } else {
    WithNumber<kMost - 1>(n, f);
  }
}

// Calls block(t, integral constant of the number of tokens, i) for register block i of n, tokens [t, t + number), at
// most kMost. Blocks have nearly equal sizes: the fewer tokens share a block's weights, the higher the cost per token.
template <int kMost, typename RegisterBlock>
[[gnu::always_inline]] static inline void ForRegisterBlocks(int64_t tokens, int64_t n, RegisterBlock block) {
  int64_t t = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t size = tokens / n + (i < tokens % n ? 1 : 0);
    WithNumber<kMost>(
        size, [&](auto number) __attribute__((always_inline)) { block(t, number, i); });
    t += size;
  }
}

// Stores or adds totals, [groups][kBatchTokens][kRowGroup], to `rows` columns of y.
static inline void StoreTotals(const float (*totals)[kBatchTokens * kRowGroup], int64_t rows, int64_t tokens, float* y,
                               int64_t y_stride, bool add) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < rows; r += 16) {
      const auto lanes = static_cast<__mmask16>((1u << Min(16, rows - r)) - 1);
      float* out = y + t * y_stride + r;
      __m512 sum = _mm512_load_ps(totals[r / kRowGroup] + t * kRowGroup + r % kRowGroup);
      if (add) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, out));
      _mm512_mask_storeu_ps(out, lanes, sum);
    }
  }
}

}  // namespace moestro::avx512
