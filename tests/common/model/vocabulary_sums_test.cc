#include "common/model/vocabulary_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace moestro::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Lengths around the steps of the loops, and a vocabulary.
constexpr size_t kLengths[] = {1, 2, 15, 16, 17, 255, 256, 257, 1000, 151936, 151937};

std::vector<float> Logits(size_t count, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(count);
  std::ranges::generate(logits, [&] { return normal(random); });
  return logits;
}

double Truth(const std::vector<float>& logits, float maximum, float temperature) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp((static_cast<double>(logit) - maximum) / temperature);
  return sum;
}

TEST(SumOfExp, IsThatOfDoublePrecision) {
  for (const size_t count : kLengths) {
    for (const float deviation : {0.0f, 0.1f, 3.0f, 40.0f}) {
      for (const float temperature : {1.0f, 0.3f, 2.0f}) {
        std::vector<float> logits = Logits(count, deviation, static_cast<uint32_t>(count));
        if (count > 10) logits[count / 2] = logits.back() = -kInfinity;
        const float maximum = *std::ranges::max_element(logits);
        const double truth = Truth(logits, maximum, temperature);
        EXPECT_NEAR(SumOfExp(logits, maximum, temperature), truth, 3e-6 * truth)
            << count << " " << deviation << " " << temperature;
      }
    }
  }
}

TEST(SumOfExp, OneTermAtATime) {
  for (float x = -87; x <= 0; x += 0.0123f) {
    const float logits[] = {x, 0};
    // Exact sums of it and 1, but for the rounding of the term itself.
    EXPECT_NEAR(SumOfExp(logits, 0) - 1, std::exp(static_cast<double>(x)),
                2.5e-7 * std::exp(static_cast<double>(x)) + 2e-16)
        << x;
  }
  for (const float x : {-88.0f, -1e4f, -std::numeric_limits<float>::max(), -kInfinity}) {
    const float logits[] = {x, 0};
    EXPECT_EQ(SumOfExp(logits, 0), 1) << x;
  }
}

// Neither overflows nor divides zero by zero.
TEST(SumOfExp, AnyTemperature) {
  const std::vector<float> logits = {1, 2, 2, -kInfinity};
  EXPECT_EQ(SumOfExp(logits, 2, std::numeric_limits<float>::denorm_min()), 2);
  EXPECT_EQ(SumOfExp(logits, 2, 1e-6f), 2);
  EXPECT_NEAR(SumOfExp(logits, 2, std::numeric_limits<float>::max()), 3, 1e-6);
}

TEST(LargestLogit, TheFirstOfEqualOnesWherever) {
  for (const size_t count : kLengths) {
    std::vector<float> logits = Logits(count, 1, 7);
    for (const size_t place : {size_t{0}, count / 3, count - 1}) {
      std::vector<float> changed = logits;
      changed[place] = 100;
      changed.back() = 100;
      EXPECT_EQ(LargestLogit(changed), static_cast<int32_t>(place)) << count;
      changed[place] = kNan;
      EXPECT_EQ(LargestLogit(changed), std::nullopt) << count;
      EXPECT_TRUE(HasNan(changed)) << count;
      changed[place] = kInfinity;
      EXPECT_EQ(LargestLogit(changed), std::nullopt) << count;
      EXPECT_FALSE(HasNan(changed)) << count;
    }
    std::ranges::fill(logits, -kInfinity);
    EXPECT_EQ(LargestLogit(logits), std::nullopt) << count;
    logits.back() = -5;
    EXPECT_EQ(LargestLogit(logits), static_cast<int32_t>(count - 1));
  }
  EXPECT_EQ(LargestLogit({}), std::nullopt);
}

}  // namespace
}  // namespace moestro::model
