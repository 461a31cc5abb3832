#include "loadtest/report/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::loadtest {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(MetricsSection, ShowsFirstLastAndExtremes) {
  Scrapes scrapes;
  scrapes.endpoint = "h:1";
  scrapes.series["moestro_kv_pages_free"] = {{0, 64}, {1, 3}, {2, 64}};
  scrapes.series["moestro_process_private_bytes"] = {{0, 1 << 20}, {1, 2 << 20}, {2, 2 << 20}};
  scrapes.series["moestro_quiet"] = {{0, 0}, {1, 0}, {2, 0}};
  scrapes.failed = 1;
  scrapes.last_error = "refused";
  Report report{.workload = "poisson"};
  AddMetricsSection({scrapes}, report);
  const std::string text = ReportMarkdown(report);
  EXPECT_THAT(text, HasSubstr("| moestro_kv_pages_free | h:1 | 64 | 64 | 3 | 64 |"));
  EXPECT_THAT(text, HasSubstr("| 1.00 MiB | 2.00 MiB | 1.00 MiB | 2.00 MiB |"));
  EXPECT_THAT(text, Not(HasSubstr("moestro_quiet")));
  EXPECT_THAT(text, HasSubstr("1 scrapes of h:1 failed, the last one with: refused"));
  EXPECT_EQ(report.data["metrics"].size(), 3U);
  EXPECT_THAT(ReportHtml(report), HasSubstr("Private memory"));
}

}  // namespace
}  // namespace moestro::loadtest
