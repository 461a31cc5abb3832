#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/client_metric.h>

#include <list>
#include <tuple>

#include "services/router/access/retry_after.h"
#include "tests/services/router/request/generation_fixture.h"

namespace moestro::router {
namespace {

using testing::Expected;
using testing::FakeNode;
using testing::Job;
using testing::kAllToDecode;
using testing::kAllToPrefill;
using testing::RecordingSink;
using testing::Result;
using testing::RunJob;
using testing::StepsOfCleanRun;
using Fault = FakeNode::Fault;
using ::testing::HasSubstr;

TEST(GenerationTest, GeneratesUntilLength) {
  FakeNode node;
  node.cache = {{5, 6}, {5, 9, 7}};
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(result.summary.reason, FinishReason::kLength);
  EXPECT_EQ(result.summary.prompt_tokens, 3u);
  EXPECT_EQ(result.summary.completion_tokens, 6u);
  EXPECT_EQ(result.summary.cached_tokens, 2u);
  EXPECT_EQ(result.summary.resumed, 0u);
  EXPECT_EQ(node.leases(), 0u);
  EXPECT_EQ(node.metrics.prompt_tokens.Value(), 3);
  EXPECT_EQ(node.metrics.generation_tokens.Value(), 6);
  EXPECT_EQ(node.metrics.running.Value(), 0);
  EXPECT_EQ(node.metrics.waiting.Value(), 0);
  EXPECT_EQ(node.metrics.prompt_tokens_cached.Value(), 2);
  EXPECT_EQ(node.prefilled_tokens, 1);
  EXPECT_EQ(node.metrics.TimeToFirstToken(PrefillPath::kWholeMachine).Collect().histogram.sample_count, 1u);
  EXPECT_EQ(node.metrics.inter_token_latency.Collect().histogram.sample_count, 5u);
}

TEST(GenerationTest, StopsAtStopIdWithoutEmittingIt) {
  FakeNode node;
  GenerateJob job = Job();
  job.stop_ids = {Expected(6)[3]};
  const Result result = RunJob(node, job);
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.ids, Expected(3));
  EXPECT_EQ(result.summary.reason, FinishReason::kStop);
}

// The text may end anywhere, whichever role computes the token.
TEST(GenerationTest, EndsAtOnceWhenTheTextIsComplete) {
  for (const PathSettings& settings : {kAllToPrefill, kAllToDecode}) {
    for (size_t last = 1; last <= 6; ++last) {
      SCOPED_TRACE(last);
      FakeNode node(settings);
      const int before = StepsOfCleanRun(settings);
      const Result result = RunJob(node, Job(), last);
      ASSERT_TRUE(result.status.ok()) << result.status;
      EXPECT_EQ(result.ids, Expected(static_cast<uint32_t>(last)));
      EXPECT_EQ(result.summary.reason, FinishReason::kStop);
      EXPECT_EQ(result.summary.completion_tokens, last);
      EXPECT_EQ(node.leases(), 0u);
      EXPECT_LE(node.steps, before - static_cast<int>(6 - last) - 1) << "asks for nothing more";
    }
  }
}

TEST(GenerationTest, FirstTokenMayBeTheStop) {
  FakeNode node;
  GenerateJob job = Job();
  job.stop_ids = {Expected(1)[0]};
  const Result result = RunJob(node, job);
  ASSERT_TRUE(result.status.ok());
  EXPECT_TRUE(result.ids.empty());
  EXPECT_EQ(result.summary.reason, FinishReason::kStop);
  EXPECT_EQ(node.decode_starts, 0);
}

TEST(GenerationTest, OneTokenNeedsNoDecode) {
  FakeNode node;
  const Result result = RunJob(node, Job(1));
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.ids, Expected(1));
  EXPECT_EQ(result.summary.reason, FinishReason::kLength);
  EXPECT_EQ(node.decode_starts, 0);
  EXPECT_EQ(node.leases(), 0u);
}

TEST(GenerationTest, SeedDecidesTheTokens) {
  GenerateJob job = Job();
  FakeNode first, second, third;
  EXPECT_EQ(RunJob(first, job).ids, RunJob(second, job).ids);
  job.sampling.seed = 12;
  EXPECT_EQ(RunJob(third, job).ids, Expected(job));
  EXPECT_NE(Expected(job), Expected(6));
}

// Every fault before every step of a request: the tokens are those of the run in which nothing happened.
class SingleFaultTest : public ::testing::TestWithParam<std::tuple<Fault, PathSettings>> {};

TEST_P(SingleFaultTest, RequestGoesOnExactly) {
  const auto& [fault, settings] = GetParam();
  int resumed = 0;
  for (int step = 1; step <= StepsOfCleanRun(settings); ++step) {
    SCOPED_TRACE(step);
    FakeNode node(settings);
    node.faults[step] = fault;
    const Result result = RunJob(node, Job());
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.ids, Expected(6));
    EXPECT_EQ(result.summary.completion_tokens, 6u);
    EXPECT_LE(result.summary.resumed, 2u);
    EXPECT_EQ(node.metrics.resumed.Value(), result.summary.resumed);
    EXPECT_EQ(node.metrics.preempted.Value(), fault == Fault::kPreempted ? result.summary.resumed : 0);
    EXPECT_EQ(node.leases(), 0u);
    EXPECT_EQ(node.metrics.running.Value(), 0);
    resumed += static_cast<int>(result.summary.resumed);
  }
  EXPECT_GT(resumed, 0);
}

INSTANTIATE_TEST_SUITE_P(ByPrefill, SingleFaultTest,
                         ::testing::Combine(::testing::Values(Fault::kPrefillDies, Fault::kDecodeDies, Fault::kBothDie,
                                                              Fault::kLeaseRevoked, Fault::kPreempted,
                                                              Fault::kPrefillDrains),
                                            ::testing::Values(kAllToPrefill)));
INSTANTIATE_TEST_SUITE_P(ByDecode, SingleFaultTest,
                         ::testing::Combine(::testing::Values(Fault::kDecodeDies, Fault::kBothDie, Fault::kLeaseRevoked,
                                                              Fault::kPreempted),
                                            ::testing::Values(kAllToDecode)));

TEST(GenerationTest, PrefillResumesFromTheTokensItHadFinished) {
  FakeNode node;
  node.faults[4] = Fault::kPrefillDies;  // Reserve, Run, first token done, second token done and then gone
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(node.prefill_runs, 2);
  EXPECT_EQ(node.prefilled_tokens, 3);
  EXPECT_EQ(result.summary.resumed, 1u);
}

TEST(GenerationTest, TwoFaultsInOneRequest) {
  for (int first = 2; first <= StepsOfCleanRun(); ++first) {
    FakeNode node;
    node.faults[first] = Fault::kDecodeDies;
    node.faults[first + 4] = Fault::kPrefillDies;
    const Result result = RunJob(node, Job());
    ASSERT_TRUE(result.status.ok()) << first << " " << result.status;
    EXPECT_EQ(result.ids, Expected(6)) << first;
  }
}

TEST(GenerationTest, DecodeThatNeverComesBackIsNamed) {
  FakeNode node;
  node.downtime = std::chrono::hours(5);
  node.faults[3] = Fault::kDecodeDies;
  const auto before = node.clock.Now();
  const Result result = RunJob(node, Job());
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("decode"));
  EXPECT_GE(node.clock.Now() - before, std::chrono::seconds(10));
  EXPECT_LE(node.clock.Now() - before, std::chrono::seconds(11));
  EXPECT_EQ(node.leases(), 0u);
}

TEST(GenerationTest, DecodeLongGoneFailsAtOnce) {
  FakeNode node;
  node.downtime = std::chrono::hours(5);
  node.Kill(Role::kDecode);
  node.roles.ReportDown(Role::kDecode);
  node.clock.SleepFor(std::chrono::seconds(60));
  const auto before = node.clock.Now();
  const Result result = RunJob(node, Job());
  EXPECT_TRUE(absl::IsUnavailable(result.status));
  EXPECT_LT(node.clock.Now() - before, std::chrono::seconds(1));
}

TEST(GenerationTest, RecoveriesAreBounded) {
  FakeNode node;
  node.downtime = std::chrono::milliseconds(60);
  for (int step = 2; step < 200; ++step) node.faults[step] = Fault::kPrefillDies;
  const Result result = RunJob(node, Job());
  EXPECT_TRUE(absl::IsUnavailable(result.status));
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("gave up after 5"));
}

TEST(GenerationTest, WhatGetsOnMayRecoverAnyNumberOfTimes) {
  for (const PathSettings& settings : {kAllToPrefill, kAllToDecode}) {
    FakeNode node(settings);
    node.downtime = std::chrono::milliseconds(60);
    // Each time a little later: every attempt computes all tokens so far again, then gets on by some.
    for (int step = 40, death = 0; death < 20; ++death, step += 45 + 12 * death) {
      node.faults[step] = Fault::kDecodeDies;
    }
    const Result result = RunJob(node, Job(300));
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_GT(result.summary.resumed, static_cast<uint32_t>(RequestLife::kMaxRecoveries) * 2);
  }
}

TEST(GenerationTest, ClientThatLeavesEndsTheRequestAtAnyStep) {
  for (const PathSettings& settings : {kAllToPrefill, kAllToDecode}) {
    for (int step = 1; step < StepsOfCleanRun(settings); ++step) {
      FakeNode node(settings);
      node.faults[step] = Fault::kClientLeaves;
      const Result result = RunJob(node, Job());
      EXPECT_TRUE(absl::IsCancelled(result.status)) << step << " " << result.status;
      EXPECT_EQ(result.summary.resumed, 0u) << step;
      EXPECT_EQ(node.leases(), 0u) << step;
    }
  }
}

TEST(GenerationTest, ClientThatLeavesDuringRecoveryEndsTheRequest) {
  FakeNode node;
  node.downtime = std::chrono::hours(5);
  node.faults[3] = Fault::kDecodeDies;
  node.clock.on_sleep = [&] { node.client_here = false; };
  EXPECT_TRUE(absl::IsCancelled(RunJob(node, Job()).status));
}

TEST(GenerationTest, ReplyThatCannotBeSentEndsTheRequest) {
  FakeNode node;
  const GenerateJob job = Job();
  RecordingSink sink;
  sink.fails = true;
  Generation generation(job, node.Environment(), node.Call(), sink);
  EXPECT_TRUE(absl::IsCancelled(generation.Run()));
  EXPECT_EQ(node.prefill_runs, 1);
}

TEST(GenerationTest, WaitsForPages) {
  FakeNode node;
  node.capacity = 10;
  std::unique_ptr<DecodeSession> other = node.OpenSession();
  ASSERT_TRUE(other
                  ->Reserve({.request_id = "other",
                             .fingerprint = testing::kWeights,
                             .tokens = {},
                             .max_tokens = 5,
                             .arrival = 0,
                             .cache_scope = "scope",
                             .ignore_cache = false})
                  .ok());
  const auto before = node.clock.Now();
  node.clock.on_sleep = [&] {
    EXPECT_EQ(node.metrics.waiting.Value(), 1);
    EXPECT_EQ(node.metrics.running.Value(), 0);
    if (other == nullptr || node.clock.Now() - before <= std::chrono::seconds(2)) return;
    other.reset();
    node.queue.CountReturn();
  };
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_GE(result.summary.queue_seconds, 2.0);
  EXPECT_LT(result.summary.queue_seconds, 2.1);
  EXPECT_GE(result.summary.time_to_first_token_seconds, result.summary.queue_seconds);
}

TEST(GenerationTest, TellsHowLongItHasWaitedInTheLine) {
  FakeNode node;
  AdmissionQueue::Request other(node.queue, node.tenant, 1, AdmissionQueue::Kind::kShort);
  auto earlier = std::make_unique<AdmissionQueue::Request::Place>(*other.LineUp());
  ASSERT_TRUE(earlier->IsFirst());
  const auto before = node.clock.Now();
  node.clock.on_sleep = [&] {
    if (node.clock.Now() - before >= std::chrono::seconds(1)) earlier.reset();
  };
  std::vector<RequestClock::Duration> asked;
  CallPeers call = node.Call();
  call.asking = [&](RequestClock::Duration waited) { asked.push_back(waited); };
  const GenerateJob job = Job();
  RecordingSink sink;
  EXPECT_TRUE(Generation(job, node.Environment(), call, sink).Run().ok());
  EXPECT_EQ(asked, std::vector<RequestClock::Duration>{std::chrono::seconds(1)});
}

TEST(GenerationTest, AsksSeldomForPagesOfWhichNoneComeBack) {
  FakeNode node;
  node.taken = node.capacity;
  const auto before = node.clock.Now();
  const int clean = StepsOfCleanRun();
  node.clock.on_sleep = [&] {
    if (node.clock.Now() - before > std::chrono::seconds(60)) node.taken = 0;  // and nobody says so
  };
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_LT(result.summary.queue_seconds, 61);
  EXPECT_LT(node.steps - clean, 110);  // each sends the whole prompt
}

TEST(GenerationTest, AsksOftenAgainOncePagesComeBack) {
  FakeNode node;
  node.taken = node.capacity;
  const auto before = node.clock.Now();
  int asked = 0;
  node.clock.on_sleep = [&] {
    const auto waited = node.clock.Now() - before;
    if (asked == 0 && waited >= std::chrono::seconds(60)) {
      asked = node.steps;
      node.queue.CountReturn();  // of too few
    }
    if (node.taken > 0 && waited >= std::chrono::seconds(60) + RequestLife::kMaxAdmissionPause) {
      EXPECT_GE(node.steps - asked, 4) << "20, 40, 80 ms after it";
      node.taken = 0;
      node.queue.CountReturn();
    }
  };
  const Result result = RunJob(node, Job());
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_GT(asked, 0);
}

TEST(GenerationTest, CancelledWhileQueued) {
  FakeNode node;
  node.capacity = 10;
  const std::unique_ptr<DecodeSession> other = node.OpenSession();
  ASSERT_TRUE(other
                  ->Reserve({.request_id = "other",
                             .fingerprint = testing::kWeights,
                             .tokens = {},
                             .max_tokens = 5,
                             .arrival = 0,
                             .cache_scope = "scope",
                             .ignore_cache = false})
                  .ok());
  node.clock.on_sleep = [&] { node.client_here = false; };
  EXPECT_TRUE(absl::IsCancelled(RunJob(node, Job()).status));
  EXPECT_EQ(node.queue.size(), 0u);
}

// The prompt fits what is announced, so it is not at fault.
TEST(GenerationTest, AsksTheClientToComeBackWhereThePoolHasLostMemory) {
  FakeNode node;
  node.capacity = 5;
  const absl::Status status = RunJob(node, Job()).status;
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no memory for 3 tokens"));
  EXPECT_EQ(RetryAfterSeconds(status), 5);
  EXPECT_TRUE(node.roles.IsUp(Role::kDecode));
}

TEST(GenerationTest, OtherWeightsInDecodeAreAnErrorAtOnce) {
  FakeNode node;
  node.decode_weights = "others";
  const Result result = RunJob(node, Job());
  EXPECT_TRUE(absl::IsFailedPrecondition(result.status)) << result.status;
  EXPECT_EQ(node.steps, 1);
  EXPECT_EQ(node.queue.size(), 0u);
}

TEST(GenerationTest, DecodeThatComesBackWithOtherWeightsEndsTheRequest) {
  FakeNode node;
  const int step = StepsOfCleanRun() - 1;
  node.faults[step] = Fault::kDecodeDies;
  node.clock.on_sleep = [&] { node.decode_weights = "others"; };
  const Result result = RunJob(node, Job());
  EXPECT_TRUE(absl::IsFailedPrecondition(result.status)) << result.status;
  EXPECT_EQ(node.steps, step + 1);
  EXPECT_FALSE(result.ids.empty());
}

TEST(GenerationTest, WaitsItsTurnBehindEarlierRequests) {
  FakeNode node;
  AdmissionQueue::Request other(node.queue, node.tenant, 1, AdmissionQueue::Kind::kShort);
  auto earlier = std::make_unique<AdmissionQueue::Request::Place>(*other.LineUp());
  EXPECT_TRUE(earlier->IsFirst());
  const auto before = node.clock.Now();
  node.clock.on_sleep = [&] {
    EXPECT_EQ(node.steps, 0);
    if (node.clock.Now() - before > std::chrono::seconds(1)) {
      earlier.reset();
      node.clock.on_sleep = nullptr;
    }
  };
  EXPECT_TRUE(RunJob(node, Job()).status.ok());
  EXPECT_GE(node.clock.Now() - before, std::chrono::seconds(1));
}

TEST(GenerationTest, TheTenantsTokensAreCounted) {
  FakeNode node;
  node.cache = {{5, 6}};
  node.clock.on_sleep = [] {};
  Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.summary.used_tokens, 9u);
  TenantMetrics& metrics = node.tenant->metrics();
  EXPECT_EQ(metrics.prompt_tokens.Value(), 3);
  EXPECT_EQ(metrics.cached_tokens.Value(), 2);
  EXPECT_EQ(metrics.generated_tokens.Value(), 6);
  EXPECT_EQ(metrics.running.Value(), 0);
  EXPECT_EQ(metrics.waiting.Value(), 0);
  node.decode_weights = "others";
  result = RunJob(node, Job());
  EXPECT_EQ(result.summary.used_tokens, 0u);  // never admitted
  EXPECT_EQ(metrics.prompt_tokens.Value(), 3);
}

// Resuming computes tokens again, which is not the client's doing.
TEST(GenerationTest, TokensCountOnceHoweverOftenTheyAreComputed) {
  FakeNode node;
  node.faults[StepsOfCleanRun() - 1] = Fault::kDecodeDies;
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.summary.resumed, 1u);
  EXPECT_EQ(result.summary.used_tokens, 9u);
  EXPECT_EQ(node.tenant->metrics().prompt_tokens.Value(), 3);
}

// A deadline ends a request in the line, before it costs anything.
TEST(GenerationTest, ADeadlineEndsTheWait) {
  FakeNode node;
  node.taken = node.capacity;
  const auto deadline = node.clock.Now() + std::chrono::seconds(3);
  CallPeers call = node.Call();
  call.check = [&] { return node.clock.Now() < deadline ? absl::OkStatus() : absl::DeadlineExceededError("too late"); };
  call.deadline = deadline;
  const GenerateJob job = Job();
  RecordingSink sink;
  Generation generation(job, node.Environment(), call, sink);
  EXPECT_TRUE(absl::IsDeadlineExceeded(generation.Run()));
  EXPECT_EQ(node.clock.Now(), deadline);
  EXPECT_EQ(node.queue.size(), 0u);
}

// Behind others a request sleeps until it is told that its client has left. Nothing else would wake it: it asks nobody.
TEST(GenerationTest, WhoeverLeavesIsWokenInTheLine) {
  FakeNode node;
  AdmissionQueue::Request other(node.queue, node.tenant, 1, AdmissionQueue::Kind::kShort);
  const AdmissionQueue::Request::Place first = *other.LineUp();
  bool here = true;
  int checks = 0;
  std::function<void()> leave;
  CallPeers call = node.Call();
  call.check = [&] { return ++checks, here ? absl::OkStatus() : absl::CancelledError("gone"); };
  call.watch = [&](std::function<void()> on_cancel) {
    leave = std::move(on_cancel);
    return std::shared_ptr<void>(nullptr, [&](void*) { leave = nullptr; });
  };
  const auto leaves_at = node.clock.Now() + std::chrono::seconds(5);
  node.clock.on_sleep = [&] {
    if (node.clock.Now() < leaves_at || !std::exchange(here, false)) return;
    leave();
  };
  const GenerateJob job = Job();
  RecordingSink sink;
  Generation generation(job, node.Environment(), call, sink);
  EXPECT_TRUE(absl::IsCancelled(generation.Run()));
  EXPECT_EQ(node.clock.Now(), leaves_at);
  EXPECT_EQ(checks, 2);
  EXPECT_EQ(leave, nullptr);
  EXPECT_EQ(node.queue.size(), 1u);
}

TEST(GenerationTest, FullQueueRefuses) {
  FakeNode node;
  std::list<AdmissionQueue::Request> others;
  std::vector<AdmissionQueue::Request::Place> places;
  for (int i = 0; i < 4; ++i) {
    places.push_back(*others.emplace_back(node.queue, node.tenant, 1, AdmissionQueue::Kind::kShort).LineUp());
  }
  const Result result = RunJob(node, Job());
  EXPECT_TRUE(absl::IsResourceExhausted(result.status));
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("queue full"));
}

}  // namespace
}  // namespace moestro::router
