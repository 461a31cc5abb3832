// Pages that go to older requests, alone and among all other faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/services/router/request/generation_fixture.h"

namespace moestro::router {
namespace {

using testing::Expected;
using testing::FakeNode;
using testing::Job;
using testing::kAllToDecode;
using testing::kAllToPrefill;
using testing::Result;
using testing::RunJob;
using Fault = FakeNode::Fault;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(PreemptionTest, AnyNumberIsSurvivedUnderTheOldArrival) {
  for (const PathSettings& settings : {kAllToPrefill, kAllToDecode}) {
    FakeNode node(settings);
    for (int step = 9; step < 4000; step += 9) node.faults[step] = Fault::kPreempted;
    node.keeps_prefixes = true;
    const Result result = RunJob(node, Job(300));
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.ids, Expected(300));
    EXPECT_GT(result.summary.resumed, static_cast<uint32_t>(RequestLife::kMaxRecoveries) * 5);
    EXPECT_EQ(node.metrics.preempted.Value(), result.summary.resumed);
    EXPECT_EQ(node.metrics.resumed.Value(), result.summary.resumed);
    EXPECT_EQ(node.arrivals.size(), result.summary.resumed + 1);
    EXPECT_THAT(node.arrivals, Each(node.arrivals[0]));
    EXPECT_EQ(node.leases(), 0u);
  }
}

TEST(PreemptionTest, DeathsStillCountAmongThem) {
  for (const PathSettings& settings : {kAllToPrefill, kAllToDecode}) {
    FakeNode node(settings);
    node.keeps_prefixes = true;
    node.downtime = std::chrono::milliseconds(60);
    for (int step = 3; step < 4000; step += 3)
      node.faults[step] = step % 2 == 0 ? Fault::kDecodeDies : Fault::kPreempted;
    const Result result = RunJob(node, Job(300));
    EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
    EXPECT_THAT(std::string(result.status.message()), HasSubstr("gave up after 5"));
  }
}

TEST(PreemptionTest, PreemptedWhileInPrefillIsToldFromADeadDecode) {
  FakeNode node(kAllToPrefill);
  node.faults[3] = Fault::kPreempted;
  Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(node.metrics.preempted.Value(), 1);
  EXPECT_EQ(node.prefill_runs, 2);

  FakeNode other(kAllToPrefill);
  other.faults[3] = Fault::kDecodeDies;  // prefill finds the lease gone
  result = RunJob(other, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(other.metrics.preempted.Value(), 0);
  EXPECT_EQ(result.summary.resumed, 1u);
}

TEST(PreemptionTest, WaitsInFrontOfTheLineForNewPages) {
  FakeNode node(kAllToDecode);
  node.capacity = 20;
  node.faults[7] = Fault::kPreempted;
  node.on_step = [&] {
    if (node.steps == 7) node.taken = 15;  // by the older request
  };
  int waited = 0;
  node.clock.on_sleep = [&] {
    EXPECT_EQ(node.queue.size(), 1u);
    if (++waited == 3) node.taken = 0;
  };
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_GE(waited, 3);
  EXPECT_EQ(result.summary.resumed, 1u);
}

// Any mixture of faults on any path: the tokens are those of the run in which nothing happened, each under its index.
TEST(PreemptionTest, RandomFaultsLeaveNoTrace) {
  int finished = 0;
  uint32_t resumed = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    FakeNode node({.unified = below(8) == 0,
                   .chunked_below_tokens = below(24),
                   .decode_idle_window = std::chrono::seconds(below(3))});
    node.keeps_prefixes = below(2) == 0;
    node.downtime = std::chrono::seconds(below(14));  // sometimes longer than requests wait
    GenerateJob job = Job(1 + below(20));
    job.prompt.resize(1 + below(12), 3);
    job.sampling.seed = seed;
    if (below(3) == 0) node.cache.emplace_back(job.prompt.begin(), job.prompt.begin() + below(3) % job.prompt.size());
    constexpr Fault kFaults[] = {Fault::kPreempted,  Fault::kPreempted,    Fault::kPrefillDies,
                                 Fault::kDecodeDies, Fault::kLeaseRevoked, Fault::kPrefillDrains};
    const uint32_t interval = 8 + below(60);
    for (int step = 0; step < 600;) node.faults[step += 1 + static_cast<int>(below(interval))] = kFaults[below(6)];
    const Result result = RunJob(node, job);
    const std::vector<int32_t> expected = Expected(job);
    if (result.status.ok()) {
      EXPECT_EQ(result.ids, expected);
      ++finished;
      resumed += result.summary.resumed;
    } else {
      EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
      ASSERT_LE(result.ids.size(), expected.size());
      EXPECT_TRUE(std::equal(result.ids.begin(), result.ids.end(), expected.begin()));
    }
    EXPECT_EQ(node.leases(), 0u);
    EXPECT_EQ(node.queue.size(), 0u);
    EXPECT_EQ(node.metrics.running.Value(), 0);
    EXPECT_EQ(node.metrics.waiting.Value(), 0);
    node.clock.SleepFor(std::chrono::seconds(3));
    EXPECT_TRUE(node.policy.DecodeIsIdle());
  }
  EXPECT_GT(finished, 1000);
  EXPECT_GT(resumed, 1000u);
}

}  // namespace
}  // namespace moestro::router
