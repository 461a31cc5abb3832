#include "common/telemetry/prometheus_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace moestro {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr double kNoBound = std::numeric_limits<double>::infinity();

TEST(ParsePrometheusText, SumsGaugesAndCountersOverLabels) {
  const ScrapedMetrics metrics = ParsePrometheusText(
      "# HELP a Things\n"
      "# TYPE a gauge\n"
      "a{role=\"decode\",x=\"a } b\"} 3\n"
      "a{role=\"prefill\"} 4.5 1700000000\n"
      "# TYPE b_total counter\n"
      "b_total 1e3\n"
      "# TYPE h histogram\n"
      "h_bucket{le=\"1\"} 7\nh_sum 3\nh_count 7\n"
      "nobody_said_what 5\n"
      "garbage\n");
  EXPECT_THAT(metrics.values, UnorderedElementsAre(Pair("a", 7.5), Pair("b_total", 1000)));
  EXPECT_TRUE(ParsePrometheusText("").values.empty());
}

TEST(ParsePrometheusText, KeepsDevicesApart) {
  const ScrapedMetrics metrics = ParsePrometheusText(
      "# TYPE share gauge\n"
      "share{device=\"cuda:0\",role=\"prefill\"} 3\n"
      "share{role=\"prefill\",device=\"host:1\"} 2\n"
      "share{other_device=\"x\"} 1\n");
  EXPECT_THAT(metrics.by_device.at("share"), ElementsAre(Pair("cuda:0", 3), Pair("host:1", 2)));
  EXPECT_EQ(metrics.values.at("share"), 6);
}

TEST(ParsePrometheusText, SumsHistogramsOverLabels) {
  const ScrapedMetrics metrics = ParsePrometheusText(
      "# TYPE t_seconds histogram\n"
      "t_seconds_count{path=\"a\"} 3\n"
      "t_seconds_sum{path=\"a\"} 2.5\n"
      "t_seconds_bucket{path=\"a\",le=\"0.5\"} 2\n"
      "t_seconds_bucket{path=\"a\",le=\"+Inf\"} 3\n"
      "t_seconds_bucket{le=\"0.5\"} 1\n"
      "t_seconds_bucket{le=\"+Inf\"} 1\n"
      "t_seconds_bucket{scale=\"9\"} 1\n"
      "t_seconds_bucket{path=\"a\",le=\"wide\"} 1\n"
      "other_bucket{le=\"1\"} 4\n");
  ASSERT_EQ(metrics.histograms.size(), 1u);
  EXPECT_THAT(metrics.histograms.at("t_seconds").at_most, ElementsAre(Pair(0.5, 3), Pair(kNoBound, 4)));
  EXPECT_EQ(metrics.histograms.at("t_seconds").count(), 4);
  EXPECT_TRUE(metrics.values.empty());
}

}  // namespace
}  // namespace moestro
