#include "loadtest/workloads/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "loadtest/report/batch.h"

namespace moestro::loadtest {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Means of 20,000 draws: the error of a mean is below 1 % of it.
TEST(BatchWorkloadTest, LengthsHaveTheTablesAverageAndMaximum) {
  for (const BatchWorkload& workload : kBatchWorkloads) {
    const std::vector<int64_t> lengths = DrawLengths(workload, 20000, 1);
    const double mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / 20000;
    EXPECT_NEAR(mean, workload.average, 0.02 * workload.average) << workload.name;
    EXPECT_LE(std::ranges::max(lengths), workload.longest) << workload.name;
    EXPECT_GE(std::ranges::max(lengths), 0.99 * static_cast<double>(workload.longest)) << workload.name;
    EXPECT_GE(std::ranges::min(lengths), 1) << workload.name;
    EXPECT_EQ(DrawLengths(workload, 10, 1), DrawLengths(workload, 10, 1));
    EXPECT_NE(DrawLengths(workload, 10, 1), DrawLengths(workload, 10, 2));
  }
}

TEST(BatchWorkloadTest, AFilesLengthsAreTakenInTurn) {
  EXPECT_THAT(*ReadLengths("# lengths\n 3\n\n5\n", 5), ElementsAre(3, 5, 3, 5, 3));
  for (const char* text : {"", "#\n", "0\n", "x\n", "1.5\n", "99999999\n"}) EXPECT_FALSE(ReadLengths(text, 1).ok());
  EXPECT_THAT(std::string(ReadLengths("3\n\nx", 1).status().message()), HasSubstr("line 3"));
}

TEST(BatchWorkloadTest, PaddedPromptsAreAsLongAsTheLongest) {
  const auto lengths_of = [](bool padded) {
    std::vector<size_t> lengths;
    for (const Request& request : MakeBatchRequests({3, 9, 5}, 7, padded, 100, 1)) {
      EXPECT_EQ(request.max_tokens, 7u);
      lengths.push_back(request.token_ids.size());
    }
    return lengths;
  };
  EXPECT_THAT(lengths_of(false), ElementsAre(3, 9, 5));
  EXPECT_THAT(lengths_of(true), ElementsAre(9, 9, 9));
}

Record Completed(double sent, std::vector<double> arrivals) {
  Record record;
  record.sent = sent;
  record.ended = arrivals.back();
  record.prompt_tokens = 10;
  for (const double at : arrivals) {
    record.arrivals.push_back({.at = at, .tokens = 2});
    record.tokens.insert(record.tokens.end(), {1, 1});
  }
  return record;
}

TEST(BatchTimesTest, CountTokensOverPrefillAndDecode) {
  Record failed = Completed(0, {100});
  failed.status = absl::UnavailableError("x");
  const std::vector<Record> records = {Completed(1, {3, 5}), Completed(2, {4, 9}), failed};
  const BatchTimes times = TimesOf(records);
  EXPECT_EQ(times.prompt_tokens, 20);
  EXPECT_EQ(times.generated_tokens, 8);
  EXPECT_EQ(times.prefill, 3);  // from 1 to 4
  EXPECT_EQ(times.decode, 5);
  EXPECT_EQ(times.tokens_per_second(), 1);
  EXPECT_EQ(TimesOf({}).tokens_per_second(), 0);
  Report report;
  AddBatchSection(records, report);
  EXPECT_EQ(report.data["batch"]["generated_tokens_per_second"], 1);
  EXPECT_THAT(report.findings, ElementsAre("1.00 generated tokens/s: 8 tokens in 8.00 s"));
}

}  // namespace
}  // namespace moestro::loadtest
