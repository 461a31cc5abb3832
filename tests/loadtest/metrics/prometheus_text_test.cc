#include "loadtest/metrics/prometheus_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::loadtest {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

TEST(ParsePrometheusText, SumsGaugesAndCountersOverLabels) {
  EXPECT_THAT(ParsePrometheusText("# HELP a Things\n"
                                  "# TYPE a gauge\n"
                                  "a{role=\"decode\",x=\"a } b\"} 3\n"
                                  "a{role=\"prefill\"} 4.5 1700000000\n"
                                  "# TYPE b_total counter\n"
                                  "b_total 1e3\n"
                                  "# TYPE h histogram\n"
                                  "h_bucket{le=\"1\"} 7\nh_sum 3\nh_count 7\n"
                                  "nobody_said_what 5\n"
                                  "garbage\n"),
              UnorderedElementsAre(Pair("a", 7.5), Pair("b_total", 1000)));
  EXPECT_TRUE(ParsePrometheusText("").empty());
}

}  // namespace
}  // namespace moestro::loadtest
