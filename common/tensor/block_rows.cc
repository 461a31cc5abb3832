#include "common/tensor/block_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/base/check.h"

namespace moestro {
namespace {

constexpr int64_t kMaxRowBlock = 256;

uint16_t Load16(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}
uint32_t Load32(const uint8_t* p) {
  uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}
uint64_t Load64(const uint8_t* p) {
  uint64_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}
void Store64(uint8_t* p, uint64_t bits) { std::memcpy(p, &bits, sizeof bits); }

// Bit i of `bits`, 0 to 7, as byte i of the result, 0 or 1.
constexpr uint64_t BytesOfBits(uint64_t bits) {
  const uint64_t spread = (bits & 255) * 0x0101010101010101 & 0x8040201008040201;  // in byte i: bit i or none
  return (spread + 0x7f7f7f7f7f7f7f7f) >> 7 & 0x0101010101010101;
}

// Of a block of a row: where its codes begin. REQUIRES: HasNibblesInOrder(type).
const uint8_t* NibblesOf(DType type, const uint8_t* block) {
  return block + FormatOf(type).row_block_bytes - FormatOf(type).row_block / 2;
}

// The codes of one block of a row, in the order of inputs.
void RowCodes(DType type, const uint8_t* block, uint8_t* codes) {
  switch (type) {
    case DType::kQ8_0:
      std::memcpy(codes, block + 2, 32);
      return;
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kMXFP4: {
      const uint8_t* halves = block + FormatOf(type).row_block_bytes - 16;  // of inputs i and i + 16
      for (int i = 0; i < 16; ++i) {
        codes[i] = halves[i] & 15;
        codes[i + 16] = halves[i] >> 4;
      }
      if (FormatOf(type).code_bits != 5) return;
      const uint8_t* fifth = halves - 4;
      for (int i = 0; i < 4; ++i) Store64(codes + 8 * i, Load64(codes + 8 * i) | BytesOfBits(fifth[i]) << 4);
      return;
    }
    case DType::kI4G32:
    case DType::kI4G128:
    case DType::kI4Z32:
    case DType::kI4Z128: {
      const uint8_t* pairs = NibblesOf(type, block);
      for (int64_t i = 0; i < FormatOf(type).row_block / 2; ++i) {
        codes[2 * i] = pairs[i] & 15;
        codes[2 * i + 1] = pairs[i] >> 4;
      }
      return;
    }
    case DType::kQ4K:
    case DType::kQ5K: {
      const uint8_t* nibbles = block + FormatOf(type).row_block_bytes - 128;
      for (int group = 0; group < 4; ++group, nibbles += 32) {
        uint8_t* out = codes + 64 * group;
        for (int i = 0; i < 32; ++i) {
          out[i] = nibbles[i] & 15;
          out[i + 32] = nibbles[i] >> 4;
        }
        if (type == DType::kQ4K) continue;
        const uint8_t* fifth = block + 16;
        for (int i = 0; i < 32; ++i) {
          out[i] |= static_cast<uint8_t>((fifth[i] >> (2 * group) & 1) << 4);
          out[i + 32] |= static_cast<uint8_t>((fifth[i] >> (2 * group + 1) & 1) << 4);
        }
      }
      return;
    }
    case DType::kQ6K:
      for (int half = 0; half < 2; ++half) {
        const uint8_t* low = block + 64 * half;
        const uint8_t* high = block + 128 + 32 * half;
        uint8_t* out = codes + 128 * half;
        for (int i = 0; i < 32; ++i) {
          out[i] = static_cast<uint8_t>((low[i] & 15) | (high[i] & 3) << 4);
          out[i + 32] = static_cast<uint8_t>((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
          out[i + 64] = static_cast<uint8_t>(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
          out[i + 96] = static_cast<uint8_t>(low[i + 32] >> 4 | high[i] >> 6 << 4);
        }
      }
      return;
    default:
      MOE_CHECK(false);
  }
}

// ggml's 6-bit scale and min of sub-block j.
void ScaleAndMin(const uint8_t* scales, int64_t j, uint8_t* scale, uint8_t* min) {
  if (j < 4) {
    *scale = scales[j] & 63;
    *min = scales[j + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((scales[j + 4] & 15) | scales[j - 4] >> 6 << 4);
    *min = static_cast<uint8_t>(scales[j + 4] >> 4 | scales[j] >> 6 << 4);
  }
}

constexpr float kE2M1[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6};

// What a code stands for before it is scaled.
float CodeValue(DType type, uint8_t code) {
  switch (type) {
    case DType::kQ8_0:
      return static_cast<float>(static_cast<int8_t>(code));
    case DType::kMXFP4:
      return kE2M1[code];
    default:
      if (FormatOf(type).has_mins) return static_cast<float>(code);
      // Symmetric around the middle code.
      return static_cast<float>(code - (1 << (FormatOf(type).code_bits - 1)));
  }
}

// The scale of sub-block j of a row's block; exact in F32.
float SubBlockScale(DType type, const uint8_t* block, int64_t j) {
  uint8_t scale = 0, min = 0;
  switch (type) {
    case DType::kI4G32:
    case DType::kI4G128:
      return FromBf16(Load16(block));
    case DType::kI4Z32:
    case DType::kI4Z128:
      return std::bit_cast<float>(Load32(block) & kScaleOfI4Z);
    case DType::kMXFP4:
      if (block[0] == 255) return std::bit_cast<float>(0x7fc00000u);
      return std::bit_cast<float>(block[0] == 0 ? 0x00400000u : uint32_t{block[0]} << 23);  // 2^(byte - 127)
    case DType::kQ4K:
    case DType::kQ5K:
      ScaleAndMin(block + 4, j, &scale, &min);
      return FromF16(Load16(block)) * static_cast<float>(scale);
    case DType::kQ6K:
      return FromF16(Load16(block + 208)) * static_cast<float>(static_cast<int8_t>(block[192 + j]));
    default:
      return FromF16(Load16(block));
  }
}

// The F16 that is subtracted where ggml adds this one. Zero has one form, that of padding.
uint16_t Negated(uint16_t f16) { return (f16 & 0x7fff) == 0 ? 0 : f16 ^ 0x8000; }

// Exact in F32, too.
float SubBlockMin(DType type, const uint8_t* block, int64_t j) {
  if (HasF16Scales(type)) return FromF16(Negated(Load16(block + 2)));
  if (HasNibblesInOrder(type)) {
    return SubBlockScale(type, block, j) * static_cast<float>(Load32(block) & kZeroOfI4Z);
  }
  uint8_t scale = 0, min = 0;
  ScaleAndMin(block + 4, j, &scale, &min);
  return FromF16(Load16(block + 2)) * static_cast<float>(min);
}

// Writes the part of a packed block's header that comes from block `b` of row `row` (of the group); b counts the row's
// blocks within the packed block.
void PackHeader(DType type, const uint8_t* block, int64_t row, int64_t b, uint8_t* header) {
  const int64_t tile = row / kTileRows, lane = row % kTileRows;
  switch (type) {
    case DType::kI4G32:
      std::memcpy(header + tile * 128 + b / 2 * 64 + lane * 4 + b % 2 * 2, block, 2);
      return;
    case DType::kI4G128:
      std::memcpy(header + tile * 32 + lane * 2, block, 2);
      return;
    case DType::kMXFP4:
      header[tile * 64 + lane * 4 + b] = block[0];
      return;
    case DType::kI4Z32:
    case DType::kI4Z128:
      std::memcpy(header + (tile * FormatOf(type).sub_blocks() + b) * 64 + lane * 4, block, 4);
      return;
    case DType::kQ4K:
    case DType::kQ5K:
      header += tile * 256;
      std::memcpy(header + lane * 2, block, 2);
      std::memcpy(header + 32 + lane * 2, block + 2, 2);
      for (int part = 0; part < 3; ++part) std::memcpy(header + 64 + part * 64 + lane * 4, block + 4 + part * 4, 4);
      return;
    case DType::kQ6K:
      std::memcpy(header + row * 2, block + 208, 2);
      for (int part = 0; part < 4; ++part) {
        std::memcpy(header + 128 + tile * 256 + part * 64 + lane * 4, block + 192 + part * 4, 4);
      }
      return;
    case DType::kQ4_1:
    case DType::kQ5_1: {
      uint8_t* const line = header + (tile * 4 + b) * 64;
      const uint16_t min = Negated(Load16(block + 2));
      std::memcpy(line + lane * 2, block, 2);
      std::memcpy(line + 32 + lane * 2, &min, sizeof min);
      return;
    }
    default:  // Q8_0, Q4_0, Q5_0
      std::memcpy(header + tile * 128 + b * 32 + lane * 2, block, 2);
  }
}

// Packed words. All take 8 codes, input i in byte i; `p` counts nibbles: input i is in nibble p = 4 (i % 2) + i % 8
// / 2.

// Moves the low kBits bits of bytes 0, 2, 4, 6 together. Each multiplication brings byte 2 k to bit 48 + kBits k; the
// other partial products end below bit 48 or above bit 63.
template <int kBits>
constexpr uint32_t EvenBytes(uint64_t codes) {
  constexpr uint64_t kMask = ((uint64_t{1} << kBits) - 1) * 0x0001000100010001;
  constexpr int kStep = 16 - kBits;
  constexpr uint64_t kMoves = uint64_t{1} << 48 | uint64_t{1} << (48 - kStep) | uint64_t{1} << (48 - 2 * kStep) |
                              uint64_t{1} << (48 - 3 * kStep);
  return static_cast<uint32_t>((codes & kMask) * kMoves >> 48);
}

// The low four bits as nibbles p.
constexpr uint32_t Nibbles(uint64_t codes) { return EvenBytes<4>(codes) | EvenBytes<4>(codes >> 8) << 16; }

// Bit 4: of nibble p, bit p % 4 of the word's lower half for even inputs, of its upper half for odd ones.
constexpr uint32_t FifthBits(uint64_t codes) { return EvenBytes<1>(codes >> 4) | EvenBytes<1>(codes >> 12) << 16; }

// Bits 4 and 5: bits 2 (p % 2) and up of byte p / 2.
constexpr uint32_t HighBits(uint64_t codes) {
  const uint32_t nibbles = Nibbles(codes >> 4);
  return (nibbles & 0x03030303) | (nibbles & 0x30303030) >> 2;
}

// Puts the codes of inputs [input, input + count) of a packed block to its codes at `area`, for one row. `count`: whole
// row blocks.
template <int kBits>
void PackCodes(const uint8_t* codes, int64_t count, int64_t row, int64_t input, uint8_t* area) {
  const int64_t tile = row / kTileRows, lane = row % kTileRows * 4;
  const auto store = [](uint8_t* p, uint32_t word) { std::memcpy(p, &word, sizeof word); };
  if constexpr (kBits == 8) {
    area += input / 4 * 256 + tile * 64 + lane;
    for (int64_t i = 0; i < count; i += 4, area += 256) {
      uint32_t word;
      std::memcpy(&word, codes + i, sizeof word);
      store(area, (word & 0xff0000ff) | (word & 0xff00) << 8 | (word >> 8 & 0xff00));
    }
  } else if constexpr (kBits == 4) {
    area += input / 8 * 256 + tile * 64 + lane;
    for (int64_t i = 0; i < count; i += 8, area += 256) store(area, Nibbles(Load64(codes + i)));
  } else if constexpr (kBits == 5) {
    area += (input / 32 * 4 + tile) * 320 + lane;
    for (int64_t i = 0; i < count; i += 32, area += 4 * 320) {
      uint32_t fifth = 0;
      for (int u = 0; u < 4; ++u) {
        const uint64_t eight = Load64(codes + i + 8 * u);
        store(area + 64 * u, Nibbles(eight));
        fifth |= FifthBits(eight) << (4 * u);
      }
      store(area + 256, fifth);
    }
  } else {
    static_assert(kBits == 6);
    area += (input / 16 * 4 + tile) * 192 + lane;
    for (int64_t i = 0; i < count; i += 16, area += 4 * 192) {
      const uint64_t first = Load64(codes + i), second = Load64(codes + i + 8);
      store(area, Nibbles(first));
      store(area + 64, Nibbles(second));
      store(area + 128, HighBits(first) | HighBits(second) << 4);
    }
  }
}

// As PackCodes<4> of codes that are two in a byte, in order: without a byte for each.
void PackNibbles(const uint8_t* nibbles, int64_t count, int64_t row, int64_t input, uint8_t* area) {
  area += input / 8 * 256 + row / kTileRows * 64 + row % kTileRows * 4;
  for (int64_t i = 0; i < count; i += 8, nibbles += 4, area += 256) {
    uint32_t word = Load32(nibbles);
    uint32_t changed = (word ^ word >> 4) & 0x00f000f0;  // nibbles 1 and 2, 5 and 6
    word ^= changed ^ changed << 4;
    changed = (word ^ word >> 8) & 0x0000ff00;  // bytes 1 and 2
    word ^= changed ^ changed << 8;
    std::memcpy(area, &word, sizeof word);
  }
}

void PackCodes(int64_t bits, const uint8_t* codes, int64_t count, int64_t row, int64_t input, uint8_t* area) {
  switch (bits) {
    case 8:
      return PackCodes<8>(codes, count, row, input, area);
    case 6:
      return PackCodes<6>(codes, count, row, input, area);
    case 5:
      return PackCodes<5>(codes, count, row, input, area);
    default:
      return PackCodes<4>(codes, count, row, input, area);
  }
}

}  // namespace

void DequantizeRow(DType type, const uint8_t* row, int64_t cols, float* out) {
  const BlockFormat format = FormatOf(type);
  MOE_CHECK(IsBlockFormat(type) && cols % format.row_block == 0);
  uint8_t codes[kMaxRowBlock];
  for (int64_t begin = 0; begin < cols; begin += format.row_block, row += format.row_block_bytes) {
    RowCodes(type, row, codes);
    for (int64_t i = 0; i < format.row_block; ++i) {
      const int64_t j = i / format.sub_block;
      const float scaled = SubBlockScale(type, row, j) * CodeValue(type, codes[i]);
      *out++ = format.has_mins ? scaled - SubBlockMin(type, row, j) : scaled;
    }
  }
}

void PackBlockRows(DType type, const uint8_t* src, int64_t src_row_bytes, int64_t rows_in_group, int64_t first,
                   int64_t count, uint8_t* dst) {
  const BlockFormat format = FormatOf(type);
  MOE_CHECK(rows_in_group >= 1 && rows_in_group <= kRowGroup);
  MOE_CHECK(first % format.block == 0 && count % format.row_block == 0);
  uint8_t codes[kMaxRowBlock];
  dst += first / format.block * format.packed_block_bytes();
  for (int64_t begin = first; begin < first + count; begin += format.block, dst += format.packed_block_bytes()) {
    const int64_t blocks = std::min(format.block, first + count - begin) / format.row_block;
    if (rows_in_group < kRowGroup || blocks * format.row_block < format.block) {
      std::memset(dst, 0, static_cast<size_t>(format.packed_block_bytes()));
    }
    for (int64_t row = 0; row < rows_in_group; ++row) {
      const uint8_t* block = src + row * src_row_bytes + RowBytes(type, begin);
      for (int64_t b = 0; b < blocks; ++b, block += format.row_block_bytes) {
        PackHeader(type, block, row, b, dst);
        if (HasNibblesInOrder(type)) {
          PackNibbles(NibblesOf(type, block), format.row_block, row, b * format.row_block, dst + format.header_bytes);
          continue;
        }
        RowCodes(type, block, codes);
        PackCodes(format.code_bits, codes, format.row_block, row, b * format.row_block, dst + format.header_bytes);
      }
    }
  }
}

void JoinCodesAndScales(DType type, const uint8_t* codes, const uint8_t* scales, int64_t cols, uint8_t* row) {
  const BlockFormat format = FormatOf(type);
  MOE_CHECK(type == DType::kI4G32 || type == DType::kI4G128 || type == DType::kMXFP4);
  MOE_CHECK(cols % format.row_block == 0);
  const int64_t code_bytes = format.row_block / 2, scale_bytes = format.row_block_bytes - code_bytes;
  for (int64_t begin = 0; begin < cols; begin += format.row_block) {
    std::memcpy(row, scales, static_cast<size_t>(scale_bytes));
    uint8_t* out = row + scale_bytes;
    if (type == DType::kMXFP4) {
      for (int i = 0; i < 16; ++i) {  // inputs i and i + 16 share a byte of a row
        const int shift = i % 2 * 4;
        out[i] = static_cast<uint8_t>((codes[i / 2] >> shift & 15) | (codes[8 + i / 2] >> shift & 15) << 4);
      }
    } else {
      std::memcpy(out, codes, static_cast<size_t>(code_bytes));
    }
    codes += code_bytes;
    scales += scale_bytes;
    row += format.row_block_bytes;
  }
}

void JoinCodesAndZeros(DType type, const uint8_t* codes, const uint32_t* factors, int64_t group, int64_t cols,
                       uint8_t* row) {
  const BlockFormat format = FormatOf(type);
  MOE_CHECK(HasZeroPoints(type));
  MOE_CHECK(group % format.row_block == 0 && cols % group == 0);
  const int64_t code_bytes = format.row_block / 2;
  for (int64_t end = group; end <= cols; end += group, ++factors) {
    for (int64_t begin = end - group; begin < end; begin += format.row_block) {
      std::memcpy(row, factors, sizeof *factors);
      std::memcpy(row + sizeof *factors, codes, static_cast<size_t>(code_bytes));
      codes += code_bytes;
      row += format.row_block_bytes;
    }
  }
}

const char* FindBadScale(DType type, const uint8_t* row, int64_t cols) {
  const BlockFormat format = FormatOf(type);
  for (int64_t begin = 0; begin < cols; begin += format.row_block, row += format.row_block_bytes) {
    if (!std::isfinite(SubBlockScale(type, row, 0))) return "a scale that is not finite";
    if (format.has_mins && !std::isfinite(SubBlockMin(type, row, 0))) return "a min that is not finite";
  }
  return nullptr;
}

}  // namespace moestro
