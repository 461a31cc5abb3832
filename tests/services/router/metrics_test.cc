#include "services/router/metrics.h"

#include <gtest/gtest.h>

#include <optional>

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

// A machine that is slow, as it forecasts, is not late.
TEST(RouterMetricsTest, LateIsWhatTakesLongerThanTheObjectiveAndTwiceTheForecast) {
  MetricsRegistry registry("router");
  RouterMetrics metrics(registry);
  const auto first = [&](double seconds, std::optional<double> predicted) {
    const double before = metrics.late_first_tokens.Value();
    metrics.ObserveFirstToken(PrefillPath::kSplit, seconds, predicted);
    return metrics.late_first_tokens.Value() > before;
  };
  EXPECT_FALSE(first(30, std::nullopt));
  EXPECT_TRUE(first(31, std::nullopt));
  EXPECT_TRUE(first(31, 1));
  EXPECT_FALSE(first(200, 100));
  EXPECT_TRUE(first(201, 100));
  EXPECT_EQ(metrics.TimeToFirstToken(PrefillPath::kSplit).Collect().histogram.sample_count, 5u);

  const auto next = [&](double seconds) {
    const double before = metrics.late_tokens.Value();
    metrics.ObserveNextToken(seconds);
    return metrics.late_tokens.Value() > before;
  };
  EXPECT_FALSE(next(0.05));
  EXPECT_TRUE(next(0.06));
  metrics.SetStepSeconds(0.2);
  EXPECT_FALSE(next(0.4));
  EXPECT_TRUE(next(0.41));
  metrics.SetStepSeconds(0);
  EXPECT_TRUE(next(0.06));
  EXPECT_EQ(metrics.inter_token_latency.Collect().histogram.sample_count, 5u);
}

}  // namespace
}  // namespace moestro::router
