#include "loadtest/bench/report/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

namespace moestro::bench {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRounds = 5;
constexpr double kRangeOfFive = 2.326;  // of five normal values of deviation 1

// A committed report of an earlier version of the format: without date, CPU family and number.
constexpr char kCommitted[] = "loadtest/results/2026-11-22-xeon-amx-2-cores/bench.json";

std::string Committed() {
  std::stringstream text;
  text << std::ifstream(kCommitted).rdbuf();
  return text.str();
}

Row MeasuredRow(const std::string& name, double ratio, double deviation) {
  Row row;
  row.name = name;
  row.threads = 2;
  row.unit = "GB/s";
  row.rate = {40, 39, 41};
  row.microseconds = {300, 290, 310};
  row.counted = "weights once";
  row.reference = Reference{"read bandwidth", {50, 49, 51}};
  row.ratio = {ratio, ratio - deviation * kRangeOfFive / 2, ratio + deviation * kRangeOfFive / 2};
  return row;
}

Row Ceiling(double rate) {
  Row row;
  row.name = "DRAM read";
  row.threads = 2;
  row.unit = "GB/s";
  row.rate = {rate, rate - 1, rate + 1};
  row.counted = "bytes read";
  return row;
}

BenchReport MeasuredReport(double ratio, double deviation = 0.01) {
  BenchReport report;
  report.date = "2026-11-22";
  report.machine.cpu_model = "AMD EPYC";
  report.machine.cpu_family = 26;
  report.machine.cpu_number = 2;
  report.machine.cpu_flags = {"fma", "avx2"};
  report.machine.kernels_isa = "avx2";
  report.machine.revision = "4a2ffd1";
  report.settings = {.preset = "layer", .threads = 2, .rounds = kRounds, .min_sample_seconds = 0.1, .filter = ""};
  BenchSection ceilings{"ceilings", "Ceilings", ""};
  ceilings.findings.rows = {Ceiling(50)};
  BenchSection gemv{"gemv", "GEMV", ""};
  gemv.findings.rows = {MeasuredRow("FP8", ratio, deviation), MeasuredRow("BF16", 0.9, deviation)};
  report.sections = {ceilings, gemv};
  return report;
}

Change ChangeOf(const ReportComparison& comparison, const std::string& name) {
  for (const ComparedRow& row : comparison.rows) {
    if (row.name == name) return row.change;
  }
  ADD_FAILURE() << "no row " << name;
  return Change::kNotJudged;
}

Change ChangeBetween(double before, double after, double deviation) {
  return ChangeOf(CompareReports(MeasuredReport(before, deviation), MeasuredReport(after, deviation)).value(), "FP8");
}

TEST(Compare, ARowFellByMoreThanFivePercentAndTwoDeviations) {
  EXPECT_EQ(ChangeBetween(0.8, 0.7, 0.01), Change::kFell);
  EXPECT_EQ(ChangeBetween(0.8, 0.765, 0.001), Change::kWithinNoise);  // 4.4 %
  EXPECT_EQ(ChangeBetween(0.8, 0.7, 0.06), Change::kWithinNoise);     // 12.5 %, 1.7 deviations
  EXPECT_EQ(ChangeBetween(0.8, 0.7, 0.04), Change::kFell);            // 2.5 deviations
  EXPECT_EQ(ChangeBetween(0.7, 0.8, 0.01), Change::kRose);
}

TEST(Compare, DeviationsAreThoseOfBothReports) {
  const ReportComparison comparison = CompareReports(MeasuredReport(0.8, 0.03), MeasuredReport(0.8, 0.04)).value();
  EXPECT_NEAR(comparison.rows[1].deviation, std::sqrt((0.03 * 0.03 + 0.04 * 0.04) / 2), 1e-9);
  // More rounds spread further: the same range is a smaller deviation.
  BenchReport nine = MeasuredReport(0.8, 0.03);
  nine.settings.rounds = 9;
  EXPECT_NEAR(CompareReports(nine, nine)->rows[1].deviation, 0.03 * 2.326 / 2.970, 1e-9);
}

// The machine got slower, or another guest came: the ratios stay.
TEST(Compare, RatesWithoutAReferenceAreNotJudged) {
  BenchReport after = MeasuredReport(0.8);
  after.sections[0].findings.rows[0] = Ceiling(20);
  for (Row& row : after.sections[1].findings.rows) row.rate = {16, 15, 17};
  const ReportComparison comparison = CompareReports(MeasuredReport(0.8), after).value();
  EXPECT_EQ(comparison.Count(Change::kFell), 0);
  EXPECT_EQ(ChangeOf(comparison, "DRAM read"), Change::kNotJudged);
  EXPECT_THAT(ComparisonText("old.json", MeasuredReport(0.8), after, comparison),
              HasSubstr("ceilings | DRAM read, 2 threads: GB/s 50.0 -> 20.0, -60.0 %\n"));
}

TEST(Compare, MissingAndNewRowsAreListed) {
  BenchReport after = MeasuredReport(0.8);
  after.sections[1].findings.rows[1].name = "BF16, other";
  const ReportComparison comparison = CompareReports(MeasuredReport(0.8), after).value();
  ASSERT_EQ(comparison.missing.size(), 1u);
  EXPECT_EQ(comparison.missing[0].name, "BF16");
  ASSERT_EQ(comparison.added.size(), 1u);
  EXPECT_EQ(comparison.added[0].name, "BF16, other");
  EXPECT_THAT(ComparisonText("old.json", MeasuredReport(0.8), after, comparison),
              AllOf(HasSubstr("Missing in the newer report:\n  gemv | BF16, 2 threads\n"),
                    HasSubstr("New:\n  gemv | BF16, other, 2 threads\n")));
}

TEST(Compare, AnotherReferenceMakesAnotherRow) {
  BenchReport after = MeasuredReport(0.8);
  after.sections[1].findings.rows[0].reference->name = "copy bandwidth";
  const ReportComparison comparison = CompareReports(MeasuredReport(0.8), after).value();
  EXPECT_EQ(comparison.missing.size(), 1u);
  EXPECT_EQ(comparison.added.size(), 1u);
}

TEST(Compare, AFallIsNamedEvenIfItsWorkIsDescribedOtherwise) {
  BenchReport after = MeasuredReport(0.5);
  after.sections[1].findings.rows[0].counted = "weights twice";
  const ReportComparison comparison = CompareReports(MeasuredReport(0.8), after).value();
  EXPECT_EQ(ChangeOf(comparison, "FP8"), Change::kFell);
  EXPECT_THAT(ComparisonText("old.json", MeasuredReport(0.8), after, comparison), HasSubstr("may be other work"));
}

TEST(Compare, RowsThatAFilterLeftOutAreNotMissing) {
  BenchReport after = MeasuredReport(0.8);
  after.settings.filter = "gemv";
  after.sections.erase(after.sections.begin());
  const ReportComparison comparison = CompareReports(MeasuredReport(0.8), after).value();
  EXPECT_TRUE(comparison.missing.empty());
  EXPECT_EQ(comparison.not_run, 1);
}

TEST(Compare, OtherCpusAreRefused) {
  BenchReport other = MeasuredReport(0.8);
  other.machine.cpu_family = 25;  // the same name, an older generation
  other.machine.cpu_number = 17;
  EXPECT_THAT(CompareReports(MeasuredReport(0.8), other).status().message(),
              AllOf(HasSubstr("another kind of CPU"), HasSubstr("AMD EPYC (family 26, model 2)"),
                    HasSubstr("AMD EPYC (family 25, model 17)")));
  other = MeasuredReport(0.8);
  other.machine.cpu_flags.emplace_back("avx512f");
  EXPECT_TRUE(absl::IsInvalidArgument(CompareReports(MeasuredReport(0.8), other).status()));
  other = MeasuredReport(0.8);
  other.machine.cpu_model = "Other";
  EXPECT_TRUE(absl::IsInvalidArgument(CompareReports(MeasuredReport(0.8), other).status()));
  // Reports of earlier versions do not say.
  other = MeasuredReport(0.8);
  other.machine.cpu_family = other.machine.cpu_number = 0;
  const absl::StatusOr<ReportComparison> comparison = CompareReports(other, MeasuredReport(0.8));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_THAT(ComparisonText("old.json", other, MeasuredReport(0.8), *comparison), HasSubstr("assumed to be the same"));
}

TEST(Compare, OtherSettingsAreRefusedWithTheFlagThatHelps) {
  const auto message = [](const std::function<void(BenchReport&)>& change) {
    BenchReport after = MeasuredReport(0.8);
    change(after);
    return std::string(CompareReports(MeasuredReport(0.8), after).status().message());
  };
  EXPECT_THAT(message([](BenchReport& r) { r.machine.kernels_isa = "avx512"; }), HasSubstr("MOESTRO_ISA=avx2"));
  EXPECT_THAT(message([](BenchReport& r) { r.settings.preset = "quick"; }), HasSubstr("--preset layer"));
  EXPECT_THAT(message([](BenchReport& r) { r.settings.threads = 8; }), HasSubstr("--threads 2"));
  EXPECT_THAT(message([](BenchReport& r) { r.settings.rounds = 2; }), HasSubstr("--rounds 3 or more"));
}

TEST(Compare, JsonHasEveryRowAndHowManyFell) {
  const BenchReport before = MeasuredReport(0.8);
  const BenchReport after = MeasuredReport(0.6);
  const json out = ComparisonJson(before, after, CompareReports(before, after).value());
  EXPECT_EQ(out["fell"], 1);
  ASSERT_EQ(out["rows"].size(), 3u);
  EXPECT_EQ(out["rows"][1]["change"], "fell");
  EXPECT_EQ(out["rows"][1]["before"], 0.8);
  EXPECT_EQ(out["rows"][1]["quantity"], "ratio to read bandwidth");
  EXPECT_EQ(out["before"]["revision"], "4a2ffd1");
  EXPECT_EQ(out["before"]["dirty"], false);
}

TEST(ParseReport, GivesWhatReportJsonWrote) {
  const BenchReport report = MeasuredReport(0.8);
  const absl::StatusOr<BenchReport> parsed = ParseReport(ReportJson(report).dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(ReportJson(*parsed), ReportJson(report));
}

TEST(ParseReport, ReadsEveryCommittedReport) {
  int reports = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("loadtest/results")) {
    if (entry.path().filename() != "bench.json") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    EXPECT_TRUE(ParseReport(text.str()).ok()) << entry.path() << ": " << ParseReport(text.str()).status();
    ++reports;
  }
  EXPECT_GE(reports, 2);
}

TEST(ParseReport, ReadsCommittedReportsOfEarlierVersions) {
  const absl::StatusOr<BenchReport> report = ParseReport(Committed());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->machine.cpu_family, 0);
  const ReportComparison comparison = CompareReports(*report, *report).value();
  EXPECT_EQ(comparison.Count(Change::kFell), 0);
  EXPECT_GT(comparison.rows.size(), 50u);
  EXPECT_TRUE(comparison.missing.empty() && comparison.added.empty());
}

TEST(ParseReport, SaysWhatIsWrongWithAFile) {
  const auto message = [](const std::string& text) { return std::string(ParseReport(text).status().message()); };
  const std::string committed = Committed();
  ASSERT_FALSE(committed.empty());
  EXPECT_THAT(message(""), HasSubstr("not JSON"));
  EXPECT_THAT(message(committed.substr(0, committed.size() / 2)), HasSubstr("not JSON: cut off"));
  EXPECT_THAT(message("[]"), HasSubstr("not a report of `moestro bench`"));
  EXPECT_THAT(message(R"({"schema": "moestro-loadtest-1"})"), HasSubstr("\"moestro-bench-1\""));
  EXPECT_THAT(message(R"({"schema": "moestro-bench-1"})"), HasSubstr("the report has no object 'machine'"));
  json broken = json::parse(committed);
  broken["sections"][1]["rows"][0].erase("ratio");
  EXPECT_THAT(message(broken.dump()), HasSubstr("section 'gemv', row 'FP8 2048x7168' has no object 'ratio'"));
  broken = json::parse(committed);
  broken["sections"][1]["rows"][0]["ratio"]["median"] = "high";
  EXPECT_THAT(message(broken.dump()), HasSubstr("'ratio', 'median' is not a number"));
  broken = json::parse(committed);
  broken["settings"]["rounds"] = 2.5;
  EXPECT_THAT(message(broken.dump()), HasSubstr("'rounds' is not a whole number"));
}

}  // namespace
}  // namespace moestro::bench
