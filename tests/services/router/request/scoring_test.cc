#include "services/router/request/scoring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/services/router/fake_node.h"

namespace moestro::router {
namespace {

using testing::FakeNode;
using Fault = FakeNode::Fault;

const ScoreJob kJob{.request_id = "id", .fingerprint = testing::kWeights, .tokens = {3, 1, 4, 1, 5}, .top = 2};

std::vector<ScoredToken> RunScoring(FakeNode& node, absl::Status& status, const ScoreJob& job = kJob) {
  std::vector<ScoredToken> all;
  Scoring scoring(job, node.Environment(), node.Call(), [&](std::vector<ScoredToken> scores) {
    all.insert(all.end(), scores.begin(), scores.end());
    return absl::OkStatus();
  });
  status = scoring.Run();
  EXPECT_EQ(scoring.Summary().prompt_tokens, 5u);
  return all;
}

void ExpectAllPositions(const std::vector<ScoredToken>& scores) {
  ASSERT_EQ(scores.size(), kJob.tokens.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_EQ(scores[i].id, kJob.tokens[i]);
    EXPECT_EQ(scores[i].logprob.has_value(), i > 0);
    EXPECT_FLOAT_EQ(scores[i].logprob.value_or(0), -1.0f * static_cast<float>(i));
  }
}

TEST(ScoringTest, EveryPositionOnce) {
  FakeNode node;
  absl::Status status;
  const auto scores = RunScoring(node, status);
  ASSERT_TRUE(status.ok()) << status;
  ExpectAllPositions(scores);
  EXPECT_EQ(scores[1].top.size(), 2u);
  EXPECT_EQ(node.leases(), 0u);
}

TEST(ScoringTest, EveryPositionOnceWhateverDies) {
  for (const Fault fault : {Fault::kPrefillDies, Fault::kDecodeDies, Fault::kBothDie, Fault::kPreempted}) {
    for (int step = 1; step <= 6; ++step) {
      FakeNode node;
      node.faults[step] = fault;
      absl::Status status;
      const auto scores = RunScoring(node, status);
      ASSERT_TRUE(status.ok()) << step << " " << status;
      ExpectAllPositions(scores);
      EXPECT_EQ(node.leases(), 0u);
    }
  }
}

TEST(ScoringTest, PrefillThatRefusesIsNamed) {
  FakeNode node;
  node.prefill_refuses = true;
  absl::Status status;
  RunScoring(node, status);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "scoring needs the prefill role: prefill: the pool has another layout");
  EXPECT_EQ(node.leases(), 0u);
}

// No other way will do.
TEST(ScoringTest, TheWayThatIsAskedForOrAnError) {
  FakeNode node;
  ScoreJob job = kJob;
  absl::Status status;
  RunScoring(node, status, job);
  EXPECT_FALSE(node.way || node.way_required);
  job.way = PromptWay::kStreamed;
  ExpectAllPositions(RunScoring(node, status, job));
  EXPECT_EQ(node.way, PromptWay::kStreamed);
  EXPECT_TRUE(node.way_required);
  node.prefill_refuses = true;
  RunScoring(node, status, job);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(node.leases(), 0u);
}

TEST(ScoringTest, UsesTheMachineThatNobodyDecodesOn) {
  FakeNode node;
  node.cache = {{3, 1, 4}};  // of no use to it
  absl::Status status;
  RunScoring(node, status);
  EXPECT_TRUE(node.whole_machine);
  PathPolicy::Decision other = node.policy.Choose(1, true);
  other.work.BeginDecode();
  ExpectAllPositions(RunScoring(node, status));
  EXPECT_FALSE(node.whole_machine);
}

TEST(ScoringTest, NeedsPrefillEvenInUnifiedMode) {
  for (const bool unified : {false, true}) {
    FakeNode node({.unified = unified});
    node.downtime = std::chrono::hours(5);
    node.Kill(Role::kPrefill);
    node.roles.ReportDown(Role::kPrefill);
    absl::Status status;
    RunScoring(node, status);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(status.message(),
              "scoring needs the prefill role: prefill has not answered for 10 seconds: is it running?");
    EXPECT_EQ(node.steps, 0);  // holds no pages while it waits
    EXPECT_EQ(node.queue.size(), 0u);
  }
}

TEST(ScoringTest, PrefillThatDiesForGoodIsNamed) {
  FakeNode node;
  node.downtime = std::chrono::hours(5);
  node.faults[4] = Fault::kPrefillDies;
  absl::Status status;
  RunScoring(node, status);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("needs the prefill role"));
  EXPECT_EQ(node.leases(), 0u);
}

TEST(ScoringTest, OtherWeightsInDecodeAreAnError) {
  FakeNode node;
  node.decode_weights = "others";
  absl::Status status;
  RunScoring(node, status);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(node.steps, 1);
}

TEST(ScoringTest, ClientThatLeavesEndsIt) {
  FakeNode node;
  node.faults[3] = Fault::kClientLeaves;
  absl::Status status;
  RunScoring(node, status);
  EXPECT_TRUE(absl::IsCancelled(status));
}

}  // namespace
}  // namespace moestro::router
