// What a rounded row stands for is near the weights; ggml's dequantisation is the judge.
#include "services/cli/model/make_model/gguf/round_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/random_bits.h"
#include "common/tensor/block_rows.h"

namespace moestro::cli {
namespace {

constexpr int64_t kCols = 768;

// Of both signs, and each 32 of another size.
std::vector<float> Weights(uint64_t seed) {
  const RandomWords words(seed, "weights");
  std::vector<float> weights(kCols);
  for (size_t i = 0; i < weights.size(); ++i) {
    const double unit = static_cast<double>(words[i] >> 11) * 0x1p-53 - 0.4;
    weights[i] = static_cast<float>(unit * std::exp2(-static_cast<double>(i / 32 % 5)));
  }
  return weights;
}

std::vector<float> RoundTrip(DType type, const std::vector<float>& weights) {
  std::vector<uint8_t> row(static_cast<size_t>(RowBytes(type, std::ssize(weights))));
  RoundRow(type, weights, row.data());
  EXPECT_EQ(FindBadScale(type, row.data(), std::ssize(weights)), nullptr);
  std::vector<float> values(weights.size());
  DequantizeRow(type, row.data(), std::ssize(weights), values.data());
  return values;
}

struct Case {
  DType type;
  // Of the magnitude of a block's largest weight: half a step; a step where the codes of one sign are one fewer; and
  // what scales and mins of six or eight bits add.
  double tolerance;
  int64_t block;
};
constexpr Case kCases[] = {{DType::kQ8_0, 0.5 / 127, 32},
                           {DType::kQ4_0, 1.0 / 8, 32},
                           {DType::kQ5_0, 1.0 / 16, 32},
                           {DType::kQ4K, 0.5 * 2 / 15 + 15.0 / 15 / 63, 256},
                           {DType::kQ5K, 0.5 * 2 / 31 + 31.0 / 31 / 63, 256},
                           {DType::kQ6K, 0.5 / 31 + 32.0 / 31 / 254, 256},
                           // The largest is 4 to 8 scales; between 6 and 8 it becomes 6, else a step is at most 2.
                           {DType::kMXFP4, 0.25, 32}};
constexpr double kF16Scale = 0x1p-10;  // a scale is rounded to F16: of the largest weight

TEST(RoundRow, IsNearTheWeights) {
  for (const Case& format : kCases) {
    SCOPED_TRACE(DTypeName(format.type));
    const std::vector<float> weights = Weights(7), values = RoundTrip(format.type, weights);
    double error = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto first = weights.begin() + static_cast<int64_t>(i) / format.block * format.block;
      double largest = 0;
      std::for_each(first, first + format.block, [&](float w) { largest = std::max(largest, std::fabs(double{w})); });
      ASSERT_NEAR(values[i], weights[i], largest * (format.tolerance + 2 * kF16Scale)) << i;
      error = std::max(error, std::fabs(double{values[i]} - weights[i]) / largest);
    }
    EXPECT_GT(error, format.tolerance / 8) << "a tolerance that says nothing";
  }
}

TEST(RoundRow, ZerosStayZeros) {
  const std::vector<float> zeros(kCols, 0.0f);
  for (const Case& format : kCases) EXPECT_EQ(RoundTrip(format.type, zeros), zeros) << DTypeName(format.type);
}

TEST(RoundRow, SingleElementsAreExact) {
  const std::vector<float> weights = {1, -0.5f, 0.25f, 65504};
  std::vector<uint16_t> f16(4), bf16(4);
  std::vector<float> f32(4);
  RoundRow(DType::kF16, weights, reinterpret_cast<uint8_t*>(f16.data()));
  RoundRow(DType::kBF16, weights, reinterpret_cast<uint8_t*>(bf16.data()));
  RoundRow(DType::kF32, weights, reinterpret_cast<uint8_t*>(f32.data()));
  EXPECT_EQ(f32, weights);
  EXPECT_EQ(f16, (std::vector<uint16_t>{0x3c00, 0xb800, 0x3400, 0x7bff}));
  EXPECT_EQ(bf16, (std::vector<uint16_t>{0x3f80, 0xbf00, 0x3e80, 0x4780}));
}

}  // namespace
}  // namespace moestro::cli
