// Formats of blocks (block_format.h) for linear_f32.h. One token's codes are decoded as they are multiplied. For
// several tokens, a sub-block is decoded once, into a panel of F32 values. A packed block's scales are expanded once,
// for all.
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

// The codes of one sub-block. A step is as many inputs as lie in 32 bits, or in 32 bits and a line of upper bits.
template <typename Isa, DType kType>
struct Codes {
  using Vector = typename Isa::Vector;
  using Words = typename Isa::Words;
  static constexpr BlockFormat kFormat = FormatOf(kType);
  static constexpr int kBits = static_cast<int>(kFormat.code_bits);
  static constexpr int kInputs = kBits == 8 ? 4 : 8;
  static constexpr int64_t kStepBytes = kInputs * kRowGroup * kBits / 8;
  static constexpr bool kSigned = !kFormat.has_mins;  // symmetric: with the top bit flipped, a signed number

  const uint8_t* codes;

  [[gnu::always_inline]] inline Vector Get(int64_t step, int input, int v) const {
    const int shift = (input % 2 * 4 + input / 2) * 4;  // of the input's nibble
    if constexpr (kBits == 8) {
      const Words words = Isa::LoadWords(codes + step * kStepBytes + VectorOffset<Isa>(v, 64));
      return FromTop(words << (24 - 8 * (input % 2 * 2 + input / 2)));
    } else if constexpr (kBits == 4) {
      const Words words = Isa::LoadWords(codes + step * kStepBytes + VectorOffset<Isa>(v, 64));
      return Isa::template FromNibble<kType>(words, shift);
    } else if constexpr (kBits == 5) {
      const uint8_t* lines = codes + VectorOffset<Isa>(v, 5 * 64);
      const Words low = Isa::LoadWords(lines + step * 64);
      const Words fifth = Isa::LoadWords(lines + 4 * 64) >> static_cast<int>(4 * step);
      return FromTop(Join(kSigned ? ~fifth : fifth, 31 - (input % 2 * 16 + input / 2), 0x80000000u, low, 27 - shift));
    } else {
      static_assert(kBits == 6);
      const uint8_t* lines = codes + VectorOffset<Isa>(v, 3 * 64);
      const Words low = Isa::LoadWords(lines + step * 64);
      const Words high = (Isa::LoadWords(lines + 2 * 64) ^ 0xaaaaaaaau) >> static_cast<int>(4 * step);
      return FromTop(Join(high, 30 - (shift / 8 * 8 + shift / 4 % 2 * 2), 0xc0000000u, low, 26 - shift));
    }
  }

  [[gnu::always_inline]] inline void PrefetchStep(int64_t step) const {
#pragma GCC unroll 8
    for (int64_t line = 0; line < kStepBytes; line += 64) Prefetch(codes + step * kStepBytes + line);
  }

 private:
  // The bits of `mask` from `high`, the others from `low`, both shifted to the left.
  [[gnu::always_inline]] static inline Words Join(Words high, int high_shift, uint32_t mask, Words low, int low_shift) {
    return (Shift(high, high_shift) & mask) | (Shift(low, low_shift) & ~mask);
  }
  // The number in the top kBits of each word.
  [[gnu::always_inline]] static inline Vector FromTop(Words words) {
    using SignedWords = typename Isa::SignedWords;
    if constexpr (kSigned) return Isa::FromInts(reinterpret_cast<SignedWords>(words) >> (32 - kBits));
    return Isa::FromInts(reinterpret_cast<SignedWords>(words >> (32 - kBits)));
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
    } else if constexpr (kType == DType::kQ6K) {
      const typename Isa::Vector d = Isa::FromF16(header + v * Isa::kLanes * 2);
      for (int j = 0; j < 16; ++j) {
        const Words codes = Isa::LoadWords(header + 128 + (tile * 4 + j / 4) * 64 + lane * 4);
        const auto code = reinterpret_cast<SignedWords>(codes << (24 - j % 4 * 8)) >> 24;
        Isa::Store(place(scales, j), Isa::Mul(Isa::FromInts(code), d));
      }
    } else {  // Q8_0, Q4_0, Q5_0
      for (int j = 0; j < 4; ++j) Isa::Store(place(scales, j), Isa::FromF16(header + tile * 128 + j * 32 + lane * 2));
    }
  }
}

// One token's sub-block, x in F32. Vector by vector, so that the words of a step are in a register for all its inputs.
template <typename Isa, typename Codes>
[[gnu::always_inline]] static inline void AddToken(const Codes& codes, int64_t steps, const float* x,
                                                   const RowScales<Isa>& scale, float* totals) {
  constexpr int kVectors = kRowGroup / Isa::kLanes;
  typename Isa::Vector sums[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) sums[v] = Isa::Zero();
  for (int64_t step = 0; step < steps; ++step) {
    codes.PrefetchStep(step);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
      for (int input = 0; input < Codes::kInputs; ++input) {
        const typename Isa::Vector value = Isa::Broadcast(x + step * Codes::kInputs + input);
        sums[v] = Isa::Fma(codes.Get(step, input, v), value, sums[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    float* total = totals + v * Isa::kLanes;
    Isa::Store(total, scale.AddTo(Isa::Load(total), sums[v], v, 0));
  }
}

// The panel that F32PanelWeights reads.
template <typename Isa, typename Codes>
static inline void ExpandCodes(const Codes& codes, int64_t steps, float* panel) {
  for (int64_t step = 0; step < steps; ++step) {
    codes.PrefetchStep(step);
#pragma GCC unroll 8
    for (int v = 0; v < kRowGroup / Isa::kLanes; ++v) {
#pragma GCC unroll 8
      for (int input = 0; input < Codes::kInputs; ++input) {
        Isa::Store(panel + (step * Codes::kInputs + input) * kRowGroup + v * Isa::kLanes, codes.Get(step, input, v));
      }
    }
  }
}

template <typename Isa, DType kType>
static inline void AddFormatBlocks(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens,
                                   int64_t row, F32Scratch& scratch) {
  constexpr BlockFormat kFormat = FormatOf(kType);
  constexpr int64_t kInputs = kFormat.sub_block, kSteps = kInputs / Codes<Isa, kType>::kInputs;
  constexpr int64_t kSubBlockBytes = kInputs * kRowGroup * kFormat.code_bits / 8;
  static_assert(kFormat.sub_blocks() <= kMaxSubBlocks && kInputs <= kScaleBlock && kInputs % Isa::kLanes == 0);
  const uint8_t* block = w.data + row / kRowGroup * PackedGroupBytes(kType, w.cols);
  for (int64_t begin = 0; begin < w.cols; begin += kFormat.block, block += kFormat.packed_block_bytes()) {
    ExpandScales<Isa, kType>(block, scratch.scales, scratch.mins);
    for (int64_t j = 0; j < kFormat.sub_blocks() && begin + j * kInputs < w.cols; ++j) {
      const Codes<Isa, kType> codes{block + kFormat.header_bytes + j * kSubBlockBytes};
      const RowScales<Isa> scale{scratch.scales + j * kRowGroup,
                                 kFormat.has_mins ? scratch.mins + j * kRowGroup : nullptr, scratch.minus_sums};
      const uint16_t* inputs = x + begin + j * kInputs;
      if (tokens == 1) {
        WidenInputs<Isa>(inputs, x_stride, 1, kInputs, scratch.x);
        scale.SumInputs(1, kInputs, scratch);
        AddToken<Isa>(codes, kSteps, scratch.x, scale, scratch.totals);
      } else {
        ExpandCodes<Isa>(codes, kSteps, reinterpret_cast<float*>(scratch.panel));
        AddBlockTokens<Isa>(F32PanelWeights<Isa>{scratch.panel}, kInputs, inputs, x_stride, tokens, scale, scratch);
      }
    }
  }
}

// Adds all blocks of the row group at `row` to the totals.
template <typename Isa>
static inline void AddFormat(const PackedMatrix& w, const uint16_t* x, int64_t x_stride, int64_t tokens, int64_t row,
                             F32Scratch& scratch) {
  switch (w.dtype) {
    case DType::kQ8_0:
      return AddFormatBlocks<Isa, DType::kQ8_0>(w, x, x_stride, tokens, row, scratch);
    case DType::kQ4_0:
      return AddFormatBlocks<Isa, DType::kQ4_0>(w, x, x_stride, tokens, row, scratch);
    case DType::kQ5_0:
      return AddFormatBlocks<Isa, DType::kQ5_0>(w, x, x_stride, tokens, row, scratch);
    case DType::kQ4K:
      return AddFormatBlocks<Isa, DType::kQ4K>(w, x, x_stride, tokens, row, scratch);
    case DType::kQ5K:
      return AddFormatBlocks<Isa, DType::kQ5K>(w, x, x_stride, tokens, row, scratch);
    case DType::kQ6K:
      return AddFormatBlocks<Isa, DType::kQ6K>(w, x, x_stride, tokens, row, scratch);
    case DType::kI4G32:
      return AddFormatBlocks<Isa, DType::kI4G32>(w, x, x_stride, tokens, row, scratch);
    case DType::kI4G128:
      return AddFormatBlocks<Isa, DType::kI4G128>(w, x, x_stride, tokens, row, scratch);
    default:
      return AddFormatBlocks<Isa, DType::kMXFP4>(w, x, x_stride, tokens, row, scratch);
  }
}

}  // namespace moestro::linear_f32
