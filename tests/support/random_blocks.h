// Random rows in formats of blocks.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "common/tensor/block_rows.h"

namespace moestro::testing {

inline constexpr DType kBlockFormats[] = {DType::kQ8_0,   DType::kQ4_0,  DType::kQ5_0,   DType::kQ4K,   DType::kQ5K,
                                          DType::kQ6K,    DType::kI4G32, DType::kI4G128, DType::kMXFP4, DType::kI4Z32,
                                          DType::kI4Z128, DType::kQ4_1,  DType::kQ5_1};

// Where a block of a row has scales and mins of 16 bits; MXFP4 has a byte, and I4Z 32 bits.
inline std::vector<int64_t> HalvesOf(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4K:
    case DType::kQ5K:
      return {0, 2};
    case DType::kQ6K:
      return {208};
    case DType::kMXFP4:
    case DType::kI4Z32:
    case DType::kI4Z128:
      return {};
    default:
      return {0};
  }
}

// [rows, cols], whole blocks. All scales are finite and of either sign: `scale`, give or take a quarter; of MXFP4 a
// positive power of two, up to twice as far. 0: of any exponent, subnormal numbers and zeros among them.
inline std::vector<uint8_t> RandomBlocks(DType type, int64_t rows, int64_t cols, uint32_t seed, float scale = 0) {
  const BlockFormat format = FormatOf(type);
  const bool is_bf16 = type == DType::kI4G32 || type == DType::kI4G128;
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> factor(0.75, 1.25);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * RowBytes(type, cols)));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(format.row_block_bytes)) {
    for (const int64_t at : HalvesOf(type)) {
      auto bits = static_cast<uint16_t>(random() & 0xbbff);
      if (scale > 0) {
        const float value = scale * factor(random);
        bits = (bits & 0x8000) | (is_bf16 ? ToBf16(value) : std::bit_cast<uint16_t>(static_cast<_Float16>(value)));
      }
      std::memcpy(&bytes[block + static_cast<size_t>(at)], &bits, sizeof bits);
    }
    if (HasZeroPoints(type)) {
      float value = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0xbfffe000u);
      if (scale > 0) value = std::bit_cast<float>(std::bit_cast<uint32_t>(scale * factor(random)) & kScaleOfI4Z);
      const uint32_t word = ScaleAndZero(random() % 2 == 0 ? value : -value, random() % 16);
      std::memcpy(&bytes[block], &word, sizeof word);
    }
    if (type != DType::kMXFP4) continue;
    bytes[block] = static_cast<uint8_t>(random() % 255);
    if (scale > 0) bytes[block] = static_cast<uint8_t>(std::bit_cast<uint32_t>(scale * factor(random)) >> 23);
  }
  return bytes;
}

}  // namespace moestro::testing
