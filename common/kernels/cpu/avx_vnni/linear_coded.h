// Coded inputs by 256-bit vpdpbusd: policies for the loops of common/kernels/cpu/linear_i8.h and linear_spans.h.
// Compiled for AVX-VNNI, and by tests/common/kernels/avx_vnni for CPUs that have the instruction in AVX-512 only.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/avx2/linear_isa.h"
#include "common/kernels/cpu/coded_span.h"

namespace moestro::avx_vnni {

namespace {  // for internal linkage of the members

// Unsigned codes of inputs (+ 128) times signed weights.
struct AvxVnniI8 : avx2::Avx2I8 {
  using Weights = __m256i;
  using Inputs = __m256i;
  using Codes = uint8_t;
  static constexpr bool kPairsFirst = true;
  static constexpr bool kCompensated = true;
  // At most 12 sums: weights and inputs take 4 of 16 registers.
  static constexpr int VectorsAtOnce(int tokens) { return tokens == 1 ? 8 : tokens <= 3 ? 4 : 2; }

  [[gnu::always_inline]] static inline Codes FromCode(int32_t code) { return static_cast<Codes>(code + 128); }
  [[gnu::always_inline]] static inline Weights LoadWeights(const uint8_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  [[gnu::always_inline]] static inline Inputs LoadInputs(const Codes* codes) {
    int32_t four;
    __builtin_memcpy(&four, codes, sizeof four);
    return _mm256_set1_epi32(four);
  }
  [[gnu::always_inline]] static inline Vector Dot(Vector sum, Weights weights, Inputs inputs) {
    return _mm256_dpbusd_epi32(sum, inputs, weights);
  }
};

// Unsigned bytes of codes times signed codes of inputs.
struct AvxVnniSpans : avx2::Avx2Spans {
  static constexpr bool kSignedBytes = false;

  template <DType kType, int kCount, int kQuads>
  [[gnu::always_inline]] static inline void AddQuads(const uint8_t* panel, const int8_t* codes, int64_t stride,
                                                     Ints (&sums)[kCount][kVectors]) {
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q, panel += spans::kQuadBytes, codes += 4) {
      __m256i x[kCount];
#pragma GCC unroll 8
      for (int t = 0; t < kCount; ++t) {
        int32_t four;
        __builtin_memcpy(&four, codes + t * stride, sizeof four);
        x[t] = _mm256_set1_epi32(four);
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const __m256i bytes = _mm256_load_si256(reinterpret_cast<const __m256i*>(panel + v * kLanes * 4));
#pragma GCC unroll 8
        for (int t = 0; t < kCount; ++t) sums[t][v] = _mm256_dpbusd_epi32(sums[t][v], bytes, x[t]);
      }
    }
  }
};

}  // namespace

static inline void Encode(InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out) {
  if (coding == InputCoding::kSpans) return EncodeSpans(x, cols, out);
  linear_i8::EncodeRow<AvxVnniI8>(x, cols, out);
}

static inline void Multiply(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y,
                            int64_t y_stride, int64_t row_begin, int64_t row_end, bool add) {
  if (w.dtype != DType::kI8) {
    return spans::Linear<AvxVnniSpans>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
  }
  linear_i8::LinearCoded<AvxVnniI8>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

}  // namespace moestro::avx_vnni
