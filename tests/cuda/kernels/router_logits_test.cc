#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/kernels/cuda/linear.h"
#include "tests/cuda/kernels/matrix.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

TEST(CudaRouterLogitsTest, AgainstDouble) {
  struct Case {
    int64_t experts, hidden, tokens;
  };
  for (const auto& [experts, hidden, tokens] :
       {Case{1, 1, 1}, Case{65, 33, 3}, Case{3, 4100, 9}, Case{64, 100, 33}, Case{65, 33, 66}}) {
    const std::vector<float> w = RandomFloats(experts * hidden, 1), x = RandomFloats(tokens * hidden, 2);
    const DeviceArray<float> device_w(w), device_x(x), logits(tokens * experts);
    ASSERT_TRUE(
        Ran(LaunchRouterLogits(device_w.get(), experts, hidden, device_x.get(), tokens, logits.get(), DeviceStream())));
    const std::vector<float> got = logits.Download();
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t expert = 0; expert < experts; ++expert) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < hidden; ++i) {
          const double term =
              double{w[static_cast<size_t>(expert * hidden + i)]} * x[static_cast<size_t>(token * hidden + i)];
          sum += term;
          magnitude += std::fabs(term);
        }
        ASSERT_NEAR(got[static_cast<size_t>(token * experts + expert)], sum,
                    Gamma(static_cast<double>(hidden)) * magnitude);
      }
    }
  }
}

// Either kernel, any place among a block's tokens.
void CheckBatches(int64_t hidden) {
  constexpr int64_t kExperts = 3, kTokens = 65;
  const std::vector<float> w = RandomFloats(kExperts * hidden, 1), x = RandomFloats(kTokens * hidden, 2);
  const DeviceArray<float> device_w(w), device_x(x), logits(kTokens * kExperts);
  const auto compute = [&](int64_t first, int64_t tokens, float* to) {
    return LaunchRouterLogits(device_w.get(), kExperts, hidden, device_x.get() + first * hidden, tokens, to,
                              DeviceStream());
  };
  ASSERT_TRUE(Ran(compute(0, kTokens, logits.get())));
  const std::vector<float> expected = logits.Download();
  for (const auto& [first, tokens] : {std::pair<int64_t, int64_t>{64, 1}, {3, 1}, {1, 9}, {60, 5}}) {
    const DeviceArray<float> alone(tokens * kExperts);
    ASSERT_TRUE(Ran(compute(first, tokens, alone.get())));
    const std::vector<float> got = alone.Download();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + first * kExperts)) << first << ", " << tokens;
  }
}

TEST(CudaRouterLogitsTest, ARowHasTheSameBitsInEveryBatch) {
  for (const int64_t hidden : {4100, 4099}) CheckBatches(hidden);  // copied by fours, and by single numbers
}

}  // namespace
}  // namespace moestro::cuda
