#include "services/decode/metrics.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

namespace moestro::decode {
namespace {

// Every step pays for this, whether or not anybody looks. The bound is 1 % of a step of 2 ms: that of a model of a few
// megabytes.
TEST(DecodeMetricsTest, AStepIsCountedInMicroseconds) {
  MetricsRegistry registry("decode");
  DecodeMetrics metrics(registry);
  const StepPlan plan{.rows = {1, 1, 64}, .decode_rows = 2, .prompt_rows = 64};
  constexpr int kSteps = 100'000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) {
    metrics.Observe(plan, plan.rows.size(), 0.02);
    metrics.generated_tokens.Increment(2);
    metrics.batch_size.Set(3);
  }
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
  std::printf("metrics of a decode step: %.3f us\n", elapsed.count() / kSteps);
  EXPECT_LT(elapsed.count() / kSteps, 20);
  EXPECT_EQ(metrics.steps.Value(), kSteps);
  EXPECT_EQ(metrics.prompt_tokens.Value(), 64.0 * kSteps);
}

}  // namespace
}  // namespace moestro::decode
