// Formats of blocks (block_format.h) for linear_f32.h. A packed block's scales are expanded once, for all tokens; its
// codes are decoded sub-block by sub-block (AddDecodedTokens).
#pragma once

#include <cstdint>

#include "common/kernels/cpu/linear_f32_block.h"

namespace moestro::linear_f32 {

// To the left, or to the right by -n.
template <typename Words>
[[gnu::always_inline]] static inline Words Shift(Words words, int n) {
  return n >= 0 ? words << n : words >> -n;
}

// Where the v-th vector of rows lies among tiles of which each takes tile_bytes, and within 64 bytes.
template <typename Isa>
[[gnu::always_inline]] static inline int64_t VectorOffset(int v, int64_t tile_bytes) {
  return v * Isa::kLanes / kTileRows * tile_bytes + v * Isa::kLanes % kTileRows * 4;
}

// The codes of one sub-block. A step is as many inputs as lie in 32 bits.
template <typename Isa, DType kType>
struct Codes {
  using Vector = typename Isa::Vector;
  using Words = typename Isa::Words;
  static constexpr bool kDecoded = true;
  static constexpr int kBits = static_cast<int>(FormatOf(kType).code_bits);
  static constexpr int kInputs = kBits == 8 ? 4 : 8;
  static constexpr int64_t kStepBytes = kInputs * kRowGroup * kBits / 8;

  const uint8_t* codes;

  [[gnu::always_inline]] inline Vector Get(int64_t step, int input, int v) const {
    const int pair = input / 2, odd = input % 2;
    if constexpr (kBits == 8) {
      const Words words = Isa::LoadWords(codes + step * kStepBytes + VectorOffset<Isa>(v, 64));
      return Isa::FromInts(reinterpret_cast<typename Isa::SignedWords>(words << (24 - 8 * (odd * 2 + pair))) >> 24);
    } else if constexpr (kBits == 4) {
      const Words words = Isa::LoadWords(codes + step * kStepBytes + VectorOffset<Isa>(v, 64));
      return Isa::template FromNibble<kType>(words, 16 * odd + 4 * pair);
    } else {
      // Lines of lower bits, then one of upper bits. A step has four of these in each half, or (6 bits) in each byte.
      constexpr int64_t kLowLines = kBits == 5 ? 4 : 2;
      constexpr uint32_t kUpper = kBits == 5 ? 0x00100010 : 0x00300030;
      const int place = kBits == 5 ? pair : pair / 2 * 8 + pair % 2 * 2;
      const uint8_t* lines = codes + VectorOffset<Isa>(v, (kLowLines + 1) * 64);
      const Words low = Isa::LoadWords(lines + step * 64);
      const Words high = Isa::LoadWords(lines + kLowLines * 64) >> static_cast<int>(4 * step);
      return Isa::template FromHalf<kType>((Shift(high, 4 - place) & kUpper) | ((low >> (4 * pair)) & ~kUpper), odd);
    }
  }

  [[gnu::always_inline]] inline void PrefetchStep(int64_t step) const {
#pragma GCC unroll 8
    for (int64_t line = 0; line < kStepBytes; line += 64) Prefetch(codes + step * kStepBytes + line);
  }
};

// Scales and mins of a packed block, from its header to F32 [sub-blocks][64 rows].
template <typename Isa, DType kType>
static inline void ExpandScales(const uint8_t* header, float* scales, float* mins) {
  using Words = typename Isa::Words;
  using SignedWords = typename Isa::SignedWords;
  constexpr BlockFormat kFormat = FormatOf(kType);
  for (int64_t line = 0; line < kFormat.header_bytes; line += 64) Prefetch(header + line);
  for (int v = 0; v < kRowGroup / Isa::kLanes; ++v) {
    const int64_t tile = v * Isa::kLanes / kTileRows, lane = v * Isa::kLanes % kTileRows;
    const auto place = [=](float* factors, int64_t j) { return factors + j * kRowGroup + v * Isa::kLanes; };
    if constexpr (kType == DType::kI4G32) {
      for (int j = 0; j < 4; j += 2) {
        const uint8_t* pairs = header + (tile * 2 + j / 2) * 64 + lane * 4;
        Isa::Store(place(scales, j), Isa::FromBf16Even(pairs));
        Isa::Store(place(scales, j + 1), Isa::FromBf16Odd(pairs));
      }
    } else if constexpr (kType == DType::kI4G128) {
      Isa::Store(place(scales, 0), Isa::FromBf16(reinterpret_cast<const uint16_t*>(header + tile * 32 + lane * 2)));
    } else if constexpr (kType == DType::kMXFP4) {
      const Words exponents = Isa::LoadWords(header + tile * 64 + lane * 4);
      for (int j = 0; j < 4; ++j) {
        const Words bits = ((exponents >> (8 * j)) & 255u) << 23;
        // The least is subnormal.
        const Words least = reinterpret_cast<Words>(bits == 0u) & 0x00400000u;
        Isa::Store(place(scales, j), Isa::FromBits(bits | least));
      }
    } else if constexpr (HasZeroPoints(kType)) {
      for (int64_t j = 0; j < kFormat.sub_blocks(); ++j) {
        const Words words = Isa::LoadWords(header + (tile * kFormat.sub_blocks() + j) * 64 + lane * 4);
        const typename Isa::Vector scale = Isa::FromBits(words & kScaleOfI4Z);
        Isa::Store(place(scales, j), scale);
        Isa::Store(place(mins, j), Isa::Mul(Isa::FromInts(reinterpret_cast<SignedWords>(words & kZeroOfI4Z)), scale));
      }
    } else if constexpr (HasF16Scales(kType)) {
      constexpr int64_t kBytes = kFormat.has_mins ? 64 : 32;  // of a sub-block of a tile
      for (int64_t j = 0; j < 4; ++j) {
        const uint8_t* halves = header + (tile * 4 + j) * kBytes + lane * 2;
        Isa::Store(place(scales, j), Isa::FromF16(halves));
        if constexpr (kFormat.has_mins) Isa::Store(place(mins, j), Isa::FromF16(halves + 32));
      }
    } else if constexpr (kFormat.has_mins) {
      const uint8_t* lines = header + tile * 4 * 64;
      const typename Isa::Vector d = Isa::FromF16(lines + lane * 2), dmin = Isa::FromF16(lines + 32 + lane * 2);
      const Words a = Isa::LoadWords(lines + 64 + lane * 4), b = Isa::LoadWords(lines + 128 + lane * 4),
                  c = Isa::LoadWords(lines + 192 + lane * 4);
      const Words scale_codes[] = {a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | ((a >> 2) & 0x30303030u)};
      const Words min_codes[] = {b & 0x3f3f3f3fu, ((c >> 4) & 0x0f0f0f0fu) | ((b >> 2) & 0x30303030u)};
      const auto code = [](Words codes, int j) {
        return Isa::FromInts(reinterpret_cast<SignedWords>((codes >> (8 * j)) & 255u));
      };
      for (int j = 0; j < 8; ++j) {
        Isa::Store(place(scales, j), Isa::Mul(code(scale_codes[j / 4], j % 4), d));
        Isa::Store(place(mins, j), Isa::Mul(code(min_codes[j / 4], j % 4), dmin));
      }
    } else {
      static_assert(kType == DType::kQ6K);
      const typename Isa::Vector d = Isa::FromF16(header + v * Isa::kLanes * 2);
      for (int j = 0; j < 16; ++j) {
        const Words codes = Isa::LoadWords(header + 128 + (tile * 4 + j / 4) * 64 + lane * 4);
        const auto code = reinterpret_cast<SignedWords>(codes << (24 - j % 4 * 8)) >> 24;
        Isa::Store(place(scales, j), Isa::Mul(Isa::FromInts(code), d));
      }
    }
  }
}

template <typename Isa, DType kType>
static inline void AddFormatBlocks(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens,
                                   int64_t row, F32Scratch& scratch) {
  constexpr BlockFormat kFormat = FormatOf(kType);
  constexpr int64_t kInputs = kFormat.sub_block;
  constexpr int64_t kSubBlockBytes = kInputs * kRowGroup * kFormat.code_bits / 8;
  static_assert(kFormat.sub_blocks() <= kMaxSubBlocks && kInputs <= kScaleBlock && kInputs % Isa::kLanes == 0);
  const uint8_t* block = w.data + row / kRowGroup * PackedGroupBytes(kType, w.cols);
  for (int64_t begin = 0; begin < w.cols; begin += kFormat.block, block += kFormat.packed_block_bytes()) {
    ExpandScales<Isa, kType>(block, scratch.scales, scratch.mins);
    for (int64_t j = 0; j < kFormat.sub_blocks() && begin + j * kInputs < w.cols; ++j) {
      const Codes<Isa, kType> codes{block + kFormat.header_bytes + j * kSubBlockBytes};
      const RowScales<Isa> scale{scratch.scales + j * kRowGroup,
                                 kFormat.has_mins ? scratch.mins + j * kRowGroup : nullptr, scratch.minus_sums};
      AddDecodedTokens<Isa>(codes, kInputs, x + begin + j * kInputs, x_stride, tokens, scale, scratch);
    }
  }
}

// Adds all blocks of the row group at `row` to the totals.
template <typename Isa>
static inline void AddFormat(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, int64_t row,
                             F32Scratch& scratch) {
  WithFormat(w.dtype, [&]<DType kType>() { AddFormatBlocks<Isa, kType>(w, x, x_stride, tokens, row, scratch); });
}

}  // namespace moestro::linear_f32
