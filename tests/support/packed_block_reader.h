// Reads packed formats of blocks as common/weights/FORMAT.md has them. It shares no code with the packer and the
// kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/tensor/block_format.h"

namespace moestro::testing {

// Of one group of 64 rows, one element at a time.
class PackedBlockReader {
 public:
  PackedBlockReader(DType type, const uint8_t* group) : type_(type), group_(group) {}

  float Weight(int64_t row, int64_t input) const {
    const int64_t b = FormatOf(type_).block;
    const uint8_t* block = group_ + input / b * FormatOf(type_).packed_block_bytes();
    return Weight(block, block + FormatOf(type_).header_bytes, row / 16, row % 16, input % b);
  }

 private:
  static uint16_t Load16(const uint8_t* p) {
    uint16_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return bits;
  }
  static uint32_t Load32(const uint8_t* p) {
    uint32_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return bits;
  }

  float Weight(const uint8_t* h, const uint8_t* codes, int64_t t, int64_t q, int64_t i) const {
    const auto code = static_cast<float>(Code(codes, t, q, i));
    const int64_t b = i / FormatOf(type_).sub_block;
    constexpr float kE2M1[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
    switch (type_) {
      case DType::kQ8_0:
        return FromF16(Load16(h + 128 * t + 32 * b + 2 * q)) * code;
      case DType::kQ4_0:
        return FromF16(Load16(h + 128 * t + 32 * b + 2 * q)) * (code - 8);
      case DType::kQ5_0:
        return FromF16(Load16(h + 128 * t + 32 * b + 2 * q)) * (code - 16);
      case DType::kQ4_1:
      case DType::kQ5_1: {
        const uint8_t* line = h + 256 * t + 64 * b + 2 * q;
        return FromF16(Load16(line)) * code - FromF16(Load16(line + 32));
      }
      case DType::kI4G32:
        return FromBf16(Load16(h + 128 * t + 64 * (b / 2) + 4 * q + 2 * (b % 2))) * (code - 8);
      case DType::kI4G128:
        return FromBf16(Load16(h + 32 * t + 2 * q)) * (code - 8);
      case DType::kMXFP4: {
        const float magnitude = kE2M1[static_cast<int>(code) % 8];
        return std::ldexp(code < 8 ? magnitude : -magnitude, h[64 * t + 4 * q + b] - 127);
      }
      case DType::kI4Z32:
      case DType::kI4Z128: {
        const int64_t sub_blocks = type_ == DType::kI4Z32 ? 4 : 1;
        const uint32_t word = Load32(h + 64 * (sub_blocks * t + b) + 4 * q);
        float scale;
        const uint32_t bits = word >> 13 << 13;
        std::memcpy(&scale, &bits, sizeof scale);
        return scale * code - scale * static_cast<float>(word % 16);
      }
      case DType::kQ4K:
      case DType::kQ5K: {
        const uint8_t* tile = h + 256 * t;
        const auto byte = [&](int64_t k) { return tile[64 + k / 4 * 64 + 4 * q + k % 4]; };
        const int s = b < 4 ? byte(b) & 63 : (byte(b + 4) & 15) | byte(b - 4) >> 6 << 4;
        const int n = b < 4 ? byte(b + 4) & 63 : byte(b + 4) >> 4 | byte(b) >> 6 << 4;
        return FromF16(Load16(tile + 2 * q)) * static_cast<float>(s) * code -
               FromF16(Load16(tile + 32 + 2 * q)) * static_cast<float>(n);
      }
      default: {
        const auto s = static_cast<int8_t>(h[128 + 256 * t + b / 4 * 64 + 4 * q + b % 4]);
        return FromF16(Load16(h + 2 * (16 * t + q))) * static_cast<float>(s) * (code - 32);
      }
    }
  }

  int Code(const uint8_t* codes, int64_t t, int64_t q, int64_t i) const {
    const int64_t p = 4 * (i % 2) + i % 8 / 2;
    const auto word = [&](int64_t at) { return Load32(codes + at + 4 * q); };
    switch (FormatOf(type_).code_bits) {
      case 8: {
        constexpr int kByte[] = {0, 2, 1, 3};
        return static_cast<int8_t>(word(i / 4 * 256 + 64 * t) >> (8 * kByte[i % 4]));
      }
      case 4:
        return word(i / 8 * 256 + 64 * t) >> (4 * p) & 15;
      case 5: {
        const int64_t tile = i / 32 * 1280 + 320 * t;
        const uint32_t fifth = word(tile + 256) >> (16 * (i % 2) + 4 * (i % 32 / 8) + i % 8 / 2) & 1;
        return static_cast<int>((word(tile + i % 32 / 8 * 64) >> (4 * p) & 15) | fifth << 4);
      }
      default: {
        const int64_t tile = i / 16 * 768 + 192 * t, f = 2 * (i % 16 / 8) + p % 2;
        const uint32_t high = word(tile + 128) >> (8 * (p / 2) + 2 * f) & 3;
        return static_cast<int>((word(tile + i % 16 / 8 * 64) >> (4 * p) & 15) | high << 4);
      }
    }
  }

  DType type_;
  const uint8_t* group_;
};

}  // namespace moestro::testing
