// Random E4M3 codes, distributed like weights that were scaled so that four standard deviations reach the format's
// largest value: every magnitude occurs, subnormals too, and no NaN.
#pragma once

#include <array>
#include <cstdint>

namespace moestro {

// Standard deviation of the values of the codes (before the block scale).
inline constexpr double kCodeStdDev = 112.0;

// Sixteen random bits pick a code: the top bit is the sign, the others index this table of 2^15 magnitude codes.
using MagnitudeTable = std::array<uint8_t, 32768>;
const MagnitudeTable& Fp8Magnitudes();

inline uint8_t Fp8Code(const MagnitudeTable& table, uint16_t bits) {
  return static_cast<uint8_t>(table[bits & 0x7fff] | ((bits >> 8) & 0x80));
}

}  // namespace moestro
