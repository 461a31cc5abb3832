#include "services/router/metrics.h"

#include <gtest/gtest.h>

namespace moestro::router {
namespace {

TEST(RouterMetricsTest, EveryOutcomeOfARequestIsCounted) {
  MetricsRegistry registry("router");
  RouterMetrics metrics(registry);
  const RequestSummary summary{.reason = FinishReason::kStop,
                               .prompt_tokens = 5,
                               .completion_tokens = 7,
                               .prefill_seconds = 2,
                               .decode_seconds = 3};
  for (int code = 0; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "x");
    metrics.CountRequest(RequestKind::kGenerate, status, summary);
    metrics.CountRequest(RequestKind::kScore, status, summary);
  }
  // Failures say nothing about how long requests take.
  EXPECT_EQ(metrics.request_seconds.Collect().histogram.sample_count, 2u);
  EXPECT_EQ(metrics.request_prompt_tokens.Collect().histogram.sample_sum, 10);
  EXPECT_EQ(metrics.request_generation_tokens.Collect().histogram.sample_sum, 7);
  // Scores have no such phases.
  EXPECT_EQ(metrics.prefill_seconds.Collect().histogram.sample_count, 1u);
  EXPECT_EQ(metrics.prefill_seconds.Collect().histogram.sample_sum, 2);
  EXPECT_EQ(metrics.decode_seconds.Collect().histogram.sample_sum, 3);
}

TEST(RouterMetricsTest, EveryPathIsThereAtZero) {
  MetricsRegistry registry("router");
  RouterMetrics metrics(registry);
  for (const PrefillPath path : kPrefillPaths) {
    EXPECT_EQ(metrics.Admitted(path).Value(), 0);
    EXPECT_EQ(metrics.TimeToFirstToken(path).Collect().histogram.sample_count, 0u);
  }
  metrics.Admitted(PrefillPath::kSplit).Increment();
  EXPECT_EQ(metrics.Admitted(PrefillPath::kChunked).Value(), 0);
  EXPECT_EQ(metrics.Admitted(PrefillPath::kSplit).Value(), 1);
  EXPECT_EQ(metrics.Admitted(PrefillPath::kWholeMachine).Value(), 0);
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
}  // namespace moestro::router
