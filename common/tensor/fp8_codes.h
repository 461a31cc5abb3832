// Random E4M3 codes, distributed like weights whose scale maps four standard deviations to the format's largest value.
// Every magnitude occurs, subnormals included; NaN does not.
#pragma once

#include <array>
#include <cstdint>

namespace moestro {

// Standard deviation of the codes' values (before the block scale).
inline constexpr double kCodeStdDev = 112.0;

// Sixteen random bits select a code: the top bit is the sign, the others index this table of 2^15 magnitude codes.
using MagnitudeTable = std::array<uint8_t, 32768>;
const MagnitudeTable& Fp8Magnitudes();

inline uint8_t Fp8Code(const MagnitudeTable& table, uint16_t bits) {
  return static_cast<uint8_t>(table[bits & 0x7fff] | ((bits >> 8) & 0x80));
}

}  // namespace moestro
