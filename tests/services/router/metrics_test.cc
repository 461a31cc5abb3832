#include "services/router/metrics.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(RouterMetricsTest, EveryOutcomeOfARequestIsCounted) {
  MetricsRegistry registry("router");
  RouterMetrics metrics(registry);
  const RequestSummary summary{.reason = FinishReason::kStop, .prompt_tokens = 5, .completion_tokens = 7};
  for (int code = 0; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "x");
    metrics.CountRequest(RequestKind::kGenerate, status, summary);
    metrics.CountRequest(RequestKind::kScore, status, summary);
  }
  // Failures say nothing about how long requests take.
  EXPECT_EQ(metrics.request_seconds.Collect().histogram.sample_count, 2u);
  EXPECT_EQ(metrics.request_prompt_tokens.Collect().histogram.sample_sum, 10);
  EXPECT_EQ(metrics.request_generation_tokens.Collect().histogram.sample_sum, 7);
}

TEST(GaugeHoldTest, CountsWhatLives) {
  MetricsRegistry registry("router");
  RouterMetrics metrics(registry);
  {
    const GaugeHold hold(metrics.running);
    EXPECT_EQ(metrics.running.Value(), 1);
  }
  EXPECT_EQ(metrics.running.Value(), 0);
}

}  // namespace
}  // namespace moestro
