// Where a generation's prompt is computed, what the client is told about it, and what happens when a role is away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/client_metric.h>

#include "tests/services/router/request/generation_fixture.h"

namespace moestro::router {
namespace {

using std::chrono::seconds;
using testing::Expected;
using testing::FakeNode;
using testing::Job;
using testing::kAllToDecode;
using testing::kAllToPrefill;
using testing::Result;
using testing::RunJob;
using Fault = FakeNode::Fault;
using ::testing::ElementsAre;

constexpr uint32_t kLimit = 3;  // Job's prompt just reaches it
constexpr PathSettings kDefault{.chunked_below_tokens = kLimit};

double Admitted(FakeNode& node, PrefillPath path) { return node.metrics.Admitted(path).Value(); }

TEST(GenerationPathTest, ShortPromptNeedsDecodeAlone) {
  FakeNode node(kAllToDecode);
  node.Kill(Role::kPrefill);
  node.roles.ReportDown(Role::kPrefill);
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(node.prefill_runs, 0);
  EXPECT_EQ(node.decode_starts, 0);
  EXPECT_EQ(node.decode_prompts, 1);
  EXPECT_EQ(node.chunked_tokens, 3);
  EXPECT_EQ(result.progress.size(), 3u);
  EXPECT_EQ(result.progress.back().done_tokens, 3u);
  EXPECT_EQ(result.progress.back().total_tokens, 3u);
  EXPECT_EQ(result.notice.path, PrefillPath::kChunked);
  EXPECT_EQ(result.notice.path_reason, "3 new tokens < 1000");
  EXPECT_EQ(result.notice.cached_tokens, 0u);
  EXPECT_EQ(result.summary.path, PrefillPath::kChunked);
  EXPECT_EQ(Admitted(node, PrefillPath::kChunked), 1);
  EXPECT_EQ(Admitted(node, PrefillPath::kSplit), 0);
  EXPECT_EQ(Admitted(node, PrefillPath::kWholeMachine), 0);
  EXPECT_EQ(node.metrics.TimeToFirstToken(PrefillPath::kChunked).Collect().histogram.sample_count, 1u);
  EXPECT_EQ(node.metrics.inter_token_latency.Collect().histogram.sample_count, 5u);
}

TEST(GenerationPathTest, StopsAndLengthsOfAChunkedPrompt) {
  FakeNode node(kAllToDecode);
  EXPECT_EQ(RunJob(node, Job(1)).ids, Expected(1));
  GenerateJob job = Job();
  job.stop_ids = {Expected(6)[3]};
  Result result = RunJob(node, job);
  EXPECT_EQ(result.ids, Expected(3));
  EXPECT_EQ(result.summary.reason, FinishReason::kStop);
  job.stop_ids = {Expected(1)[0]};
  result = RunJob(node, job);
  EXPECT_TRUE(result.ids.empty());
  EXPECT_EQ(result.summary.reason, FinishReason::kStop);
  // A stop is a first token too.
  EXPECT_EQ(node.metrics.TimeToFirstToken(PrefillPath::kChunked).Collect().histogram.sample_count, 3u);
}

TEST(GenerationPathTest, OnlyNewTokensCount) {
  FakeNode node(kDefault);
  Result result = RunJob(node, Job());
  EXPECT_EQ(result.notice.path, PrefillPath::kWholeMachine);
  EXPECT_EQ(result.notice.path_reason, "3 new tokens >= 3, decode is idle");
  node.cache = {{5}};
  result = RunJob(node, Job());
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(result.notice.path, PrefillPath::kChunked);
  EXPECT_EQ(result.notice.path_reason, "2 new tokens < 3");
  EXPECT_EQ(result.notice.cached_tokens, 1u);
  EXPECT_EQ(result.summary.cached_tokens, 1u);
  EXPECT_EQ(node.chunked_tokens, 2);
  EXPECT_EQ(node.metrics.prompt_tokens.Value(), 6);
  EXPECT_EQ(node.metrics.prompt_tokens_cached.Value(), 1);
}

// The last prefill counts: decode, which computes the prompt after prefill has died, rounds nothing.
TEST(GenerationPathTest, TellsWhetherPrefillRoundedInputs) {
  for (const bool rounds : {false, true}) {
    FakeNode node(kDefault);
    node.fp8_activations = rounds;
    EXPECT_EQ(RunJob(node, Job()).summary.fp8_activations, rounds);
    node.cache = {{5}};
    EXPECT_FALSE(RunJob(node, Job()).summary.fp8_activations) << "a short prompt, in chunks";
  }
  const int steps = testing::StepsOfCleanRun(kDefault);
  for (int step = 1; step <= steps; ++step) {
    FakeNode node(kDefault);
    node.fp8_activations = true;
    node.downtime = std::chrono::hours(1);
    node.on_step = [&] {
      if (node.steps == step) node.Kill(Role::kPrefill);
    };
    const Result result = RunJob(node, Job());
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.summary.fp8_activations, result.summary.path != PrefillPath::kChunked) << "killed at " << step;
  }
}

TEST(GenerationPathTest, TheMachineIsSharedWhileDecodeIsInUse) {
  FakeNode node(kDefault);
  EXPECT_EQ(RunJob(node, Job()).notice.path, PrefillPath::kWholeMachine);
  EXPECT_TRUE(node.whole_machine);
  node.clock.SleepFor(seconds(299));
  const Result split = RunJob(node, Job());
  EXPECT_EQ(split.notice.path, PrefillPath::kSplit);
  EXPECT_EQ(split.notice.path_reason, "3 new tokens >= 3, decode is in use");
  EXPECT_EQ(split.ids, Expected(6));
  EXPECT_FALSE(node.whole_machine);
  node.clock.SleepFor(seconds(300));
  EXPECT_EQ(RunJob(node, Job()).notice.path, PrefillPath::kWholeMachine);
  {
    const PathPolicy::Decision other = node.policy.Choose(1, true);
    node.clock.SleepFor(seconds(900));
    EXPECT_EQ(RunJob(node, Job()).notice.path_reason, "3 new tokens >= 3, decode is in use");
  }
  EXPECT_EQ(Admitted(node, PrefillPath::kWholeMachine), 2);
  EXPECT_EQ(Admitted(node, PrefillPath::kSplit), 2);
}

TEST(GenerationPathTest, PrefillThatRefusesIsAsGoodAsDown) {
  FakeNode node(kAllToPrefill);
  node.prefill_refuses = true;
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(result.summary.path, PrefillPath::kChunked);
  EXPECT_EQ(node.prefill_runs, 1);
  EXPECT_EQ(node.leases(), 0u);
}

TEST(GenerationPathTest, TheWayThatIsAskedForOrAnError) {
  FakeNode node(kAllToPrefill);
  GenerateJob job = Job();
  job.way = PromptWay::kChunked;
  Result result = RunJob(node, job);
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(result.notice.path, PrefillPath::kChunked);
  FakeNode other(kAllToDecode);
  job.way = PromptWay::kStreamed;
  result = RunJob(other, job);
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(other.way, PromptWay::kStreamed);
  EXPECT_TRUE(other.way_required);
  EXPECT_EQ(RunJob(other, Job()).notice.path, PrefillPath::kChunked);
  other.prefill_refuses = true;
  EXPECT_TRUE(absl::IsFailedPrecondition(RunJob(other, job).status));
  EXPECT_EQ(other.leases(), 0u);
  other.downtime = std::chrono::hours(5);
  other.Kill(Role::kPrefill);
  other.roles.ReportDown(Role::kPrefill);
  result = RunJob(other, job);
  EXPECT_TRUE(absl::IsUnavailable(result.status));
  EXPECT_EQ(result.notice.path_reason, "");  // not announced, so that HTTP answers 503
  EXPECT_EQ(other.leases(), 0u);
}

TEST(GenerationPathTest, APredictionIsToldToPrefillAndCompared) {
  FakeNode node({.predicted = true});
  node.policy.SetCosts(Role::kDecode, {{.way = PromptWay::kChunked, .points = {{1000, 8.0}}}});
  node.policy.SetCosts(Role::kPrefill, {{.way = PromptWay::kInPlace, .points = {{1000, 4.0}}},
                                        {.way = PromptWay::kStreamed, .points = {{1000, 2.0}}}});
  node.on_step = [&] { node.clock.Advance(seconds(1)); };
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(node.way, PromptWay::kStreamed);
  EXPECT_EQ(result.notice.path_reason, "3 new tokens: chunked 8 s, in prefill 2 s (streamed), decode is idle");
  const auto ratio = [&](PromptWay way) { return node.metrics.PredictionRatio(way).Collect().histogram; };
  EXPECT_EQ(ratio(PromptWay::kStreamed).sample_count, 1u);
  EXPECT_DOUBLE_EQ(ratio(PromptWay::kStreamed).sample_sum, 2) << "four calls, instead of 2 s";
  EXPECT_EQ(ratio(PromptWay::kChunked).sample_count, 0u);
  EXPECT_GT(node.policy.correction(PromptWay::kStreamed), 1);

  node.policy.SetCosts(Role::kDecode, {{.way = PromptWay::kChunked, .points = {{1000, 1.0}}}});
  EXPECT_EQ(RunJob(node, Job()).notice.path, PrefillPath::kChunked);
  EXPECT_EQ(ratio(PromptWay::kChunked).sample_count, 1u);
}

TEST(GenerationPathTest, APromptThatResumesSaysNothingOfThePrediction) {
  FakeNode node({.predicted = true});
  node.policy.SetCosts(Role::kDecode, {{.way = PromptWay::kChunked, .points = {{1000, 8.0}}}});
  node.policy.SetCosts(Role::kPrefill, {{.way = PromptWay::kInPlace, .points = {{1000, 4.0}}}});
  node.faults = {{3, Fault::kPrefillDies}};
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(result.summary.resumed, 1u);
  EXPECT_EQ(node.metrics.PredictionRatio(PromptWay::kInPlace).Collect().histogram.sample_count, 0u);
}

TEST(GenerationPathTest, WithoutPrefillAShortPromptDoesNotWaitForIt) {
  FakeNode node({.predicted = true});
  node.policy.SetCosts(Role::kDecode, {{.way = PromptWay::kChunked, .points = {{1000, 8.0}}}});
  node.policy.SetCosts(Role::kPrefill, {{.way = PromptWay::kInPlace, .points = {{1000, 4.0}}}});
  node.Kill(Role::kPrefill);
  node.roles.ReportDown(Role::kPrefill);
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.notice.path_reason, "3 new tokens < 2048");
  EXPECT_EQ(node.prefill_runs, 0);
}

TEST(GenerationPathTest, UnifiedNeverAsksPrefill) {
  FakeNode node({.unified = true, .chunked_below_tokens = 0});
  node.downtime = std::chrono::hours(5);
  node.Kill(Role::kPrefill);
  const auto before = node.clock.Now();
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(result.notice.path_reason, "3 new tokens, unified mode");
  EXPECT_EQ(node.prefill_runs, 0);
  EXPECT_EQ(node.clock.Now(), before);
}

TEST(GenerationPathTest, WaitsForPrefillThatIsRestarting) {
  FakeNode node(kAllToPrefill);
  node.Kill(Role::kPrefill);
  node.roles.ReportDown(Role::kPrefill);
  const auto before = node.clock.Now();
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.notice.path, PrefillPath::kWholeMachine);
  EXPECT_GE(node.clock.Now() - before, seconds(3));
  EXPECT_LE(node.clock.Now() - before, seconds(4));
  EXPECT_EQ(result.summary.resumed, 0u);
}

TEST(GenerationPathTest, LongPromptGoesToDecodeWhenPrefillStaysAway) {
  FakeNode node(kAllToPrefill);
  node.downtime = std::chrono::hours(5);
  node.Kill(Role::kPrefill);
  node.roles.ReportDown(Role::kPrefill);
  auto before = node.clock.Now();
  Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(result.notice.path, PrefillPath::kChunked);
  EXPECT_EQ(result.notice.path_reason, "3 new tokens >= 0, but prefill is down");
  EXPECT_GE(node.clock.Now() - before, seconds(10));
  EXPECT_LE(node.clock.Now() - before, seconds(11));
  // The next one knows.
  before = node.clock.Now();
  result = RunJob(node, Job());
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_LT(node.clock.Now() - before, seconds(1));
}

TEST(GenerationPathTest, PrefillThatDiesForGoodHandsOverToDecodeInNewPages) {
  for (int step = 2; step <= 5; ++step) {
    SCOPED_TRACE(step);
    FakeNode node(kAllToPrefill);
    node.downtime = std::chrono::hours(5);
    node.faults[step] = Fault::kPrefillDies;
    const Result result = RunJob(node, Job());
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.ids, Expected(6));
    EXPECT_EQ(result.notice.path, PrefillPath::kWholeMachine);
    EXPECT_EQ(result.summary.path, PrefillPath::kChunked);
    EXPECT_EQ(result.summary.resumed, 1u);
    EXPECT_EQ(node.arrivals.size(), 2u);
    EXPECT_EQ(node.chunked_tokens, 3);
    EXPECT_EQ(Admitted(node, PrefillPath::kWholeMachine), 1);
    EXPECT_EQ(Admitted(node, PrefillPath::kChunked), 0);
    EXPECT_EQ(node.metrics.TimeToFirstToken(PrefillPath::kChunked).Collect().histogram.sample_count, 1u);
  }
}

TEST(GenerationPathTest, ClientThatLeavesWhilePrefillIsAwayEndsTheRequest) {
  FakeNode node(kAllToPrefill);
  node.Kill(Role::kPrefill);
  node.roles.ReportDown(Role::kPrefill);
  node.clock.on_sleep = [&] { node.client_here = false; };
  EXPECT_TRUE(absl::IsCancelled(RunJob(node, Job()).status));
  EXPECT_EQ(node.leases(), 0u);
}

TEST(GenerationPathTest, RecoveryChoosesAnew) {
  // Three tokens are short, with what was generated they are not.
  FakeNode node({.chunked_below_tokens = 5});
  node.faults[8] = Fault::kDecodeDies;  // Reserve, Prompt, three chunks, two tokens
  Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(result.notice.path, PrefillPath::kChunked);
  EXPECT_EQ(result.summary.path, PrefillPath::kSplit);
  EXPECT_EQ(result.summary.resumed, 1u);
  EXPECT_EQ(node.prefilled_tokens, 5);
  // With their prefix cached they are short again.
  FakeNode other({.chunked_below_tokens = 3});
  other.keeps_prefixes = true;
  other.faults[8] = Fault::kPreempted;
  result = RunJob(other, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.ids, Expected(6));
  EXPECT_EQ(result.notice.path, PrefillPath::kWholeMachine);
  EXPECT_EQ(result.summary.path, PrefillPath::kChunked);
  EXPECT_EQ(result.summary.cached_tokens, 0u);  // of the prompt, when it was admitted
}

TEST(GenerationPathTest, DecodeThatCachesEverythingIsRefused) {
  class Greedy final : public DecodePeer {
   public:
    std::unique_ptr<DecodeSession> OpenSession() override { return std::make_unique<Session>(); }

   private:
    class Session final : public DecodeSession {
      absl::StatusOr<Reservation> Reserve(const ReserveRequest& request) override {
        return Reservation{.lease = {.cached_tokens = std::ssize(request.tokens)}};
      }
      absl::Status Start(const DecodeStart&) override { return absl::OkStatus(); }
      absl::Status Prompt(const DecodePrompt&) override { return absl::OkStatus(); }
      absl::StatusOr<DecodeEvent> Next() override { return FinishReason::kStop; }
      double waited_seconds() const override { return 0; }
      absl::Status GiveUp() override { return absl::CancelledError(""); }
    };
  };
  FakeNode node;
  Greedy decode;
  testing::RecordingSink sink;
  const GenerateJob job = Job();
  Generation generation(job, node.Environment(), {node, decode, [] { return absl::OkStatus(); }, [] {}, node.tenant},
                        sink);
  EXPECT_TRUE(absl::IsInternal(generation.Run()));
}

TEST(GenerationPathTest, TimesAddUp) {
  FakeNode node(kAllToDecode);
  node.capacity = 10;
  std::unique_ptr<DecodeSession> other = node.OpenSession();
  const std::vector<int32_t> tokens{1};
  ASSERT_TRUE(other
                  ->Reserve({.request_id = "other",
                             .fingerprint = testing::kWeights,
                             .tokens = tokens,
                             .max_tokens = 5,
                             .cache_scope = "scope"})
                  .ok());
  node.clock.on_sleep = [&] { other.reset(); };
  node.on_step = [&] { node.clock.Advance(std::chrono::milliseconds(100)); };
  const Result result = RunJob(node, Job());
  ASSERT_TRUE(result.status.ok()) << result.status;
  const RequestSummary& summary = result.summary;
  EXPECT_NEAR(summary.prefill_seconds, 0.5, 1e-6);  // Prompt, three chunks, the token
  EXPECT_NEAR(summary.decode_seconds, 0.5, 1e-6);
  EXPECT_GT(summary.queue_seconds, 0.1);
  EXPECT_NEAR(summary.queue_seconds + summary.prefill_seconds, summary.time_to_first_token_seconds, 1e-6);
}

TEST(GenerationPathTest, TheWaitForAPlaceIsQueueTime) {
  FakeNode node(kAllToDecode);
  node.place_wait = std::chrono::seconds(90);
  node.on_step = [&] { node.clock.Advance(std::chrono::milliseconds(100)); };
  const RequestSummary chunked = RunJob(node, Job()).summary;
  EXPECT_NEAR(chunked.queue_seconds, 90.1, 1e-6);   // and Reserve
  EXPECT_NEAR(chunked.prefill_seconds, 0.5, 1e-6);  // as without the wait
  EXPECT_NEAR(chunked.time_to_first_token_seconds, 90.6, 1e-6);
  // Prefill gives the first token: the line is behind it.
  FakeNode prefill;
  prefill.place_wait = std::chrono::seconds(90);
  const RequestSummary split = RunJob(prefill, Job()).summary;
  EXPECT_LT(split.queue_seconds, 1);
  EXPECT_LT(split.time_to_first_token_seconds, 1);
  EXPECT_GE(split.decode_seconds, 90);
}

}  // namespace
}  // namespace moestro::router
