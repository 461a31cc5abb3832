#include "common/kernels/cpu/ref/packed_block.h"

#include <bit>
#include <cstring>

namespace moestro::ref {
namespace {

constexpr int64_t kLineBytes = 64;  // 32 bits of each row of a tile

template <typename T>
T Load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Where a four-bit code is in the 32 bits of 8 inputs.
int NibbleShift(int64_t input) { return static_cast<int>(input % 2 * 4 + input % 8 / 2) * 4; }

// The code of input `i` of a packed block, whose codes begin at `codes`.
int Code(int64_t bits, const uint8_t* codes, int64_t tile, int64_t row, int64_t i) {
  switch (bits) {
    case 8: {
      constexpr int64_t kPlace[4] = {0, 2, 1, 3};
      return codes[(i / 4 * 4 + tile) * kLineBytes + row * 4 + kPlace[i % 4]];
    }
    case 4:
      return Load<uint32_t>(codes + (i / 8 * 4 + tile) * kLineBytes + row * 4) >> NibbleShift(i) & 15;
    case 5: {
      const uint8_t* lines = codes + (i / 32 * 4 + tile) * 5 * kLineBytes + row * 4;
      const uint32_t low = Load<uint32_t>(lines + i % 32 / 8 * kLineBytes) >> NibbleShift(i) & 15;
      const uint32_t high = Load<uint32_t>(lines + 4 * kLineBytes) >> (i % 2 * 16 + i % 32 / 8 * 4 + i % 8 / 2) & 1;
      return static_cast<int>(low | high << 4);
    }
    default: {  // 6
      const uint8_t* lines = codes + (i / 16 * 4 + tile) * 3 * kLineBytes + row * 4;
      const int64_t nibble = NibbleShift(i) / 4, field = i % 16 / 8 * 2 + nibble % 2;
      const uint32_t low = Load<uint32_t>(lines + i % 16 / 8 * kLineBytes) >> NibbleShift(i) & 15;
      const uint32_t high = static_cast<uint32_t>(lines[2 * kLineBytes + nibble / 2]) >> (2 * field) & 3;
      return static_cast<int>(low | high << 4);
    }
  }
}

// What a code stands for before it is scaled.
float CodeValue(DType type, int code) {
  constexpr float kE2M1[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  switch (type) {
    case DType::kQ8_0:
      return static_cast<float>(static_cast<int8_t>(code));
    case DType::kMXFP4:
      return code < 8 ? kE2M1[code] : -kE2M1[code - 8];
    default:
      if (FormatOf(type).has_mins) return static_cast<float>(code);
      // Symmetric around the middle code.
      return static_cast<float>(code - (1 << (FormatOf(type).code_bits - 1)));
  }
}

// The scale and min of sub-block j of a row of the tile.
void ScaleAndMin(DType type, const uint8_t* header, int64_t tile, int64_t row, int64_t j, float* scale, float* min) {
  switch (type) {
    case DType::kI4G32:
      *scale = FromBf16(Load<uint16_t>(header + (tile * 2 + j / 2) * kLineBytes + row * 4 + j % 2 * 2));
      return;
    case DType::kI4G128:
      *scale = FromBf16(Load<uint16_t>(header + tile * 32 + row * 2));
      return;
    case DType::kMXFP4: {
      const uint32_t exponent = header[tile * kLineBytes + row * 4 + j];
      *scale = std::bit_cast<float>(exponent == 0 ? 0x00400000u : exponent << 23);  // the least is subnormal
      return;
    }
    case DType::kI4Z32:
    case DType::kI4Z128: {
      const auto word = Load<uint32_t>(header + (tile * FormatOf(type).sub_blocks() + j) * kLineBytes + row * 4);
      *scale = std::bit_cast<float>(word & kScaleOfI4Z);
      *min = *scale * static_cast<float>(word & kZeroOfI4Z);
      return;
    }
    case DType::kQ4K:
    case DType::kQ5K: {
      header += tile * 4 * kLineBytes;
      const auto byte = [&](int64_t i) { return header[(1 + i / 4) * kLineBytes + row * 4 + i % 4]; };
      const int scale_code = j < 4 ? byte(j) & 63 : (byte(j + 4) & 15) | byte(j - 4) >> 6 << 4;
      const int min_code = j < 4 ? byte(j + 4) & 63 : byte(j + 4) >> 4 | byte(j) >> 6 << 4;
      *scale = FromF16(Load<uint16_t>(header + row * 2)) * static_cast<float>(scale_code);
      *min = FromF16(Load<uint16_t>(header + 32 + row * 2)) * static_cast<float>(min_code);
      return;
    }
    case DType::kQ6K: {
      const uint8_t code = header[128 + (tile * 4 + j / 4) * kLineBytes + row * 4 + j % 4];
      *scale = FromF16(Load<uint16_t>(header + (tile * kTileRows + row) * 2)) *
               static_cast<float>(static_cast<int8_t>(code));
      return;
    }
    default:  // Q8_0, Q4_0, Q5_0
      *scale = FromF16(Load<uint16_t>(header + tile * 128 + j * 32 + row * 2));
  }
}

}  // namespace

void DecodeSubBlock(DType type, const uint8_t* group, int64_t tile, int64_t col, Chain& chain) {
  const BlockFormat format = FormatOf(type);
  const uint8_t* header = group + col / format.block * format.packed_block_bytes();
  const int64_t input = col % format.block;
  chain.cols = format.sub_block;
  chain.has_mins = format.has_mins;
  for (int64_t row = 0; row < kTileRows; ++row) {
    ScaleAndMin(type, header, tile, row, input / format.sub_block, &chain.scales[row], &chain.mins[row]);
    for (int64_t i = 0; i < format.sub_block; ++i) {
      const int code = Code(format.code_bits, header + format.header_bytes, tile, row, input + i);
      chain.weights[i][row] = CodeValue(type, code);
    }
  }
}

}  // namespace moestro::ref
