#include "loadtest/report/paper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadtest/run/runner.h"
#include "tests/loadtest/fake_transport.h"

namespace moestro::loadtest {
namespace {

// A prefill takes 2 s, 1 s more on the second server; a token takes 0.1 s for each request that runs.
FakeTransport SlowServer() {
  return FakeTransport([](const Request& request, int in_flight) {
    return FakeTimes{.ttft = request.group.starts_with("prefill") ? 2.0 + request.server : 0.1,
                     .tpot = 0.1 * in_flight};
  });
}

TEST(PaperResults, NormaliseRoundByRound) {
  PaperOptions options{.rounds = 3, .servers = 2, .decode_output_tokens = 11, .pause_seconds = 0, .vocab_size = 50};
  PaperWorkload workload(options);
  FakeTransport transport = SlowServer();
  const RunResult run = RunWorkload(workload, transport, {});
  const auto results = ComputePaperResults(workload.cells(), run.records);
  ASSERT_EQ(results.size(), 10U);
  const PaperResult& one_prefill = results[0];
  const PaperResult& mixed = results[2];
  const PaperResult& two_decodes = results[3];
  EXPECT_EQ(one_prefill.rounds, 3);
  EXPECT_NEAR(one_prefill.ttft->median, 2, 1e-9);
  EXPECT_NEAR(one_prefill.ttft->ratio, 1, 1e-9);
  EXPECT_FALSE(one_prefill.tpot.has_value());
  EXPECT_NEAR(mixed.tpot->ratio, 2, 1e-9) << "the decode request is the second one";
  EXPECT_NEAR(mixed.decode_ttft->median, 0.1, 1e-9);
  EXPECT_FALSE(one_prefill.decode_ttft.has_value());
  EXPECT_NEAR(two_decodes.tpot->median, 0.15, 1e-9) << "the mean of 0.1 and 0.2";
  EXPECT_FALSE(two_decodes.ttft.has_value());
  EXPECT_NEAR(results[5].ttft->median, 3, 1e-9);
  EXPECT_NEAR(results[5].ttft->ratio, 1, 1e-9) << "the baseline is that of the same server";
}

TEST(PaperResults, ARoundWithAFailureDoesNotCount) {
  PaperOptions options{.rounds = 2, .decode_output_tokens = 3, .pause_seconds = 0, .vocab_size = 50};
  PaperWorkload workload(options);
  FakeTransport transport = SlowServer();
  RunResult run = RunWorkload(workload, transport, {});
  run.records[0].status = absl::UnavailableError("down");  // 1P of the first round
  const auto results = ComputePaperResults(workload.cells(), run.records);
  EXPECT_EQ(results[0].rounds, 1);
  EXPECT_EQ(results[1].rounds, 2);
  EXPECT_NEAR(results[2].ttft->ratio, 1, 1e-9);
}

TEST(PaperSection, HasThreePlotsAndTheDegradation) {
  PaperOptions options{.rounds = 1, .servers = 2, .decode_output_tokens = 11, .pause_seconds = 0, .vocab_size = 50};
  PaperWorkload workload(options);
  FakeTransport transport = SlowServer();
  const RunResult run = RunWorkload(workload, transport, {});
  Report report{.workload = "paper"};
  AddPaperSection(ComputePaperResults(workload.cells(), run.records), {"split", "unified"}, report);
  ASSERT_EQ(report.sections.size(), 1U);
  for (const std::string& plot : report.sections[0].plots) EXPECT_THAT(plot, testing::HasSubstr("unified"));
  EXPECT_EQ(report.sections[0].plots.size(), 3U);
  ASSERT_EQ(report.findings.size(), 3U);
  // Absolute values beside the normalised ones, and one server's over the other's: the second is slower.
  EXPECT_THAT(report.findings[0],
              testing::ContainsRegex("^split: with a prefill beside it decode takes [0-9.]+ m?s for a token, "
                                     "2.00 × its time alone"));
  EXPECT_THAT(report.findings[2], testing::HasSubstr("unified in absolute values, relative to split in 1P+1D: "
                                                     "1.00 for a token, 1.50 until the first token"));
  EXPECT_EQ(report.data["paper"].size(), 10U);
}

TEST(PaperSection, SaysWhenDecodeWaitedForThePrefill) {
  PaperOptions options{.rounds = 1, .decode_output_tokens = 11, .pause_seconds = 0, .vocab_size = 50};
  PaperWorkload workload(options);
  FakeTransport transport([](const Request&, int in_flight) { return FakeTimes{.ttft = 1.0 * in_flight}; });
  const RunResult run = RunWorkload(workload, transport, {});
  Report report{.workload = "paper"};
  AddPaperSection(ComputePaperResults(workload.cells(), run.records), {"server"}, report);
  ASSERT_EQ(report.findings.size(), 2U);
  EXPECT_THAT(report.findings[1], testing::HasSubstr("did not run side by side"));
}

}  // namespace
}  // namespace moestro::loadtest
