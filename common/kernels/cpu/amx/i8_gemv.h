// INT8 weights and one coded token, by vpdpbusd: four row groups are read side by side, as in gemv.h. From DRAM this is
// 1.08 times as fast as group after group. Sums are exact: their order does not matter (linear_i8.h of the folder
// above).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/amx/common.h"
#include "common/kernels/cpu/amx/gemv.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"
#include "common/kernels/cpu/linear_i8.h"

namespace moestro::amx {

constexpr int64_t kI8TurnInputs = 8;  // 512 bytes of a group, then of the next one

namespace {  // for internal linkage of the members

// How linear_i8.h reads coded rows here.
struct TileCodes {
  using Codes = uint8_t;
  static constexpr bool kCompensated = true;
};

}  // namespace

// sums: of the rows of kGroups groups. codes: of `cols` inputs, a multiple of 64.
template <int kGroups>
static inline void SumI8Groups(const uint8_t* group, int64_t cols, const uint8_t* codes, int32_t* sums) {
  const int64_t group_bytes = cols * kRowGroup;
  __m512i acc[kGroups][kVectors];
  for (auto& of_group : acc) {
    for (__m512i& sum : of_group) sum = _mm512_setzero_si512();
  }
  for (int64_t col = 0; col < cols; col += kI8TurnInputs) {
    const int64_t at = col * kRowGroup, ahead = BesideAhead(at, group_bytes, kGroups);
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const uint8_t* line = group + g * group_bytes + at;
#pragma GCC unroll 2
      for (int64_t i = 0; i < kI8TurnInputs; i += linear_i8::kInputs) {
        int32_t four;
        __builtin_memcpy(&four, codes + col + i, sizeof four);
        const __m512i inputs = _mm512_set1_epi32(four);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v, line += 64) {
          acc[g][v] = _mm512_dpbusd_epi32(acc[g][v], inputs, avx512_bf16::LoadAndFetch(line, line + ahead));
        }
      }
    }
  }
  for (const auto& of_group : acc) {
    for (const __m512i sum : of_group) {
      _mm512_store_si512(sums, sum);
      sums += kTileRows;
    }
  }
}

// Processes rows [row, row_end) while kGroups row groups are left; returns the next row. y starts at row_begin.
template <int kGroups>
static inline int64_t MultiplyI8Groups(const PackedMatrix& w, const linear_i8::CodedRows<TileCodes>& x, float* y,
                                       int64_t row_begin, int64_t row, int64_t row_end, bool add) {
  const int64_t cols = linear_i8::Padded(w.cols);
  alignas(64) int32_t sums[kGroups * kRowGroup];
  for (; row_end - row > (kGroups - 1) * kRowGroup; row += kGroups * kRowGroup) {
    SumI8Groups<kGroups>(w.data + row * cols, cols, x.Codes(0), sums);
    linear_i8::Scale(w, row, Min(kGroups * kRowGroup, row_end - row), x, 1, sums, y + (row - row_begin), 0, add);
  }
  return row;
}

static inline void MultiplyI8ByVectors(const PackedMatrix& w, const uint8_t* x, float* y, int64_t row_begin,
                                       int64_t row_end, bool add) {
  const linear_i8::CodedRows<TileCodes> codes{x, 0};
  int64_t row = MultiplyI8Groups<4>(w, codes, y, row_begin, row_begin, row_end, add);
  row = MultiplyI8Groups<2>(w, codes, y, row_begin, row, row_end, add);
  MultiplyI8Groups<1>(w, codes, y, row_begin, row, row_end, add);
}

}  // namespace moestro::amx
