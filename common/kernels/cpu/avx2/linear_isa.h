// Policies for the loops of common/kernels/cpu/linear_f32.h, linear_i8.h and linear_spans.h.
#pragma once

#include "common/kernels/cpu/avx2/simd.h"
#include "common/kernels/cpu/linear_f32.h"
#include "common/kernels/cpu/linear_i8.h"
#include "common/kernels/cpu/linear_spans.h"

namespace moestro::avx2 {

namespace {  // for internal linkage of the members

struct Avx2Isa {
  using Vector = __m256;
  typedef uint32_t Words __attribute__((vector_size(32)));
  typedef int32_t SignedWords __attribute__((vector_size(32)));
  static constexpr int64_t kLanes = avx2::kLanes;

  // At most 12 sums, so that weights and inputs fit beside them in 16 registers. At least 8, because a core starts two
  // fused multiply-adds per cycle, each with a latency of four.
  static constexpr int VectorsAtOnce(int tokens) { return tokens == 1 ? 8 : tokens <= 3 ? 4 : 2; }

  [[gnu::always_inline]] static inline Vector Zero() { return _mm256_setzero_ps(); }
  [[gnu::always_inline]] static inline Vector Broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  [[gnu::always_inline]] static inline Vector Fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  [[gnu::always_inline]] static inline Vector Add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  [[gnu::always_inline]] static inline Vector Mul(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  [[gnu::always_inline]] static inline float Sum(Vector v) { return avx2::Sum(v); }
  [[gnu::always_inline]] static inline Vector Load(const float* p) { return _mm256_load_ps(p); }
  [[gnu::always_inline]] static inline void Store(float* p, Vector v) { _mm256_store_ps(p, v); }
  [[gnu::always_inline]] static inline void StoreFirst(float* p, int64_t n, Vector v) { avx2::StoreFirst(p, n, v); }
  [[gnu::always_inline]] static inline Vector FromF16(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static inline __m256i Pairs(const uint8_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  [[gnu::always_inline]] static inline Vector FromBf16Even(const uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(Pairs(p), 16));
  }
  [[gnu::always_inline]] static inline Vector FromBf16Odd(const uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_and_si256(Pairs(p), _mm256_set1_epi32(-0x10000)));
  }
  // The even ones of 16 F16 values, then the odd ones.
  [[gnu::always_inline]] static inline __m256i SplitF16(const uint8_t* p) {
    const __m256i even = _mm256_and_si256(Pairs(p), _mm256_set1_epi32(0xffff));
    const __m256i split = _mm256_packus_epi32(even, _mm256_srli_epi32(Pairs(p), 16));
    return _mm256_permute4x64_epi64(split, _MM_SHUFFLE(3, 1, 2, 0));
  }
  [[gnu::always_inline]] static inline Vector FromF16Even(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm256_castsi256_si128(SplitF16(p)));
  }
  [[gnu::always_inline]] static inline Vector FromF16Odd(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm256_extracti128_si256(SplitF16(p), 1));
  }
  [[gnu::always_inline]] static inline Vector FromBf16(const uint16_t* p) { return avx2::Load(p); }

  static inline bool ExpandPanel(const uint8_t* tiles, int64_t quads, uint8_t* panel) {
    const __m256i f16_bits = _mm256_set1_epi16(static_cast<int16_t>(0xbf80));
    const __m256i nan = _mm256_set1_epi8(0x7f);
    __m256i greatest = _mm256_setzero_si256();
    for (int64_t half_tile = 0; half_tile < 8 * quads; ++half_tile, tiles += 32, panel += 64) {
      if (half_tile % 2 == 0) linear_f32::Prefetch(tiles);
      // Inputs 0 and 1 of 8 rows, then inputs 2 and 3.
      const __m256i codes = _mm256_permute4x64_epi64(Pairs(tiles), _MM_SHUFFLE(3, 1, 2, 0));
      greatest = _mm256_max_epu8(greatest, _mm256_and_si256(codes, nan));
      // The arithmetic shift keeps the sign and adds a second one, which the mask removes.
      const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 1);
      const __m256i odd = _mm256_srai_epi16(codes, 1);
      _mm256_store_si256(reinterpret_cast<__m256i*>(panel), _mm256_and_si256(even, f16_bits));
      _mm256_store_si256(reinterpret_cast<__m256i*>(panel + 32), _mm256_and_si256(odd, f16_bits));
    }
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(greatest, nan)) != 0;
  }

  [[gnu::always_inline]] static inline Words LoadWords(const uint8_t* p) { return reinterpret_cast<Words>(Pairs(p)); }
  [[gnu::always_inline]] static inline Vector FromInts(SignedWords words) {
    return _mm256_cvtepi32_ps(reinterpret_cast<__m256i>(words));
  }
  [[gnu::always_inline]] static inline Vector FromBits(Words words) { return reinterpret_cast<Vector>(words); }
  template <DType kType>
  [[gnu::always_inline]] static inline Vector FromNibble(Words words, int shift) {
    if constexpr (kType == DType::kMXFP4) {
      // The permutation looks at three bits of an index; the fourth is the sign.
      const __m256 magnitudes = _mm256_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6);
      const __m256 magnitude = _mm256_permutevar8x32_ps(magnitudes, reinterpret_cast<__m256i>(words >> shift));
      return _mm256_or_ps(magnitude, FromBits((words << (28 - shift)) & 0x80000000u));
    } else if constexpr (FormatOf(kType).has_mins) {
      return FromInts(reinterpret_cast<SignedWords>((words >> shift) & 15u));
    } else {  // with its upper bit flipped, the code is a signed number
      return FromInts(reinterpret_cast<SignedWords>((words ^ 0x88888888u) << (28 - shift)) >> 28);
    }
  }
  template <DType kType>
  [[gnu::always_inline]] static inline Vector FromHalf(Words words, int odd) {
    constexpr uint32_t kMask = kType == DType::kQ6K ? 0x003f003f : 0x001f001f;
    constexpr float kMiddle = FormatOf(kType).has_mins ? 0 : kType == DType::kQ5_0 ? 16 : 32;
    // With this upper half, a small number in the lower half is the number + 2^23.
    const __m256i upper = _mm256_set1_epi32(0x4b000000);
    const Words codes = words & kMask;
    const __m256i sum = odd == 0 ? _mm256_blend_epi16(reinterpret_cast<__m256i>(codes), upper, 0xaa)
                                 : _mm256_or_si256(reinterpret_cast<__m256i>(codes >> 16), upper);
    return _mm256_sub_ps(_mm256_castsi256_ps(sum), _mm256_set1_ps(0x1p23f + kMiddle));
  }
};

// Weights as words, two vectors: vpmaddwd adds two products of words, where vpmaddubsw would saturate.
struct Avx2I8 {
  using Vector = __m256i;
  struct Weights {
    __m256i first, last;  // inputs 0 1, inputs 2 3
  };
  struct Inputs {
    __m256i first, last;
  };
  using Codes = int16_t;
  static constexpr int64_t kLanes = 8;
  static constexpr bool kPairsFirst = false;
  static constexpr bool kCompensated = false;
  // At most 8 sums: weights and inputs take 8 more of 16 registers.
  static constexpr int VectorsAtOnce(int tokens) { return tokens == 1 ? 8 : tokens == 2 ? 4 : 2; }

  [[gnu::always_inline]] static inline Codes FromCode(int32_t code) { return static_cast<Codes>(code); }
  [[gnu::always_inline]] static inline Vector Zero() { return _mm256_setzero_si256(); }
  [[gnu::always_inline]] static inline Vector Load(const int32_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  [[gnu::always_inline]] static inline void Store(int32_t* p, Vector v) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), v);
  }
  [[gnu::always_inline]] static inline void Prefetch(const uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  [[gnu::always_inline]] static inline void PrefetchFar(const uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
  [[gnu::always_inline]] static inline Weights LoadWeights(const uint8_t* p) {
    const __m256i bytes = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
  }
  [[gnu::always_inline]] static inline Inputs LoadInputs(const Codes* codes) {
    int32_t first, last;
    __builtin_memcpy(&first, codes, sizeof first);
    __builtin_memcpy(&last, codes + 2, sizeof last);
    return {_mm256_set1_epi32(first), _mm256_set1_epi32(last)};
  }
  [[gnu::always_inline]] static inline Vector Dot(Vector sum, Weights weights, Inputs inputs) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(weights.first, inputs.first));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(weights.last, inputs.last));
  }
};

// Bytes of formats of blocks times coded spans by vpmaddubsw, whose sums of two products are words.
struct Avx2Spans {
  using Words = Avx2Isa::Words;
  using Ints = __m256i;
  using Floats = __m256;
  struct Scales {
    alignas(64) float scales[linear_f32::kMaxSubBlocks * kRowGroup];
    alignas(64) float mins[linear_f32::kMaxSubBlocks * kRowGroup];
  };
  static constexpr int64_t kLanes = Avx2Isa::kLanes;
  static constexpr int kTokens = 4;
  static constexpr int kVectors = 2;
  static constexpr bool kSignedBytes = true;  // unsigned ones of 8 bits would saturate

  [[gnu::always_inline]] static inline Words LoadWords(const uint8_t* p) { return Avx2Isa::LoadWords(p); }
  [[gnu::always_inline]] static inline void StoreWords(uint8_t* p, Words words) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(words));
  }
  [[gnu::always_inline]] static inline Words LookUp(const spans::ByteTable& table, Words words) {
    const __m256i entries = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table.bytes)));
    return reinterpret_cast<Words>(_mm256_shuffle_epi8(entries, reinterpret_cast<__m256i>(words & 0x0f0f0f0fu)));
  }
  template <int kPlace>
  [[gnu::always_inline]] static inline Words FifthBits(Words words) {
    return Merge(0x00ff00ff, spans::Shift(words, 4 - kPlace), spans::Shift(words, 10 - kPlace));
  }
  [[gnu::always_inline]] static inline Words Merge(uint32_t mask, Words a, Words b) { return (a & mask) | (b & ~mask); }
  [[gnu::always_inline]] static inline void Prefetch(const uint8_t* p) { linear_f32::Prefetch(p); }
  [[gnu::always_inline]] static inline Ints ZeroInts() { return _mm256_setzero_si256(); }
  [[gnu::always_inline]] static inline Ints StartOf(const int32_t* p) { return _mm256_set1_epi32(*p); }
  template <int kBits>
  [[gnu::always_inline]] static inline Ints ShiftLeft(Ints v) {
    return _mm256_slli_epi32(v, kBits);
  }
  [[gnu::always_inline]] static inline Floats ToFloat(Ints v) { return _mm256_cvtepi32_ps(v); }
  [[gnu::always_inline]] static inline Floats ZeroFloats() { return _mm256_setzero_ps(); }
  [[gnu::always_inline]] static inline Floats Broadcast(float f) { return _mm256_set1_ps(f); }
  [[gnu::always_inline]] static inline Floats LoadFloats(const float* p) { return _mm256_load_ps(p); }
  [[gnu::always_inline]] static inline void StoreFloats(float* p, Floats v) { _mm256_store_ps(p, v); }
  [[gnu::always_inline]] static inline Floats Fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

  // A block of two spans is expanded with its first one.
  template <DType kType>
  static inline void ExpandScales(const uint8_t* header, int64_t span, int64_t slot, Scales* scales) {
    if (span == 1) return;
    const int64_t first = slot * spans::SubBlocks<kType>() * kRowGroup;
    linear_f32::ExpandScales<Avx2Isa, kType>(header, scales->scales + first, scales->mins + first);
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
  [[gnu::always_inline]] static inline __m256i AddPairs(__m256i bytes, __m256i x) {
    if constexpr (kType == DType::kQ8_0) {
      return _mm256_maddubs_epi16(_mm256_abs_epi8(bytes), _mm256_sign_epi8(x, bytes));
    }
    return _mm256_maddubs_epi16(bytes, x);
  }
  // As many quads as words can sum, then pairs of words.
  template <DType kType, int kCount, int kQuads>
  [[gnu::always_inline]] static inline void AddQuads(const uint8_t* panel, const int8_t* codes, int64_t stride,
                                                     Ints (&sums)[kCount][kVectors]) {
    constexpr int kTurn = spans::QuadsOfWords<kType>();
    static_assert(kQuads % kTurn == 0);
#pragma GCC unroll 1
    for (int begin = 0; begin < kQuads; begin += kTurn, panel += kTurn * spans::kQuadBytes, codes += 4 * kTurn) {
      __m256i words[kCount][kVectors];
#pragma GCC unroll 8
      for (int q = 0; q < kTurn; ++q) {
        __m256i x[kCount];
#pragma GCC unroll 8
        for (int t = 0; t < kCount; ++t) {
          int32_t four;
          __builtin_memcpy(&four, codes + 4 * q + t * stride, sizeof four);
          x[t] = _mm256_set1_epi32(four);
        }
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const __m256i bytes =
              _mm256_load_si256(reinterpret_cast<const __m256i*>(panel + q * spans::kQuadBytes + v * kLanes * 4));
#pragma GCC unroll 8
          for (int t = 0; t < kCount; ++t) {
            const __m256i pairs = AddPairs<kType>(bytes, x[t]);
            words[t][v] = q == 0 ? pairs : _mm256_add_epi16(words[t][v], pairs);
          }
        }
      }
#pragma GCC unroll 8
      for (int t = 0; t < kCount; ++t) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[t][v] = _mm256_add_epi32(sums[t][v], _mm256_madd_epi16(words[t][v], _mm256_set1_epi16(1)));
        }
      }
    }
  }
};

}  // namespace

}  // namespace moestro::avx2
