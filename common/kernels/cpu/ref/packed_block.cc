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
template <int64_t kBits>
int Code(const uint8_t* codes, int64_t tile, int64_t row, int64_t i) {
  if constexpr (kBits == 8) {
    constexpr int64_t kPlace[4] = {0, 2, 1, 3};
    return codes[(i / 4 * 4 + tile) * kLineBytes + row * 4 + kPlace[i % 4]];
  } else if constexpr (kBits == 4) {
    return Load<uint32_t>(codes + (i / 8 * 4 + tile) * kLineBytes + row * 4) >> NibbleShift(i) & 15;
  } else if constexpr (kBits == 5) {
    const uint8_t* lines = codes + (i / 32 * 4 + tile) * 5 * kLineBytes + row * 4;
    const uint32_t low = Load<uint32_t>(lines + i % 32 / 8 * kLineBytes) >> NibbleShift(i) & 15;
    const uint32_t high = Load<uint32_t>(lines + 4 * kLineBytes) >> (i % 2 * 16 + i % 32 / 8 * 4 + i % 8 / 2) & 1;
    return static_cast<int>(low | high << 4);
  } else {
    static_assert(kBits == 6);
    const uint8_t* lines = codes + (i / 16 * 4 + tile) * 3 * kLineBytes + row * 4;
    const int64_t nibble = NibbleShift(i) / 4, field = i % 16 / 8 * 2 + nibble % 2;
    const uint32_t low = Load<uint32_t>(lines + i % 16 / 8 * kLineBytes) >> NibbleShift(i) & 15;
    const uint32_t high = static_cast<uint32_t>(lines[2 * kLineBytes + nibble / 2]) >> (2 * field) & 3;
    return static_cast<int>(low | high << 4);
  }
}

// value(code) for the chain's inputs, of which the first is input `first` of the block.
template <int64_t kBits, typename Value>
void DecodeCodes(const uint8_t* codes, int64_t tile, int64_t first, const Value& value, Chain& chain) {
  for (int64_t i = 0; i < chain.cols; ++i) {
    for (int64_t row = 0; row < kTileRows; ++row)
      chain.weights[i][row] = value(Code<kBits>(codes, tile, row, first + i));
  }
}

void DecodeCodes(DType type, const uint8_t* codes, int64_t tile, int64_t first, Chain& chain) {
  const BlockFormat format = FormatOf(type);
  // Without mins, codes are symmetric around the middle one.
  const int middle = format.has_mins ? 0 : 1 << (format.code_bits - 1);
  const auto number = [middle](int code) { return static_cast<float>(code - middle); };
  switch (format.code_bits) {
    case 8:
      return DecodeCodes<8>(
          codes, tile, first, [](int code) { return static_cast<float>(static_cast<int8_t>(code)); }, chain);
    case 5:
      return DecodeCodes<5>(codes, tile, first, number, chain);
    case 6:
      return DecodeCodes<6>(codes, tile, first, number, chain);
    default:
      if (type != DType::kMXFP4) return DecodeCodes<4>(codes, tile, first, number, chain);
      constexpr float kE2M1[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6};
      return DecodeCodes<4>(
          codes, tile, first, [&](int code) { return kE2M1[code]; }, chain);
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
    case DType::kQ4_1:
    case DType::kQ5_1: {
      const uint8_t* line = header + (tile * 4 + j) * kLineBytes + row * 2;
      *scale = FromF16(Load<uint16_t>(line));
      *min = FromF16(Load<uint16_t>(line + 32));
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
  }
  DecodeCodes(type, header + format.header_bytes, tile, input, chain);
}

}  // namespace moestro::ref
