#include "services/cli/model/make_model/gguf/round_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/tensor/block_format.h"
#include "common/tensor/block_rows.h"
#include "services/cli/model/make_model/four_bits.h"

namespace moestro::cli {
namespace {

using Weights = std::span<const float>;

constexpr int64_t kSuperBlock = 256;  // of the formats whose scales are rounded, too

template <typename T>
void Store(uint8_t* out, T value) {
  std::memcpy(out, &value, sizeof value);
}

// Rounds and stores an F16 scale; returns what it stands for.
float StoreScale(uint8_t* out, float scale) {
  const uint16_t bits = ToF16(scale);
  Store(out, bits);
  return FromF16(bits);
}

// value / scale, rounded, in [low, high]; 0 if the scale is 0.
int Steps(float value, float scale, int low, int high) {
  if (scale == 0) return 0;
  return static_cast<int>(std::clamp(std::nearbyint(value / scale), static_cast<float>(low), static_cast<float>(high)));
}

float LargestMagnitude(Weights weights) {
  float largest = 0;
  for (const float weight : weights) largest = std::max(largest, std::fabs(weight));
  return largest;
}

void RoundToQ8(Weights weights, uint8_t* out) {
  const float scale = StoreScale(out, LargestMagnitude(weights) / 127);
  for (const float weight : weights) *(out++ + 2) = static_cast<uint8_t>(Steps(weight, scale, -127, 127));
}

// Q4_0 and Q5_0: the largest weight has the lowest code, whatever its sign.
void RoundToSymmetric(int bits, Weights weights, uint8_t* out) {
  const int middle = 1 << (bits - 1);
  const float largest = *std::ranges::max_element(weights, {}, [](float weight) { return std::fabs(weight); });
  const float scale = StoreScale(out, largest / static_cast<float>(-middle));
  const auto code = [&](size_t i) {
    return static_cast<uint32_t>(Steps(weights[i], scale, -middle, middle - 1) + middle);
  };
  uint8_t* const halves = out + (bits == 5 ? 6 : 2);
  uint32_t fifth = 0;
  for (size_t i = 0; i < 16; ++i) {
    halves[i] = static_cast<uint8_t>((code(i) & 15) | (code(i + 16) & 15) << 4);
    fifth |= code(i) >> 4 << i | code(i + 16) >> 4 << (i + 16);
  }
  if (bits == 5) Store(out + 2, fifth);
}

// Q4_K and Q5_K: eight sub-blocks with a scale and a min of six bits each.
void RoundWithMins(int bits, Weights weights, uint8_t* out) {
  constexpr size_t kSub = 32, kSubs = kSuperBlock / kSub;
  const int highest = (1 << bits) - 1;
  std::array<float, kSubs> scales, mins;
  for (size_t j = 0; j < kSubs; ++j) {
    const auto [low, high] = std::ranges::minmax(weights.subspan(j * kSub, kSub));
    mins[j] = std::max(-low, 0.0f);
    scales[j] = (std::max(high, 0.0f) + mins[j]) / static_cast<float>(highest);
  }
  const float scale = StoreScale(out, std::ranges::max(scales) / 63);
  const float min = StoreScale(out + 2, std::ranges::max(mins) / 63);
  uint8_t* const six_bits = out + 4;
  std::fill_n(six_bits, 12, uint8_t{0});
  std::array<uint8_t, kSuperBlock> codes;
  for (size_t j = 0; j < kSubs; ++j) {
    const int s = Steps(scales[j], scale, 0, 63), m = Steps(mins[j], min, 0, 63);
    if (j < 4) {
      six_bits[j] |= static_cast<uint8_t>(s);
      six_bits[j + 4] |= static_cast<uint8_t>(m);
    } else {
      six_bits[j + 4] = static_cast<uint8_t>((s & 15) | (m & 15) << 4);
      six_bits[j - 4] |= static_cast<uint8_t>(s >> 4 << 6);
      six_bits[j] |= static_cast<uint8_t>(m >> 4 << 6);
    }
    for (size_t i = j * kSub; i < (j + 1) * kSub; ++i) {
      const float above = weights[i] + min * static_cast<float>(m);
      codes[i] = static_cast<uint8_t>(Steps(above, scale * static_cast<float>(s), 0, highest));
    }
  }
  uint8_t* const fifth = out + 16;
  uint8_t* const nibbles = fifth + (bits == 5 ? kSub : 0);
  if (bits == 5) std::fill_n(fifth, kSub, uint8_t{0});
  for (size_t pair = 0; pair < kSubs / 2; ++pair) {
    for (size_t i = 0; i < kSub; ++i) {
      const int low = codes[2 * kSub * pair + i], high = codes[2 * kSub * pair + kSub + i];
      nibbles[kSub * pair + i] = static_cast<uint8_t>((low & 15) | (high & 15) << 4);
      if (bits == 5) fifth[i] |= static_cast<uint8_t>((low >> 4 | high >> 4 << 1) << (2 * pair));
    }
  }
}

// Sixteen sub-blocks with a scale of eight bits each.
void RoundToQ6K(Weights weights, uint8_t* out) {
  constexpr size_t kSub = 16, kSubs = kSuperBlock / kSub;
  uint8_t *const low = out, *const high = out + 128, *const scales = out + 192;
  std::array<float, kSubs> wanted;
  for (size_t j = 0; j < kSubs; ++j) wanted[j] = LargestMagnitude(weights.subspan(j * kSub, kSub)) / 31;
  const float scale = StoreScale(out + 208, std::ranges::max(wanted) / 127);
  std::array<uint8_t, kSuperBlock> codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    const int s = Steps(wanted[i / kSub], scale, 0, 127);
    scales[i / kSub] = static_cast<uint8_t>(s);
    codes[i] = static_cast<uint8_t>(Steps(weights[i], scale * static_cast<float>(s), -32, 31) + 32);
  }
  for (size_t half = 0; half < 2; ++half) {
    for (size_t i = 0; i < 32; ++i) {
      const auto code = [&](size_t quarter) { return codes[128 * half + 32 * quarter + i]; };
      low[64 * half + i] = static_cast<uint8_t>((code(0) & 15) | (code(2) & 15) << 4);
      low[64 * half + 32 + i] = static_cast<uint8_t>((code(1) & 15) | (code(3) & 15) << 4);
      high[32 * half + i] =
          static_cast<uint8_t>(code(0) >> 4 | code(1) >> 4 << 2 | code(2) >> 4 << 4 | code(3) >> 4 << 6);
    }
  }
}

void RoundToMxBlock(Weights weights, uint8_t* out) {
  std::array<float, kFourBitGroup> group;
  std::ranges::copy(weights, group.begin());
  const Mxfp4Group rounded = RoundToMxfp4(group);
  JoinCodesAndScales(DType::kMXFP4, rounded.bytes.data(), &rounded.scale, kFourBitGroup, out);
}

void RoundBlock(DType type, Weights weights, uint8_t* out) {
  switch (type) {
    case DType::kQ8_0:
      return RoundToQ8(weights, out);
    case DType::kQ4_0:
      return RoundToSymmetric(4, weights, out);
    case DType::kQ5_0:
      return RoundToSymmetric(5, weights, out);
    case DType::kQ4K:
      return RoundWithMins(4, weights, out);
    case DType::kQ5K:
      return RoundWithMins(5, weights, out);
    case DType::kQ6K:
      return RoundToQ6K(weights, out);
    case DType::kMXFP4:
      return RoundToMxBlock(weights, out);
    default:
      MOE_CHECK(false);
  }
}

}  // namespace

void RoundRow(DType type, std::span<const float> values, uint8_t* out) {
  const auto cols = static_cast<int64_t>(values.size());
  MOE_CHECK(HasWholeBlocks(type, cols));
  if (IsBlockFormat(type)) {
    const BlockFormat format = FormatOf(type);
    for (int64_t i = 0; i < cols; i += format.row_block, out += format.row_block_bytes) {
      RoundBlock(type, values.subspan(static_cast<size_t>(i), static_cast<size_t>(format.row_block)), out);
    }
  } else if (type == DType::kF32) {
    std::memcpy(out, values.data(), values.size_bytes());
  } else {
    MOE_CHECK(type == DType::kF16 || type == DType::kBF16);
    for (const float value : values) {
      Store(out, type == DType::kF16 ? ToF16(value) : ToBf16(value));
      out += sizeof(uint16_t);
    }
  }
}

}  // namespace moestro::cli
