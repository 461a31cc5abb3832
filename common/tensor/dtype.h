// Element types of published weights, and exact scalar conversions. Vector forms are in common/kernels.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace moestro {

// The weight segment stores these values: never renumber them. From kQ8_0 on: formats of blocks, in which a few weights
// share a scale (block_format.h); the others are types of one element.
enum class DType : uint32_t {
  kF32 = 0,
  kBF16 = 1,
  kF8E4M3 = 2,
  kF16 = 3,
  kI8 = 4,
  kQ8_0 = 5,
  kQ4_0 = 6,
  kQ5_0 = 7,
  kQ4K = 8,
  kQ5K = 9,
  kQ6K = 10,
  kI4G32 = 11,
  kI4G128 = 12,
  kMXFP4 = 13,
  kI4Z32 = 14,
  kI4Z128 = 15,
  kQ4_1 = 16,
  kQ5_1 = 17,
};
inline constexpr DType kLastDType = DType::kQ5_1;

constexpr bool IsBlockFormat(DType type) { return type >= DType::kQ8_0; }

// REQUIRES: not a format of blocks, whose weights have no whole bytes.
constexpr int64_t DTypeBytes(DType type) {
  switch (type) {
    case DType::kF32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    default:
      return 1;
  }
}
// In the spelling of safetensors or GGUF, where they have the type.
const char* DTypeName(DType type);

// Edge of the square weight block that shares one scale (FP8 checkpoints of the DeepSeek family). Also the length of
// one accumulator chain in every linear kernel, for any weight type.
inline constexpr int64_t kScaleBlock = 128;

// BF16 is the upper half of an F32. Rounds to nearest even; NaN stays NaN (quieted).
inline uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}
inline float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// IEEE half precision: bias 15, subnormal step 2^-24. Every value, NaN and infinities included, has an exact F32.
inline float FromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 31u, mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t widened = exponent == 31 ? 255u : exponent + 112;
  return std::bit_cast<float>(sign | widened << 23 | mantissa << 13);
}

// Rounds to nearest even, subnormals included; beyond the largest finite value, 65504, infinity; NaN stays NaN.
uint16_t ToF16(float value);

// E4M3FN: bias 7, no infinities, 0x7F / 0xFF are NaN, subnormal step 2^-9, largest finite 448.
inline float FromE4M3(uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  float magnitude;
  if (exponent == 15 && mantissa == 7) {
    magnitude = std::bit_cast<float>(0x7fc00000u);
  } else if (exponent == 0) {
    magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  } else {
    magnitude = std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  }
  return code & 0x80 ? -magnitude : magnitude;
}

// Rounds to nearest even on the 3-bit mantissa, subnormals included; |value| > 448 saturates; NaN becomes 0x7F with its
// sign.
uint8_t ToE4M3(float value);

}  // namespace moestro
