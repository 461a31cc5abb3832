// Formats of blocks (common/tensor/block_format.h): the headers of packed blocks to scales and mins in F32. It is
// exact: a scale is F16 times at most 8 bits.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/avx512/simd.h"
#include "common/tensor/block_format.h"

namespace moestro::avx512 {

constexpr int kByMask = 0xd8;  // ternary logic: bits of the second operand where the third has ones, else of the first

// With two cores at 38 GB/s each, one to three tokens are up to 1.1 times as fast as with 6 KiB; 12 and 16 are no
// better.
constexpr int64_t kCodesAhead = 8192;

constexpr int64_t kSpanInputs = 128;  // the unit of the loops: a packed block has one or two spans
constexpr int kMaxSubBlocks = 8;      // of a span

// Of a span's sub-blocks and a group's rows.
struct SpanScales {
  alignas(64) float scales[kMaxSubBlocks][kRowGroup];
  alignas(64) float mins[kSpanInputs / 32][kRowGroup];  // where the format has mins
};

[[gnu::always_inline]] static inline __m512 FromF16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// Indices of vpshufb that move byte j of each lane to the top, above zeros.
struct ByteMoves {
  alignas(64) uint8_t indices[4][64];
};
static constexpr ByteMoves MakeByteMoves() {
  ByteMoves moves{};
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 64; ++i) {
      moves.indices[j][i] = static_cast<uint8_t>(i % 4 == 3 ? i % 16 / 4 * 4 + j : 0x80);
    }
  }
  return moves;
}
static constexpr ByteMoves kByteMoves = MakeByteMoves();
constexpr float kByteUnit = 0x1p-24f;

// Byte j of each lane, signed, over kByteUnit.
[[gnu::always_inline]] static inline __m512 ByteToF32(__m512i lanes, int j) {
  return _mm512_cvtepi32_ps(_mm512_shuffle_epi8(lanes, _mm512_load_si512(kByteMoves.indices[j])));
}
// Scales that multiply such bytes.
[[gnu::always_inline]] static inline __m512 ByteScales(const uint8_t* f16) {
  return _mm512_mul_ps(FromF16(f16), _mm512_set1_ps(kByteUnit));
}

// The 6-bit scales and mins of 16 rows, four sub-blocks of a span, a byte each. parts: bytes 0-3, 4-7, 8-11 of
// ggml's 12.
[[gnu::always_inline]] static inline void SixBits(const uint8_t* parts, int64_t span, __m512i* scales, __m512i* mins) {
  const __m512i first = _mm512_loadu_si512(parts), second = _mm512_loadu_si512(parts + 64);
  if (span == 0) {
    *scales = _mm512_and_si512(first, _mm512_set1_epi8(0x3f));
    *mins = _mm512_and_si512(second, _mm512_set1_epi8(0x3f));
    return;
  }
  const __m512i third = _mm512_loadu_si512(parts + 128);
  const __m512i low = _mm512_set1_epi8(0x0f), lower_six = _mm512_set1_epi8(0x3f);
  // The upper two bits of the first and second part are bits 4 and 5.
  const __m512i scale_high = _mm512_srli_epi16(first, 2), min_high = _mm512_srli_epi16(second, 2);
  *scales = _mm512_and_si512(_mm512_ternarylogic_epi32(scale_high, third, low, kByMask), lower_six);
  *mins = _mm512_and_si512(_mm512_ternarylogic_epi32(min_high, _mm512_srli_epi16(third, 4), low, kByMask), lower_six);
}

// What ExpandHeader fetches beside a block's first span: the header kCodesAhead behind, into L1 or L2.
enum class HeaderFetch { kNone, kNear, kFar };

// Scales and mins of a span of a packed block with this header.
template <DType kType, HeaderFetch kFetch = HeaderFetch::kNear>
static inline void ExpandHeader(const uint8_t* header, int64_t span, SpanScales* out) {
  constexpr BlockFormat kFormat = FormatOf(kType);
  constexpr int64_t kTileBytes = kFormat.header_bytes / kGroupVectors;  // of most formats
  if (kFetch != HeaderFetch::kNone && span == 0) {
    for (int64_t line = 0; line < kFormat.header_bytes; line += 64) {
      const uint8_t* const ahead = header + line + kCodesAhead;
      kFetch == HeaderFetch::kFar ? PrefetchFar(ahead) : Prefetch(ahead);
    }
  }
#pragma GCC unroll 1
  for (int v = 0; v < kGroupVectors; ++v) {
    const uint8_t* tile = header + v * kTileBytes;
    const auto scales = [ out, v ](int64_t j) __attribute__((always_inline)) { return out->scales[j] + v * kTileRows; };
    if constexpr (HasF16Scales(kType)) {
      constexpr int kBytes = kFormat.has_mins ? 64 : 32;  // of a sub-block of a tile
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        _mm512_store_ps(scales(j), FromF16(tile + j * kBytes));
        if constexpr (kFormat.has_mins) _mm512_store_ps(out->mins[j] + v * kTileRows, FromF16(tile + j * kBytes + 32));
      }
    } else if constexpr (kType == DType::kI4G32) {
#pragma GCC unroll 2
      for (int pair = 0; pair < 2; ++pair) {
        const __m512i bf16 = _mm512_loadu_si512(tile + pair * 64);
        _mm512_store_si512(scales(2 * pair), _mm512_slli_epi32(bf16, 16));
        _mm512_store_si512(scales(2 * pair + 1), _mm512_and_si512(bf16, _mm512_set1_epi32(-0x10000)));
      }
    } else if constexpr (kType == DType::kI4G128) {
      const __m256i bf16 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile));
      _mm512_store_si512(scales(0), _mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
    } else if constexpr (kType == DType::kMXFP4) {
      const __m512i exponents = _mm512_loadu_si512(tile);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const __m512i placed = j == 3 ? _mm512_srli_epi32(exponents, 1) : _mm512_slli_epi32(exponents, 23 - 8 * j);
        const __m512i bits = _mm512_and_si512(placed, _mm512_set1_epi32(0x7f800000));
        // 0 stands for 2^-127, a subnormal number.
        _mm512_store_si512(scales(j), _mm512_max_epu32(bits, _mm512_set1_epi32(0x00400000)));
      }
    } else if constexpr (HasZeroPoints(kType)) {
      for (int64_t j = 0; j < kFormat.sub_blocks(); ++j) {
        const __m512i words = _mm512_loadu_si512(tile + j * 64);
        const __m512i scale = _mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(kScaleOfI4Z)));
        const __m512i zero = _mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(kZeroOfI4Z)));
        _mm512_store_si512(scales(j), scale);
        _mm512_store_ps(out->mins[j] + v * kTileRows,
                        _mm512_mul_ps(_mm512_castsi512_ps(scale), _mm512_cvtepi32_ps(zero)));
      }
    } else if constexpr (kType == DType::kQ6K) {
      const __m512 d = ByteScales(header + v * 32);
      const uint8_t* lanes = header + kRowGroup * 2 + v * 256 + span * 128;
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        const __m512i four = _mm512_loadu_si512(lanes + j / 4 * 64);
        _mm512_store_ps(scales(j), _mm512_mul_ps(ByteToF32(four, j % 4), d));
      }
    } else {
      static_assert(kFormat.has_mins);
      const __m512 d = ByteScales(tile), dmin = ByteScales(tile + 32);
      __m512i six_bit_scales, six_bit_mins;
      SixBits(tile + 64, span, &six_bit_scales, &six_bit_mins);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        _mm512_store_ps(scales(j), _mm512_mul_ps(ByteToF32(six_bit_scales, j), d));
        _mm512_store_ps(out->mins[j] + v * kTileRows, _mm512_mul_ps(ByteToF32(six_bit_mins, j), dmin));
      }
    }
  }
}

}  // namespace moestro::avx512
