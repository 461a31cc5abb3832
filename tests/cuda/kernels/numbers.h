// Shared by tests of CUDA kernels: random numbers, rounding bounds, waiting for a kernel.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "common/kernels/cuda/stream.h"
#include "common/tensor/dtype.h"
#include "tests/cuda/device.h"

namespace moestro::cuda {

// Rounding bounds after Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1: n roundings in a chain
// change the result by at most Gamma(n) times the sum of the absolute terms.
inline constexpr double kUnitF32 = 0x1p-24;  // half a unit of the last place, relative
inline constexpr double kUnitBf16 = 0x1p-8;
inline double Gamma(double n) { return n * kUnitF32 / (1 - n * kUnitF32); }

// Tensor cores align the 16 exact products of an mma and its third operand to the greatest of them, and truncate below
// the last place of an F32 of that size ("Numerical behavior of NVIDIA tensor cores", Fasi et al. 2021). Each of the 17
// terms loses less than two units of kUnitF32, and so does the sum.
inline constexpr double kMmaRoundings = 2 * 18;

inline std::vector<float> RandomFloats(int64_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

inline std::vector<uint16_t> RandomBf16(int64_t n, uint32_t seed, float scale = 1.0f) {
  std::vector<uint16_t> values;
  for (const float value : RandomFloats(n, seed, scale)) values.push_back(ToBf16(value));
  return values;
}

inline constexpr uint16_t kBf16Nan = 0x7fc0;

// Use as ASSERT_TRUE(Ran(Launch...(...))).
inline ::testing::AssertionResult Ran(LaunchResult result) {
  const std::string error = Synchronize();
  if (!error.empty()) return ::testing::AssertionFailure() << error;
  if (!result.ok()) return ::testing::AssertionFailure() << "launch: error " << result.error;
  return ::testing::AssertionSuccess();
}

}  // namespace moestro::cuda
