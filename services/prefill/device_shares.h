// How large the parts of a prompt are that unlike devices compute: their shares (RankSetup).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moestro::prefill {

// The largest share that a setting may name. All of them times a model's experts, or a prompt's blocks, fit 64 bits.
inline constexpr int64_t kMaxDeviceShare = 1000;

// Shares of devices that take `seconds` for the same work: in proportion to their speed, in tenths of the fastest
// one's, with no common divisor. Devices within a tenth of each other have the same, so that what a measurement is off
// does not decide how prompts are cut. None has less than a tenth. REQUIRES: seconds above 0.
std::vector<int64_t> SharesOf(std::span<const double> seconds);

}  // namespace moestro::prefill
