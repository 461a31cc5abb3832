#include "services/decode/metrics.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/thread_seconds.h"

namespace moestro::decode {
namespace {

// Every step pays for this, whether or not anybody looks. The bound is 1 % of a step of 2 ms: that of a model of a few
// megabytes.
TEST(DecodeMetricsTest, AStepIsCountedInMicroseconds) {
  MetricsRegistry registry("decode");
  DecodeMetrics metrics(registry);
  const StepPlan plan{.rows = {1, 1, 64}, .decode_rows = 2, .prompt_rows = 64};
  constexpr int kSteps = 100'000;
  const double begin = ThreadCpuSeconds();
  for (int i = 0; i < kSteps; ++i) {
    metrics.Observe(plan, plan.rows.size(), 0.02);
    metrics.generated_tokens.Increment(2);
    metrics.batch_size.Set(3);
  }
  const double microseconds = (ThreadCpuSeconds() - begin) * 1e6;
  std::printf("metrics of a decode step: %.3f us\n", microseconds / kSteps);
  EXPECT_LT(microseconds / kSteps, 20);
  EXPECT_EQ(metrics.steps.Value(), kSteps);
  EXPECT_EQ(metrics.prompt_tokens.Value(), 64.0 * kSteps);
}

}  // namespace
}  // namespace moestro::decode
