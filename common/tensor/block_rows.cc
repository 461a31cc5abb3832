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

// The codes of one block of a row, in the order of inputs.
void RowCodes(DType type, const uint8_t* block, uint8_t* codes) {
  switch (type) {
    case DType::kQ8_0:
      std::memcpy(codes, block + 2, 32);
      return;
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kMXFP4: {
      const uint8_t* halves = block + FormatOf(type).row_block_bytes - 16;  // of inputs i and i + 16
      uint32_t fifth = 0;
      if (type == DType::kQ5_0) std::memcpy(&fifth, block + 2, sizeof fifth);
      for (int i = 0; i < 16; ++i) {
        codes[i] = static_cast<uint8_t>((halves[i] & 15) | (fifth >> i & 1) << 4);
        codes[i + 16] = static_cast<uint8_t>(halves[i] >> 4 | (fifth >> (i + 16) & 1) << 4);
      }
      return;
    }
    case DType::kI4G32:
    case DType::kI4G128:
      for (int64_t i = 0; i < FormatOf(type).row_block; ++i) {
        codes[i] = static_cast<uint8_t>(block[2 + i / 2] >> (i % 2 * 4) & 15);
      }
      return;
    case DType::kQ4K:
    case DType::kQ5K: {
      const uint8_t* nibbles = block + FormatOf(type).row_block_bytes - 128;
      const uint8_t* fifth = block + 16;
      for (int i = 0; i < 256; ++i) {
        const int group = i / 64, in_group = i % 64, l = in_group % 32, high = in_group / 32;
        codes[i] = static_cast<uint8_t>(nibbles[32 * group + l] >> (4 * high) & 15);
        if (type == DType::kQ5K) codes[i] |= static_cast<uint8_t>((fifth[l] >> (2 * group + high) & 1) << 4);
      }
      return;
    }
    case DType::kQ6K:
      for (int i = 0; i < 256; ++i) {
        const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
        const uint8_t low = block[64 * half + quarter % 2 * 32 + l];
        const uint8_t high = block[128 + 32 * half + l];
        codes[i] = static_cast<uint8_t>((low >> (quarter / 2 * 4) & 15) | (high >> (2 * quarter) & 3) << 4);
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
    case DType::kQ4K:
    case DType::kQ5K:
      return static_cast<float>(code);
    default:  // symmetric around the middle code
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
    case DType::kMXFP4:
      return block[0] == 255 ? std::bit_cast<float>(0x7fc00000u) : std::ldexp(1.0f, block[0] - 127);
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

float SubBlockMin(const uint8_t* block, int64_t j) {
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
    default:  // Q8_0, Q4_0, Q5_0
      std::memcpy(header + tile * 128 + b * 32 + lane * 2, block, 2);
  }
}

// The bits of a four-bit code in the 32 bits of 8 inputs.
constexpr int NibbleShift(int64_t input) { return static_cast<int>(input % 2 * 4 + input % 8 / 2) * 4; }

void Or32(uint8_t* p, uint32_t bits) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  word |= bits;
  std::memcpy(p, &word, sizeof word);
}

// Puts the codes of inputs [input, input + count) of a packed block into `codes_area`, which is zero where no code is.
void PackCodes(DType type, const uint8_t* codes, int64_t count, int64_t row, int64_t input, uint8_t* area) {
  const int64_t tile = row / kTileRows, lane = row % kTileRows * 4;
  for (int64_t i = input; i < input + count; ++i) {
    const uint32_t code = *codes++;
    switch (FormatOf(type).code_bits) {
      case 8: {
        constexpr int kPlace[4] = {0, 2, 1, 3};
        area[(i / 4 * 4 + tile) * 64 + lane + kPlace[i % 4]] = static_cast<uint8_t>(code);
        break;
      }
      case 4:
        Or32(area + (i / 8 * 4 + tile) * 64 + lane, code << NibbleShift(i));
        break;
      case 5: {
        uint8_t* step = area + (i / 32 * 4 + tile) * 320 + lane;
        Or32(step + i % 32 / 8 * 64, (code & 15) << NibbleShift(i));
        Or32(step + 256, (code >> 4) << (i % 2 * 16 + i % 32 / 8 * 4 + i % 8 / 2));
        break;
      }
      default: {  // 6
        uint8_t* step = area + (i / 16 * 4 + tile) * 192 + lane;
        const int64_t nibble = NibbleShift(i) / 4, field = i % 16 / 8 * 2 + nibble % 2;
        Or32(step + i % 16 / 8 * 64, (code & 15) << NibbleShift(i));
        Or32(step + 128, (code >> 4) << (nibble / 2 * 8 + field * 2));
      }
    }
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
      *out++ = format.has_mins ? scaled - SubBlockMin(row, j) : scaled;
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
    std::memset(dst, 0, static_cast<size_t>(format.packed_block_bytes()));
    const int64_t blocks = std::min(format.block, first + count - begin) / format.row_block;
    for (int64_t row = 0; row < rows_in_group; ++row) {
      const uint8_t* block = src + row * src_row_bytes + RowBytes(type, begin);
      for (int64_t b = 0; b < blocks; ++b, block += format.row_block_bytes) {
        RowCodes(type, block, codes);
        PackHeader(type, block, row, b, dst);
        PackCodes(type, codes, format.row_block, row, b * format.row_block, dst + format.header_bytes);
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

const char* FindBadScale(DType type, const uint8_t* row, int64_t cols) {
  const BlockFormat format = FormatOf(type);
  for (int64_t begin = 0; begin < cols; begin += format.row_block, row += format.row_block_bytes) {
    if (!std::isfinite(SubBlockScale(type, row, 0))) return "a scale that is not finite";
    if (format.has_mins && !std::isfinite(SubBlockMin(row, 0))) return "a min that is not finite";
  }
  return nullptr;
}

}  // namespace moestro
