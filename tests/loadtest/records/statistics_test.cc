#include "loadtest/records/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::loadtest {
namespace {

Record MakeRecord(double sent, std::vector<double> arrivals) {
  Record record;
  record.group = "g";
  record.sent = record.scheduled = sent;
  for (const double at : arrivals) {
    record.arrivals.push_back({.at = at, .tokens = 1});
    record.tokens.push_back(7);
  }
  record.started = sent;
  record.ended = arrivals.empty() ? sent : arrivals.back();
  return record;
}

TEST(Percentile, IsLinearBetweenRanks) {  // values of numpy.percentile
  const std::vector<double> values = {1, 2, 3, 4, 10};
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.9), 7.6);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.99), 9.76);
  EXPECT_DOUBLE_EQ(Percentile(values, 1), 10);
  EXPECT_DOUBLE_EQ(Percentile(std::vector<double>{5}, 0.9), 5);
}

TEST(Describe, SortsAndCounts) {
  const Distribution d = Describe({3, 1, 2});
  EXPECT_EQ(d.count, 3);
  EXPECT_DOUBLE_EQ(d.mean, 2);
  EXPECT_DOUBLE_EQ(d.min, 1);
  EXPECT_DOUBLE_EQ(d.max, 3);
  EXPECT_EQ(Describe({}).count, 0);
}

TEST(Record, TimePerTokenCountsTokensAfterTheFirstMessage) {
  Record record = MakeRecord(1, {2});
  EXPECT_DOUBLE_EQ(*record.ttft(), 1);
  EXPECT_FALSE(record.tpot().has_value());
  record.arrivals.push_back({.at = 4, .tokens = 4});  // four tokens in one message
  record.tokens.resize(5);
  EXPECT_DOUBLE_EQ(*record.tpot(), 0.5);
}

TEST(MeetsSlo, AsksForFirstTokenSpeedAndAGoodEnd) {
  const Slo slo{.ttft_seconds = 1, .tpot_seconds = 0.125};
  EXPECT_TRUE(MeetsSlo(MakeRecord(0, {1, 1.125}), slo));
  EXPECT_FALSE(MeetsSlo(MakeRecord(0, {1.01, 1.1}), slo));
  EXPECT_FALSE(MeetsSlo(MakeRecord(0, {1, 1.25}), slo));
  EXPECT_FALSE(MeetsSlo(MakeRecord(0, {}), slo));
  EXPECT_TRUE(MeetsSlo(MakeRecord(0, {0.5}), slo)) << "one token has no speed";
  Record failed = MakeRecord(0, {0.5});
  failed.status = absl::UnavailableError("down");
  EXPECT_FALSE(MeetsSlo(failed, slo));
}

TEST(Summarize, CountsEndsTokensAndRates) {
  std::vector<Record> records = {MakeRecord(0, {1, 2}), MakeRecord(1, {2, 3}), MakeRecord(2, {}), MakeRecord(2, {4})};
  records[2].status = absl::ResourceExhaustedError("full");
  records[3].status = absl::CancelledError("by the client");
  records[3].cancelled = 4;
  records[0].path = "split";
  const GroupSummary summary = Summarize("all", records, {.ttft_seconds = 30, .tpot_seconds = 2});
  EXPECT_EQ(summary.requests, 4);
  EXPECT_EQ(summary.completed, 2);
  EXPECT_EQ(summary.cancelled, 1);
  EXPECT_EQ(summary.failed(), 1);
  EXPECT_EQ(summary.errors.at("RESOURCE_EXHAUSTED"), 1);
  EXPECT_THAT(summary.paths, testing::ElementsAre(testing::Pair("not said", 3), testing::Pair("split", 1)));
  EXPECT_EQ(summary.output_tokens, 5);
  EXPECT_DOUBLE_EQ(summary.seconds, 4);
  EXPECT_DOUBLE_EQ(summary.output_tokens_per_second(), 1.25);
  EXPECT_DOUBLE_EQ(summary.goodput(), 0.5);
  EXPECT_EQ(summary.inter_token.count, 2);
}

TEST(SummarizeGroups, KeepsTheOrderOfAppearance) {
  std::vector<Record> records = {MakeRecord(0, {1}), MakeRecord(0, {1}), MakeRecord(0, {1})};
  records[0].group = "turn 10";
  records[1].group = "turn 9";
  records[2].group = "turn 10";
  const auto groups = SummarizeGroups(records, {});
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].name, "turn 10");
  EXPECT_EQ(groups[0].requests, 2);
}

TEST(MakeLoadTimeline, SharesOutTokensAndPresence) {
  const std::vector<Record> records = {MakeRecord(0, {0.5, 1.5, 1.6}), MakeRecord(100, {200})};
  const LoadTimeline timeline = MakeLoadTimeline(records, 200, 100);
  EXPECT_DOUBLE_EQ(timeline.step_seconds, 2);
  ASSERT_EQ(timeline.tokens_per_second.size(), 101U);
  EXPECT_DOUBLE_EQ(timeline.tokens_per_second[0], 1.5);
  EXPECT_NEAR(timeline.in_flight[0], 0.8, 1e-9);
  EXPECT_DOUBLE_EQ(timeline.in_flight[1], 0);
  EXPECT_DOUBLE_EQ(timeline.in_flight[60], 1);
  EXPECT_DOUBLE_EQ(timeline.tokens_per_second[100], 0.5);
  EXPECT_EQ(MakeLoadTimeline({}, 0).tokens_per_second.size(), 1U);
}

}  // namespace
}  // namespace moestro::loadtest
