#include "loadtest/bench/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace moestro::bench {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Ids(const std::string& filter) {
  BenchOptions options;
  options.filter = filter;
  const std::vector<Benchmark> benchmarks = SelectBenchmarks(options).value();
  std::vector<std::string> ids;
  for (const Benchmark& benchmark : benchmarks) ids.push_back(benchmark.id());
  return ids;
}

TEST(SelectBenchmarks, NamesAreDistinctAndBelongToASection) {
  std::set<std::string> sections;
  for (const BenchSection& section : ReportSections()) sections.insert(section.id);
  std::set<std::string> ids;
  const std::vector<Benchmark> benchmarks = SelectBenchmarks({}).value();
  for (const Benchmark& benchmark : benchmarks) {
    EXPECT_TRUE(sections.contains(benchmark.section)) << benchmark.section;
    EXPECT_TRUE(ids.insert(benchmark.id()).second) << benchmark.id();
  }
}

TEST(SelectBenchmarks, FilterKeepsThoseThatContainIt) {
  EXPECT_THAT(Ids("gemv/fp8"), ::testing::Each(HasSubstr("gemv/fp8")));
  EXPECT_EQ(Ids("gemv/fp8").size(), 4u);
  EXPECT_EQ(Ids("gemv/q4_k").size(), 2u);  // with BF16 and with coded inputs
}

TEST(SelectBenchmarks, NothingLeftIsAnError) {
  BenchOptions options;
  options.filter = "no such";
  const auto status = SelectBenchmarks(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--filter"));
  options = {};
  options.preset = "huge";
  EXPECT_TRUE(absl::IsInvalidArgument(SelectBenchmarks(options).status()));
}

TEST(RunBenchmarks, ReportsTheSectionsThatRanAndTheirProgress) {
  std::vector<std::string> lines;
  BenchOptions options;
  options.preset = "quick";
  options.threads = 2;
  options.rounds = 2;
  options.filter = "gemm/fp8";
  const auto report = RunBenchmarks(options, [&](const std::string& line) { lines.push_back(line); });
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->sections.size(), 1u);
  EXPECT_EQ(report->sections[0].id, "gemm");
  // Kernels that use tiles are compared with vectors too.
  ASSERT_EQ(report->sections[0].findings.rows.size(), report->machine.kernels_isa == "amx" ? 2u : 1u);
  const Row& row = report->sections[0].findings.rows[0];
  EXPECT_GT(row.ratio.median, 0);
  EXPECT_LE(row.ratio.min, row.ratio.median);
  EXPECT_GE(row.ratio.max, row.ratio.median);
  EXPECT_EQ(report->settings.rounds, 2);
  EXPECT_EQ(report->settings.threads, 2);
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("[1/1] gemm/fp8-16")));
  EXPECT_FALSE(report->machine.cpu_model.empty());
}

}  // namespace
}  // namespace moestro::bench
