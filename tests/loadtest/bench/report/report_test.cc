#include "loadtest/bench/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "loadtest/bench/report/plot.h"

namespace moestro::bench {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

Row RatioRow(const std::string& name, double ratio, std::optional<double> target) {
  Row row;
  row.name = name;
  row.threads = 2;
  row.unit = "GB/s";
  row.rate = {48.5, 47, 50};
  row.microseconds = {302.6, 290, 310};
  row.counted = "weights <once>";
  row.reference = Reference{"read bandwidth", {50, 49, 51}};
  row.ratio = {ratio, ratio - 0.01, ratio + 0.01};
  row.target = target;
  return row;
}

BenchReport SomeReport() {
  BenchReport report;
  report.machine.cpu_model = "Some CPU";
  report.machine.cpu_flags = {"fma", "avx2"};
  report.machine.pages = {.huge_bytes = int64_t{1} << 30, .anonymous_bytes = int64_t{2} << 30};
  report.settings = {.preset = "layer", .threads = 2, .rounds = 9, .min_sample_seconds = 0.1, .filter = ""};
  BenchSection gemv{"gemv", "GEMV", "What & why"};
  gemv.findings.rows = {RatioRow("FP8 2048x7168", 0.98, 0.97), RatioRow("FP8 | odd", 0.9, 0.97),
                        RatioRow("BF16", 0.95, std::nullopt)};
  gemv.findings.skipped = {{"OpenBLAS", "not built"}};
  BenchSection ceilings{"ceilings", "Ceilings", "At most"};
  Row ceiling;
  ceiling.name = "DRAM read";
  ceiling.unit = "GB/s";
  ceiling.rate = {50, 49, 51};
  ceilings.findings.rows = {ceiling};
  report.sections = {ceilings, gemv};
  return report;
}

TEST(Report, HasTheErrorsOfProducts) {
  BenchReport report = SomeReport();
  EXPECT_THAT(ReportMarkdown(report), Not(HasSubstr("95th percentile")));
  report.sections[1].findings.rows[2].error_p95 = 0.00171;
  EXPECT_THAT(ReportMarkdown(report), HasSubstr("- BF16: 0.0017\n"));
  EXPECT_THAT(ReportHtml(report), HasSubstr("; 95th percentile of the error 0.0017</small>"));
  const json rows = ReportJson(report).at("sections")[1].at("rows");
  EXPECT_FALSE(rows[0].contains("error_p95"));
  EXPECT_EQ(rows[2].at("error_p95"), 0.00171);
  EXPECT_EQ(ParseReport(ReportJson(report).dump())->sections[1].findings.rows[2].error_p95, 0.00171);
}

TEST(Report, CountsTargets) {
  EXPECT_EQ(SomeReport().passed(), 1);
  EXPECT_EQ(SomeReport().missed(), 1);
}

TEST(Report, ARowPassesAtItsTarget) {
  EXPECT_EQ(Verdict(RatioRow("", 0.97, 0.97)), "pass");
  EXPECT_EQ(Verdict(RatioRow("", 0.9699, 0.97)), "miss");
  EXPECT_EQ(Verdict(RatioRow("", 0.5, std::nullopt)), "");
}

TEST(Report, JsonHasEveryRow) {
  const json parsed = json::parse(ReportJson(SomeReport()).dump());
  EXPECT_EQ(parsed["schema"], kReportSchema);
  EXPECT_EQ(parsed["passed"], 1);
  EXPECT_EQ(parsed["missed"], 1);
  EXPECT_EQ(parsed["machine"]["cpu_model"], "Some CPU");
  const json& gemv = parsed["sections"][1];
  EXPECT_EQ(gemv["id"], "gemv");
  ASSERT_EQ(gemv["rows"].size(), 3u);
  const json& row = gemv["rows"][0];
  EXPECT_EQ(row["ratio"]["median"], 0.98);
  EXPECT_EQ(row["reference"]["name"], "read bandwidth");
  EXPECT_EQ(row["target"], 0.97);
  EXPECT_EQ(row["verdict"], "pass");
  EXPECT_FALSE(gemv["rows"][2].contains("target"));
  EXPECT_FALSE(parsed["sections"][0]["rows"][0].contains("ratio"));
  EXPECT_EQ(gemv["skipped"][0]["reason"], "not built");
}

TEST(Report, MarkdownHasEveryRow) {
  const std::string text = ReportMarkdown(SomeReport());
  EXPECT_THAT(text, HasSubstr("| FP8 2048x7168 | 2 | 303 | 48.5 (47.0–50.0) GB/s | 50.0 GB/s (read bandwidth) | "
                              "**0.98** (0.97–0.99) | ≥ 0.97 | pass |"));
  EXPECT_THAT(text, HasSubstr("| FP8 \\| odd |"));
  EXPECT_THAT(text, HasSubstr("| DRAM read | 1 | 0.00 | 50.0 (49.0–51.0) GB/s | | | | |"));
  EXPECT_THAT(text, HasSubstr("Not measured: OpenBLAS: not built"));
  EXPECT_THAT(text, HasSubstr("1 targets reached, 1 missed"));
  EXPECT_THAT(text, HasSubstr("50 % of 2.00 GiB in huge pages"));
}

TEST(Report, HtmlLoadsNothing) {
  const std::string html = ReportHtml(SomeReport());
  for (const char* loads : {"http", "<script", "<link", "<img", "src=", "url(", "@import"}) {
    EXPECT_THAT(html, Not(HasSubstr(loads)));
  }
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(html, HasSubstr("What &amp; why"));
  EXPECT_THAT(html, HasSubstr("weights &lt;once&gt;"));
  EXPECT_THAT(html, HasSubstr("<td class=\"miss\">miss</td>"));
}

TEST(Plot, DrawsRowsWithAReferenceOnly) {
  const std::vector<BenchSection> sections = SomeReport().sections;
  EXPECT_EQ(RatioPlot(sections[0].findings.rows), "");
  const std::string plot = RatioPlot(sections[1].findings.rows);
  size_t bars = 0;
  for (size_t at = plot.find("<rect"); at != std::string::npos; at = plot.find("<rect", at + 1)) ++bars;
  EXPECT_EQ(bars, 3u);
  EXPECT_THAT(plot, HasSubstr("class=\"bar pass\""));
  EXPECT_THAT(plot, HasSubstr("class=\"target\""));
}

TEST(Plot, LongNamesAreCutBetweenCharacters) {
  std::vector<Row> rows = {RatioRow("", 1, std::nullopt)};
  for (int i = 0; i < 60; ++i) rows[0].name += "é";
  EXPECT_THAT(RatioPlot(rows), HasSubstr("é…</text>"));
}

}  // namespace
}  // namespace moestro::bench
