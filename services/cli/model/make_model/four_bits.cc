#include "services/cli/model/make_model/four_bits.h"

#include <algorithm>
#include <cmath>

#include "common/tensor/dtype.h"

namespace moestro::cli {
namespace {

float LargestMagnitude(const std::array<float, kFourBitGroup>& weights) {
  float largest = 0;
  for (const float weight : weights) largest = std::max(largest, std::fabs(weight));
  return largest;
}

// The code of 0, 0.5, 1, 1.5, 2, 3, 4 or 6 that is nearest.
uint8_t E2M1Magnitude(float value) {
  if (value < 2) return static_cast<uint8_t>(std::nearbyint(2 * value));
  if (value < 4) return static_cast<uint8_t>(2 + std::nearbyint(value));
  return static_cast<uint8_t>(std::min(4 + std::nearbyint(value / 2), 7.0f));
}

}  // namespace

Int4Group RoundToInt4(const std::array<float, kFourBitGroup>& weights) {
  Int4Group group;
  const float largest = LargestMagnitude(weights);
  group.scale = ToBf16(largest > 0 ? largest / 7.5f : 1);
  for (size_t i = 0; i < weights.size(); ++i) {
    const float steps = std::clamp(std::nearbyint(weights[i] / FromBf16(group.scale)), -8.0f, 7.0f);
    group.words[i / 8] |= static_cast<uint32_t>(steps + 8) << (i % 8 * 4);
  }
  return group;
}

Int4ZeroGroup RoundToInt4WithZero(const std::array<float, kFourBitGroup>& weights) {
  float low = 0, high = 0;
  for (const float weight : weights) low = std::min(low, weight), high = std::max(high, weight);
  Int4ZeroGroup group;
  group.scale = high > low ? std::max<uint16_t>(ToF16((high - low) / 15), 1) : ToF16(1);
  const float scale = FromF16(group.scale);
  const float zero = std::clamp(std::nearbyint(-low / scale), 0.0f, 15.0f);
  group.zero = static_cast<uint32_t>(zero);
  for (size_t i = 0; i < weights.size(); ++i) {
    const float code = std::clamp(std::nearbyint(weights[i] / scale) + zero, 0.0f, 15.0f);
    group.words[i / 8] |= static_cast<uint32_t>(code) << (i % 8 * 4);
  }
  return group;
}

Mxfp4Group RoundToMxfp4(const std::array<float, kFourBitGroup>& weights) {
  Mxfp4Group group;
  const float largest = LargestMagnitude(weights);
  const int exponent = largest > 0 ? std::max(std::ilogb(largest) - 2, -127) : -127;
  group.scale = static_cast<uint8_t>(exponent + 127);
  for (size_t i = 0; i < weights.size(); ++i) {
    const uint8_t magnitude = E2M1Magnitude(std::ldexp(std::fabs(weights[i]), -exponent));
    const auto code = static_cast<uint8_t>(magnitude | (std::signbit(weights[i]) ? 8 : 0));
    group.bytes[i / 2] |= static_cast<uint8_t>(code << (i % 2 * 4));
  }
  return group;
}

}  // namespace moestro::cli
