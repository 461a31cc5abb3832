// Groups of 32 weights in four bits, by plain rounding, as checkpoints publish them.
#pragma once

#include <array>
#include <cstdint>

namespace moestro::cli {

inline constexpr int64_t kFourBitGroup = 32;

// compressed-tensors "pack-quantized": weight = code * scale, codes from -8 to 7.
struct Int4Group {
  uint16_t scale = 0;               // BF16: max|weight| / 7.5; 1 if all weights are 0
  std::array<uint32_t, 4> words{};  // eight codes each, plus 8, the first lowest
};
Int4Group RoundToInt4(const std::array<float, kFourBitGroup>& weights);

// The same with a zero point, and AWQ and GPTQ: weight = (code - zero) * scale, codes and zero from 0 to 15. Zero has a
// code.
struct Int4ZeroGroup {
  uint16_t scale = 0;               // F16: (max(0, weights) - min(0, weights)) / 15; 1 if all weights are 0
  uint32_t zero = 0;                // -min / scale, rounded
  std::array<uint32_t, 4> words{};  // eight codes each, the first lowest
};
Int4ZeroGroup RoundToInt4WithZero(const std::array<float, kFourBitGroup>& weights);

// OCP microscaling (MXFP4): weight = E2M1 code * 2^(scale - 127).
struct Mxfp4Group {
  uint8_t scale = 0;                // so that max|weight| lies in [4, 8) before it is rounded; 0 if all weights are 0
  std::array<uint8_t, 16> bytes{};  // two codes each, the first low. Ties go to the code whose last bit is 0
};
Mxfp4Group RoundToMxfp4(const std::array<float, kFourBitGroup>& weights);

}  // namespace moestro::cli
