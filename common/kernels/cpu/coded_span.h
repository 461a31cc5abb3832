// Inputs coded by spans of 128 (InputCoding::kSpans), in the one form that all tables use: a coded row is one CodedSpan
// after another; missing inputs of the last one are zeros.
//   scale = max|x| / 127; code = round to nearest even(x / scale)
// A span of zeros has scale 0. One with an infinity or NaN has scale NaN and codes 0, so its outputs are NaN.
#pragma once

#include <cstdint>

#include "common/kernels/cpu/input_coding.h"

namespace moestro {

struct CodedSpan {
  // -127 .. 127. Of each eight inputs in the order 0 4 1 5 2 6 3 7, which is that of nibbles (block_format.h): those of
  // the low halves of four bytes, then those of the high halves.
  int8_t codes[kCodeSpan];
  float scale;
  // The sum of codes, negative: in all, of each 32 inputs, and of each 16. A chain of products with code + zero point
  // starts from it times the zero point.
  int32_t minus_sum;
  int32_t minus_sums32[kCodeSpan / 32];
  int32_t minus_sums16[kCodeSpan / 16];
  int32_t unused[2];
};
static_assert(sizeof(CodedSpan) == kCodeSpan + kCodedRowAlignment && sizeof(CodedSpan) % kCodedRowAlignment == 0);
static_assert(sizeof(CodedSpan) == CodedRowBytes(InputCoding::kSpans, kCodeSpan));

// Bytes 0 .. 3 at places 0, 2, 4, 6.
static inline uint64_t EveryOther(uint64_t four) {
  const uint64_t halves = (four | four << 16) & 0x0000ffff0000ffff;
  return (halves | halves << 8) & 0x00ff00ff00ff00ff;
}

// x: BF16, all of the span.
static inline void EncodeSpan(const uint16_t* x, CodedSpan* out) {
  uint16_t greatest = 0;  // magnitudes of BF16 compare as integers; infinities and NaN are the greatest
  for (int64_t i = 0; i < kCodeSpan; ++i) {
    const auto magnitude = static_cast<uint16_t>(x[i] & 0x7fff);
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  const bool finite = greatest < 0x7f80, has_codes = finite && greatest != 0;
  const uint32_t bits = finite ? static_cast<uint32_t>(greatest) << 16 : 0x7fc00000u;
  float scale;
  __builtin_memcpy(&scale, &bits, sizeof scale);
  scale /= 127.0f;
  const float divisor = has_codes ? scale : 1.0f;
  // For |v| < 2^22, v + 1.5 * 2^23 has v, rounded to nearest even, in its lowest bits.
  constexpr float kRound = 0x1.8p23f;
  constexpr int32_t kRoundBits = 0x4b400000;
  int32_t codes[kCodeSpan];
  for (int64_t i = 0; i < kCodeSpan; ++i) {
    const uint32_t wide = has_codes ? static_cast<uint32_t>(x[i]) << 16 : 0;
    float value;
    __builtin_memcpy(&value, &wide, sizeof value);
    const float rounded = value / divisor + kRound;
    int32_t code;
    __builtin_memcpy(&code, &rounded, sizeof code);
    codes[i] = code - kRoundBits;
  }
  int32_t total = 0;
  for (int64_t j = 0; j < kCodeSpan / 16; ++j) {
    int32_t sum = 0;
    for (int64_t i = 0; i < 16; ++i) sum += codes[16 * j + i];
    out->minus_sums16[j] = -sum;
    total -= sum;
  }
  for (int64_t j = 0; j < kCodeSpan / 32; ++j) {
    out->minus_sums32[j] = out->minus_sums16[2 * j] + out->minus_sums16[2 * j + 1];
  }
  int8_t bytes[kCodeSpan];
  for (int64_t i = 0; i < kCodeSpan; ++i) bytes[i] = static_cast<int8_t>(codes[i]);
  uint64_t eights[kCodeSpan / 8];
  __builtin_memcpy(eights, bytes, sizeof eights);
  for (uint64_t& eight : eights) eight = EveryOther(eight & 0xffffffffu) | EveryOther(eight >> 32) << 8;
  __builtin_memcpy(out->codes, eights, sizeof eights);
  out->minus_sum = total;
  out->scale = scale;
  for (int32_t& word : out->unused) word = 0;
}

// Writes a coded row of `cols` BF16 inputs; `row` is aligned to kCodedRowAlignment.
static inline void EncodeSpans(const uint16_t* x, int64_t cols, uint8_t* row) {
  for (int64_t begin = 0; begin < cols; begin += kCodeSpan, row += sizeof(CodedSpan)) {
    if (cols - begin >= kCodeSpan) {
      EncodeSpan(x + begin, reinterpret_cast<CodedSpan*>(row));
      continue;
    }
    uint16_t inputs[kCodeSpan] = {};
    __builtin_memcpy(inputs, x + begin, static_cast<unsigned long>(cols - begin) * sizeof(uint16_t));
    EncodeSpan(inputs, reinterpret_cast<CodedSpan*>(row));
  }
}

}  // namespace moestro
