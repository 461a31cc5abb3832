// Codes of formats of blocks as bytes, for products with coded spans: quads of 4 inputs x kLanes rows, in the order of
// CodedSpan. Without mins, byte = code + a zero point, a power of two. The code of MXFP4 is twice E2M1, a whole number.
//
// `Isa` is a struct of inlined static functions with internal linkage:
//   kLanes, Words         kLanes integers of 32 bits, as a vector of the compiler
//   LoadWords(p)
//   LookUp(table, words)  an entry for the lower four bits of each byte
//   FifthBits<n>(words)   bits n, n + 2, n + 16, n + 18 of each word as bit 4 of bytes; other bits are arbitrary
//   Merge(mask, a, b)     bits of a where the mask has ones, else of b
//   kSignedBytes          codes of 8 bits stay as they are, without a zero point
#pragma once

#include <cstdint>

#include "common/kernels/cpu/input_coding.h"
#include "common/tensor/block_format.h"

namespace moestro::spans {

// Calls with each of the numbers as a template argument.
template <int... kNumbers>
struct Numbers {};
template <int kCount, int... kRest>
struct NumbersTo : NumbersTo<kCount - 1, kCount - 1, kRest...> {};
template <int... kRest>
struct NumbersTo<0, kRest...> {
  using Type = Numbers<kRest...>;
};
template <int kCount>
using NumbersBelow = typename NumbersTo<kCount>::Type;

// What lies together of a tile: kInputs inputs of its 16 rows. A step is the units of four tiles.
template <DType kType>
struct Unit {
  static constexpr int64_t kBits = FormatOf(kType).code_bits;
  static constexpr int kInputs = kBits == 5 ? 32 : kBits == 6 ? 16 : 8;
  static constexpr int kQuads = kInputs / 4;
  static constexpr int64_t kStepBytes = kInputs * kRowGroup * kBits / 8;
  // From one tile to the next. Units of 8 bits are two lines, half a step apart.
  static constexpr int64_t kTileBytes = kBits == 8 ? 64 : kStepBytes / 4;
};

// The zero point is 1 << this; kNoZero: none.
constexpr int kNoZero = -1;
template <typename Isa, DType kType>
static constexpr int ZeroShift() {
  if (FormatOf(kType).has_mins || (kType == DType::kQ8_0 && Isa::kSignedBytes)) return kNoZero;
  return kType == DType::kMXFP4 ? 4 : static_cast<int>(FormatOf(kType).code_bits) - 1;
}
// Quads whose products, each of a byte and an input's code, words can sum: two products of a quad in each word.
template <DType kType>
static constexpr int QuadsOfWords() {
  constexpr int kGreatest = kType == DType::kQ8_0    ? 128
                            : kType == DType::kMXFP4 ? 28
                                                     : (1 << FormatOf(kType).code_bits) - 1;
  constexpr int kMost = 32767 / (kGreatest * 127 * 2);
  static_assert(kMost >= 1);
  return kMost >= 8 ? 8 : kMost >= 4 ? 4 : kMost >= 2 ? 2 : 1;
}
// Of a span.
template <DType kType>
static constexpr int64_t SubBlocks() {
  return kCodeSpan / FormatOf(kType).sub_block;
}

struct alignas(16) ByteTable {
  uint8_t bytes[16];
};
// Twice E2M1, + 16.
constexpr ByteTable kTwiceE2M1 = {{16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4}};

// To the left, or to the right by -n.
template <typename Words>
[[gnu::always_inline]] static inline Words Shift(Words words, int n) {
  return n >= 0 ? words << n : words >> -n;
}

// Quad kQuad of the unit at p, the v-th vector of rows of its step.
template <typename Isa, DType kType, int kQuad>
[[gnu::always_inline]] static inline typename Isa::Words GetQuad(const uint8_t* step, int v) {
  using Words = typename Isa::Words;
  using U = Unit<kType>;
  constexpr bool kUpper = kQuad % 2 == 1;  // halves of bytes
  constexpr uint32_t kLowBits = 0x0f0f0f0f;
  const uint8_t* p = step + v * Isa::kLanes / kTileRows * U::kTileBytes + v * Isa::kLanes % kTileRows * 4;
  if constexpr (U::kBits == 8) {
    // Bytes are inputs 0 2 1 3 and 4 6 5 7.
    constexpr uint32_t kEven = 0x00ff00ff;
    const Words first = Isa::LoadWords(p), second = Isa::LoadWords(p + U::kStepBytes / 2);
    const Words quad = kUpper ? Isa::Merge(kEven, first >> 8, second) : Isa::Merge(kEven, first, second << 8);
    return Isa::kSignedBytes ? quad : quad ^ 0x80808080u;
  } else {
    Words low = Isa::LoadWords(p + kQuad / 2 * 64);
    if (kUpper) low >>= 4;
    if constexpr (U::kBits == 4) {
      if constexpr (kType == DType::kMXFP4) return Isa::LookUp(kTwiceE2M1, low);
      return low & kLowBits;
    } else if constexpr (U::kBits == 5) {
      // Bits of inputs 8 u + 0 4 1 5 are 4 u, + 2, + 16, + 18; those of 2 6 3 7 lie one above.
      const Words high = Isa::template FifthBits<kQuad / 2 * 4 + kUpper>(Isa::LoadWords(p + 4 * 64));
      return Isa::Merge(kLowBits, low, high) & 0x1f1f1f1fu;
    } else {
      // Two bits of each byte from bit 2 kQuad on; their neighbours, which would go to bits 6 and 7, are masked.
      const Words pairs = Isa::LoadWords(p + 2 * 64) & (kUpper ? 0xccccccccu : 0x33333333u);
      return Isa::Merge(kLowBits, low, Shift(pairs, 4 - 2 * kQuad));
    }
  }
}

}  // namespace moestro::spans
