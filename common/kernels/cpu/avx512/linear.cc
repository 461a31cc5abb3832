// Policies for the loops of common/kernels/cpu/linear_f32.h, linear_i8.h and linear_spans.h.
#include "common/kernels/cpu/avx512/kernels.h"
#include "common/kernels/cpu/avx512/simd.h"
#include "common/kernels/cpu/avx512/span_bytes.h"
#include "common/kernels/cpu/linear_f32.h"
#include "common/kernels/cpu/linear_i8.h"
#include "common/kernels/cpu/linear_spans.h"

namespace moestro::avx512 {
namespace {

alignas(64) constexpr float kNibbles[3][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7},
    {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6},
};

// -32 .. 31 in BF16.
struct Integers {
  alignas(64) uint16_t bf16[64];

  constexpr Integers() : bf16() {
    for (int i = 0; i < 64; ++i) {
      bf16[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, static_cast<float>(i - 32)) >> 16);
    }
  }
};
constexpr Integers kIntegers;

struct Avx512Isa {
  using Vector = __m512;
  typedef uint32_t Words __attribute__((vector_size(64)));
  typedef int32_t SignedWords __attribute__((vector_size(64)));
  static constexpr int64_t kLanes = avx512::kLanes;

  // 6 tokens x 4 vectors leave 8 of 32 registers for weights and inputs.
  static constexpr int VectorsAtOnce(int) { return 4; }

  [[gnu::always_inline]] static inline Vector Zero() { return _mm512_setzero_ps(); }
  [[gnu::always_inline]] static inline Vector Broadcast(const float* p) { return _mm512_set1_ps(*p); }
  [[gnu::always_inline]] static inline Vector Fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  [[gnu::always_inline]] static inline Vector Add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  [[gnu::always_inline]] static inline Vector Mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  [[gnu::always_inline]] static inline float Sum(Vector v) { return _mm512_reduce_add_ps(v); }
  [[gnu::always_inline]] static inline Vector Load(const float* p) { return _mm512_load_ps(p); }
  [[gnu::always_inline]] static inline void Store(float* p, Vector v) { _mm512_store_ps(p, v); }
  [[gnu::always_inline]] static inline void StoreFirst(float* p, int64_t n, Vector v) {
    _mm512_mask_storeu_ps(p, FirstLanes(n), v);
  }
  [[gnu::always_inline]] static inline Vector FromF16(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  [[gnu::always_inline]] static inline Vector FromBf16Even(const uint8_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_load_si512(p), 16));
  }
  [[gnu::always_inline]] static inline Vector FromBf16Odd(const uint8_t* p) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_load_si512(p), _mm512_set1_epi32(-0x10000)));
  }
  [[gnu::always_inline]] static inline Vector FromF16Even(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_load_si512(p)));
  }
  [[gnu::always_inline]] static inline Vector FromF16Odd(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_load_si512(p), 16)));
  }
  [[gnu::always_inline]] static inline Vector FromBf16(const uint16_t* p) { return avx512::Load(p); }

  static inline bool ExpandPanel(const uint8_t* tiles, int64_t quads, uint8_t* panel) {
    const __m512i inputs01_then_23 = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const __m512i f16_bits = _mm512_set1_epi16(static_cast<int16_t>(0xbf80));
    const __m512i nan = _mm512_set1_epi8(0x7f);
    __m512i greatest = _mm512_setzero_si512();
    for (int64_t tile = 0; tile < 4 * quads; ++tile, tiles += 64, panel += 128) {
      linear_f32::Prefetch(tiles);
      const __m512i codes = _mm512_permutexvar_epi64(inputs01_then_23, _mm512_load_si512(tiles));
      greatest = _mm512_max_epu8(greatest, _mm512_and_si512(codes, nan));
      // The arithmetic shift keeps the sign and adds a second one, which the mask removes.
      const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(codes, 8), 1);
      const __m512i odd = _mm512_srai_epi16(codes, 1);
      _mm512_store_si512(panel, _mm512_and_si512(even, f16_bits));
      _mm512_store_si512(panel + 64, _mm512_and_si512(odd, f16_bits));
    }
    return _mm512_cmpeq_epi8_mask(greatest, nan) != 0;
  }

  [[gnu::always_inline]] static inline Words LoadWords(const uint8_t* p) {
    return reinterpret_cast<Words>(_mm512_load_si512(p));
  }
  [[gnu::always_inline]] static inline Vector FromInts(SignedWords words) {
    return _mm512_cvtepi32_ps(reinterpret_cast<__m512i>(words));
  }
  [[gnu::always_inline]] static inline Vector FromBits(Words words) { return reinterpret_cast<Vector>(words); }
  template <DType kType>
  [[gnu::always_inline]] static inline Vector FromNibble(Words words, int shift) {
    const float* values = kNibbles[kType == DType::kMXFP4 ? 2 : FormatOf(kType).has_mins ? 0 : 1];
    // The permutation looks at four bits of an index.
    return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(words >> shift), _mm512_load_ps(values));
  }
  template <DType kType>
  [[gnu::always_inline]] static inline Vector FromHalf(Words words, int odd) {
    constexpr int kFirst = FormatOf(kType).has_mins ? 0 : kType == DType::kQ5_0 ? -16 : -32;
    const auto codes = reinterpret_cast<__m512i>(words);
    const __m512i values = _mm512_loadu_si512(kIntegers.bf16 + 32 + kFirst);
    // The permutations look at five and six bits of an index.
    const auto pairs = reinterpret_cast<Words>(
        kType == DType::kQ6K ? _mm512_permutex2var_epi16(values, codes, _mm512_load_si512(kIntegers.bf16 + 32))
                             : _mm512_permutexvar_epi16(codes, values));
    return FromBits(odd == 0 ? pairs << 16 : pairs & 0xffff0000u);
  }
};

// Weights as words, two vectors: vpmaddwd adds two products of words, where vpmaddubsw would saturate.
struct Avx512I8 {
  using Vector = __m512i;
  struct Weights {
    __m512i first, last;  // inputs 0 1, inputs 2 3
  };
  struct Inputs {
    __m512i first, last;
  };
  using Codes = int16_t;
  static constexpr int64_t kLanes = 16;
  static constexpr bool kPairsFirst = false;
  static constexpr bool kCompensated = false;
  static constexpr int VectorsAtOnce(int) { return 4; }

  [[gnu::always_inline]] static inline Codes FromCode(int32_t code) { return static_cast<Codes>(code); }
  [[gnu::always_inline]] static inline Vector Zero() { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static inline Vector Load(const int32_t* p) { return _mm512_load_si512(p); }
  [[gnu::always_inline]] static inline void Store(int32_t* p, Vector v) { _mm512_store_si512(p, v); }
  [[gnu::always_inline]] static inline void Prefetch(const uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  [[gnu::always_inline]] static inline void PrefetchFar(const uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
  [[gnu::always_inline]] static inline Weights LoadWeights(const uint8_t* p) {
    const __m512i bytes = _mm512_load_si512(p);
    return {_mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8), _mm512_srai_epi16(bytes, 8)};
  }
  [[gnu::always_inline]] static inline Inputs LoadInputs(const Codes* codes) {
    int32_t first, last;
    __builtin_memcpy(&first, codes, sizeof first);
    __builtin_memcpy(&last, codes + 2, sizeof last);
    return {_mm512_set1_epi32(first), _mm512_set1_epi32(last)};
  }
  [[gnu::always_inline]] static inline Vector Dot(Vector sum, Weights weights, Inputs inputs) {
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(weights.first, inputs.first));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(weights.last, inputs.last));
  }
};

// Bytes of formats of blocks times coded spans by vpmaddubsw, whose sums of two products are words.
struct Avx512Spans : SpanBytes {
  using Floats = __m512;
  struct Scales {
    alignas(64) float scales[linear_f32::kMaxSubBlocks * kRowGroup];
    alignas(64) float mins[linear_f32::kMaxSubBlocks * kRowGroup];
  };
  static constexpr int kTokens = 4;
  static constexpr int kVectors = 4;
  static constexpr bool kSignedBytes = true;  // unsigned ones of 8 bits would saturate

  [[gnu::always_inline]] static inline void StoreWords(uint8_t* p, Words words) {
    _mm512_store_si512(p, reinterpret_cast<__m512i>(words));
  }
  [[gnu::always_inline]] static inline void Prefetch(const uint8_t* p) { linear_f32::Prefetch(p); }
  [[gnu::always_inline]] static inline Floats ToFloat(Ints v) { return _mm512_cvtepi32_ps(v); }
  [[gnu::always_inline]] static inline Floats ZeroFloats() { return _mm512_setzero_ps(); }
  [[gnu::always_inline]] static inline Floats Broadcast(float f) { return _mm512_set1_ps(f); }
  [[gnu::always_inline]] static inline Floats LoadFloats(const float* p) { return _mm512_load_ps(p); }
  [[gnu::always_inline]] static inline void StoreFloats(float* p, Floats v) { _mm512_store_ps(p, v); }
  [[gnu::always_inline]] static inline Floats Fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

  // A block of two spans is expanded with its first one.
  template <DType kType>
  static inline void ExpandScales(const uint8_t* header, int64_t span, int64_t slot, Scales* scales) {
    if (span == 1) return;
    const int64_t first = slot * spans::SubBlocks<kType>() * kRowGroup;
    linear_f32::ExpandScales<Avx512Isa, kType>(header, scales->scales + first, scales->mins + first);
  }
  template <DType kType>
  [[gnu::always_inline]] static inline const float* ScalesOf(const Scales& scales, int64_t slot) {
    return scales.scales + slot * spans::SubBlocks<kType>() * kRowGroup;
  }
  template <DType kType>
  [[gnu::always_inline]] static inline const float* MinsOf(const Scales& scales, int64_t slot) {
    return scales.mins + slot * spans::SubBlocks<kType>() * kRowGroup;
  }

  template <DType kType>
  [[gnu::always_inline]] static inline __m512i AddPairs(__m512i bytes, __m512i x) {
    if constexpr (kType == DType::kQ8_0) {
      const __m512i negated = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(bytes), _mm512_setzero_si512(), x);
      return _mm512_maddubs_epi16(_mm512_abs_epi8(bytes), negated);
    }
    return _mm512_maddubs_epi16(bytes, x);
  }
  // As many quads as words can sum, then pairs of words.
  template <DType kType, int kCount, int kQuads>
  [[gnu::always_inline]] static inline void AddQuads(const uint8_t* panel, const int8_t* codes, int64_t stride,
                                                     Ints (&sums)[kCount][kVectors]) {
    constexpr int kTurn = spans::QuadsOfWords<kType>();
    static_assert(kQuads % kTurn == 0);
#pragma GCC unroll 1
    for (int begin = 0; begin < kQuads; begin += kTurn, panel += kTurn * spans::kQuadBytes, codes += 4 * kTurn) {
      __m512i words[kCount][kVectors];
#pragma GCC unroll 8
      for (int q = 0; q < kTurn; ++q) {
        __m512i x[kCount];
#pragma GCC unroll 8
        for (int t = 0; t < kCount; ++t) {
          int32_t four;
          __builtin_memcpy(&four, codes + 4 * q + t * stride, sizeof four);
          x[t] = _mm512_set1_epi32(four);
        }
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const __m512i bytes = _mm512_load_si512(panel + q * spans::kQuadBytes + v * kLanes * 4);
#pragma GCC unroll 8
          for (int t = 0; t < kCount; ++t) {
            const __m512i pairs = AddPairs<kType>(bytes, x[t]);
            words[t][v] = q == 0 ? pairs : _mm512_add_epi16(words[t][v], pairs);
          }
        }
      }
#pragma GCC unroll 8
      for (int t = 0; t < kCount; ++t) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[t][v] = _mm512_add_epi32(sums[t][v], _mm512_madd_epi16(words[t][v], _mm512_set1_epi16(1)));
        }
      }
    }
  }
};

}  // namespace

void Linear(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
            int64_t row_begin, int64_t row_end) {
  linear_f32::Linear<Avx512Isa>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/false);
}

void LinearAdd(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
               int64_t row_begin, int64_t row_end) {
  linear_f32::Linear<Avx512Isa>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, /*add=*/true);
}

void EncodeInputs(InputCoding coding, const uint16_t* x, int64_t cols, uint8_t* out) {
  if (coding == InputCoding::kSpans) return EncodeSpans(x, cols, out);
  linear_i8::EncodeRow<Avx512I8>(x, cols, out);
}

void LinearCoded(const PackedMatrix& w, const uint8_t* x, int64_t x_stride, int64_t tokens, float* y, int64_t y_stride,
                 int64_t row_begin, int64_t row_end, bool add) {
  if (w.dtype != DType::kI8) {
    return spans::Linear<Avx512Spans>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
  }
  linear_i8::LinearCoded<Avx512I8>(w, x, x_stride, tokens, y, y_stride, row_begin, row_end, add);
}

}  // namespace moestro::avx512
