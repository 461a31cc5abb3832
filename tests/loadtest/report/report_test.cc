#include "loadtest/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadtest/report/sections.h"

namespace moestro::loadtest {
namespace {

using testing::HasSubstr;

Report Small() {
  Report report{.workload = "poisson", .interrupted = true};
  report.findings = {"2 requests & 1 failure"};
  report.facts = {{"Model", "tiny"}};
  report.sections = {{.title = "Requests",
                      .about = "What happened.",
                      .tables = {{.columns = {"requests", "sent"}, .rows = {{"all", "2"}}}},
                      .plots = {"<svg></svg>\n"}}};
  report.data["all"] = {{"requests", 2}};
  report.revision = "4a2ffd1-dirty";
  report.date = "2026-11-22";
  return report;
}

TEST(Report, Markdown) {
  EXPECT_EQ(ReportMarkdown(Small()),
            "# moestro-loadtest poisson\n\n"
            "**Interrupted: measurements up to that point.**\n\n"
            "- **2 requests & 1 failure**\n"
            "- Model: tiny\n\n"
            "## Requests\n\nWhat happened.\n\n"
            "| requests | sent |\n|---|---:|\n| all | 2 |\n");
}

TEST(Report, Json) {
  EXPECT_EQ(ReportJson(Small()).dump(),
            R"({"all":{"requests":2},"date":"2026-11-22","dirty":true,"findings":["2 requests & 1 failure"],)"
            R"("interrupted":true,"revision":"4a2ffd1-dirty","schema":"moestro-loadtest-1",)"
            R"("settings":{"Model":"tiny"},"workload":"poisson"})");
}

TEST(Report, Html) {
  const std::string page = ReportHtml(Small());
  EXPECT_THAT(page, HasSubstr("2 requests &amp; 1 failure"));
  EXPECT_THAT(page, HasSubstr("<svg></svg>"));
  EXPECT_THAT(page, HasSubstr("Interrupted"));
}

TEST(CommonSections, SurviveARunInWhichNothingCompleted) {
  Record record;
  record.group = "requests";
  record.ended = 1;
  record.status = absl::UnavailableError("down");
  Report report{.workload = "poisson"};
  AddCommonSections(std::vector<Record>{record}, 1, {}, report);
  AddCommonSections(std::vector<Record>{}, 0, {}, report);
  EXPECT_THAT(ReportMarkdown(report), HasSubstr("UNAVAILABLE 1"));
  EXPECT_EQ(report.data["all"]["requests"], 0);
}

TEST(Seconds, ChoosesTheUnit) {
  EXPECT_EQ(Seconds(0.0123), "12.3 ms");
  EXPECT_EQ(Seconds(1.5), "1.50 s");
}

}  // namespace
}  // namespace moestro::loadtest
