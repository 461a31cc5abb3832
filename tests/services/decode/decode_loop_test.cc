#include "services/decode/decode_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>
#include <set>
#include <string>
#include <thread>

#include "tests/services/decode/decode_fixture.h"

namespace moestro::decode {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kNanToken = 3;  // Tokens() has none of it

class DecodeLoopTest : public ::testing::Test {
 protected:
  static std::vector<int32_t> Tokens(int count, int32_t first = 20) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = 20 + (first + 3 * i) % 150;
    return tokens;
  }
  std::shared_ptr<Lease> Reserve(const std::vector<int32_t>& tokens, int64_t max_tokens = 200) {
    return node_.leases.Reserve({.tokens = tokens, .max_tokens = max_tokens, .arrival = ++arrivals_}).value();
  }
  // A lease that prefill has filled.
  std::shared_ptr<Lease> Prefilled(const std::vector<int32_t>& tokens) {
    const auto lease = Reserve(tokens);
    const auto writer = node_.node.Writer(lease->kv);
    EXPECT_TRUE(PrefillInto(prefill_.engine(), *writer, tokens, {}, 0).ok());
    return lease;
  }
  static Continuation Next(int64_t max_tokens, uint64_t index = 0) {
    return {.index = index, .max_tokens = max_tokens};
  }
  std::shared_ptr<TokenStream> Start(const std::shared_ptr<Lease>& lease, int32_t token, int64_t max_tokens) {
    const auto position = static_cast<int64_t>(lease->tokens.size());
    return node_.loop.Start(lease, {token, position}, Next(max_tokens, 1)).value();
  }
  std::shared_ptr<TokenStream> Prompt(const std::vector<int32_t>& tokens, int64_t max_tokens) {
    return node_.loop.Prompt(Reserve(tokens), Next(max_tokens)).value();
  }

  EngineNode prefill_{256, kNanToken};
  DecodeNode node_{{.max_batch = 4, .max_chunk = 16, .nan_token = kNanToken}};
  uint64_t arrivals_ = 0;
};

TEST_F(DecodeLoopTest, GoesOnAfterPrefill) {
  const std::vector<int32_t> prompt = Tokens(5);
  const DecodeOutcome expected = RunAlone(prefill_, prompt, 11, {});
  const DecodeOutcome outcome = Collect(*Start(Prefilled(prompt), expected.ids[0], 10));
  EXPECT_EQ(outcome.ids, std::vector<int32_t>(expected.ids.begin() + 1, expected.ids.end()));
  EXPECT_EQ(outcome.reason, FinishReason::kLength);
  EXPECT_TRUE(outcome.progress.empty());
}

TEST_F(DecodeLoopTest, RunsAPromptInChunksAndReportsEach) {
  const std::vector<int32_t> prompt = Tokens(40);
  const DecodeOutcome expected = RunAlone(prefill_, prompt, 12, {});
  const DecodeOutcome outcome = Collect(*Prompt(prompt, 12));
  EXPECT_THAT(outcome.progress, ::testing::ElementsAre(16, 32, 40));
  EXPECT_EQ(outcome.ids, expected.ids);
  EXPECT_EQ(outcome.logprobs, expected.logprobs);
  EXPECT_EQ(outcome.reason, FinishReason::kLength);
  EXPECT_EQ(node_.metrics.prompt_tokens.Value(), 40);
}

TEST_F(DecodeLoopTest, APromptBeginsWhereThePagesEnd) {
  const std::vector<int32_t> prompt = Tokens(150);
  const DecodeOutcome expected = Collect(*Prompt(prompt, 5));
  const auto lease = Reserve(prompt);
  EXPECT_EQ(lease->kv.cached_tokens, 128);
  const DecodeOutcome outcome = Collect(**node_.loop.Prompt(lease, Next(5)));
  EXPECT_THAT(outcome.progress, ::testing::ElementsAre(144, 150));
  EXPECT_EQ(outcome.ids, expected.ids);
  EXPECT_EQ(outcome.logprobs, expected.logprobs);
}

TEST_F(DecodeLoopTest, APromptThatPrefillFinishedIsNotComputedAgain) {
  const std::vector<int32_t> prompt = Tokens(30);
  const DecodeOutcome expected = RunAlone(prefill_, prompt, 3, {});
  const DecodeOutcome outcome = Collect(**node_.loop.Prompt(Prefilled(prompt), Next(3)));
  EXPECT_EQ(outcome.ids, expected.ids);
  EXPECT_EQ(node_.metrics.prompt_tokens.Value(), 0) << "one row, for the logits";
}

TEST_F(DecodeLoopTest, AnAnswerThatRunsIsNotCached) {
  std::vector<int32_t> turn = Tokens(70);
  node_.gate.LetPass(5 + 95);  // chunks of 16, and then a token each
  const auto stream = Prompt(turn, 190);
  while (turn.size() < 160) {
    const auto event = stream->Next(kHang);
    ASSERT_TRUE(event);
    if (const auto* token = std::get_if<Token>(&*event)) turn.push_back(token->id);
  }
  EXPECT_EQ(Reserve(turn, 10)->kv.cached_tokens, 64) << "the prompt is";
  node_.gate.SetClosed(false);
  node_.loop.Remove(stream);
}

TEST_F(DecodeLoopTest, AnswersAreCachedForTheNextTurn) {
  std::vector<int32_t> turn = Tokens(50);
  const DecodeOutcome answer = Collect(*Prompt(turn, 90));
  turn.insert(turn.end(), answer.ids.begin(), answer.ids.end());
  turn.push_back(5);
  EXPECT_EQ(Reserve(turn)->kv.cached_tokens, 128) << "139 tokens have been computed";
}

TEST_F(DecodeLoopTest, TellsHowLongASequenceWaitedForItsPlace) {
  node_.gate.SetClosed(true);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(Prompt(Tokens(5), 200));
  const auto late = Prompt(Tokens(5), 1);
  const auto arrived = std::chrono::steady_clock::now();
  // Step by step, until all prompts are computed: far fewer steps than the answers have tokens.
  for (const auto& stream : streams) {
    while (!stream->Next(std::chrono::milliseconds(100))) node_.gate.LetPass(1);
  }
  EXPECT_FALSE(late->waited()) << "four have all places";
  for (const auto& stream : streams) EXPECT_TRUE(stream->waited());
  const auto opened = std::chrono::steady_clock::now();
  node_.gate.SetClosed(false);
  EXPECT_EQ(Collect(*late).ids.size(), 1u);
  EXPECT_GE(late->waited().value(), opened - arrived);
}

TEST_F(DecodeLoopTest, CoresFollowTheWorkWithTheSameBits) {
  const std::string path = ::testing::TempDir() + "decode-loop-cores-" + std::to_string(getpid());
  DecodeNode decode({.workers = {.threads = 2, .lent_cpus = {AllowedCpus().front()}}, .cores = path});
  WorkerPool prefill_pool({.threads = 1, .lent_cpus = {AllowedCpus().front()}});
  const auto prefill =
      SharedCores::Open(path, SharedCores::Role::kPrefill, prefill_pool, {.follow_quota = false}).value();
  unlink(path.c_str());
  const std::vector<int32_t> prompt = Tokens(20);
  const DecodeOutcome expected = RunAlone(prefill_, prompt, 4, {});
  for (const bool prefill_computes : {false, true, false}) {
    prefill_computes ? prefill->Begin() : prefill->End();
    const auto lease = decode.leases.Reserve({.tokens = prompt, .max_tokens = 4, .arrival = ++arrivals_}).value();
    const auto stream = decode.loop.Prompt(lease, Next(4)).value();
    EXPECT_EQ(Collect(*stream).ids, expected.ids);
    EXPECT_EQ(decode.metrics.workers.Value(), prefill_computes ? 2 : 3);
    decode.loop.Remove(stream);
  }
  // Without work decode leaves its cores to prefill: at the latest when it looks again.
  while (prefill->Follow() != 2) std::this_thread::yield();
}

TEST_F(DecodeLoopTest, GrowsPageByPage) {
  const std::vector<int32_t> prompt = Tokens(10);
  const auto lease = Reserve(prompt);
  EXPECT_EQ(lease->kv.pages.size(), 2u);
  const DecodeOutcome outcome = Collect(**node_.loop.Prompt(lease, Next(200)));
  EXPECT_EQ(outcome.ids, RunAlone(prefill_, prompt, 200, {}).ids);
  EXPECT_EQ(lease->kv.pages.size(), 4u);
}

// Penalties follow the request's own tokens: whoever continues it, from wherever, goes on with the same ones.
TEST_F(DecodeLoopTest, PenaltiesSurviveEveryWayToContinue) {
  const std::vector<int32_t> prompt = Tokens(9);
  const Sampling sampling{.temperature = 1.2f,
                          .seed = 4,
                          .min_p = 0.01f,
                          .presence_penalty = 0.5f,
                          .frequency_penalty = 1,
                          .repetition_penalty = 1.5f,
                          .logit_bias = {{kNanToken, -100.0f}, {30, 2.0f}, {31, -2.0f}}};
  const std::vector<int32_t> expected = RunAlone(prefill_, prompt, 24, sampling).ids;
  EXPECT_NE(expected, RunAlone(prefill_, prompt, 24, {.temperature = 1.2f, .seed = 4}).ids);
  for (const size_t done : {size_t{0}, size_t{1}, size_t{7}, size_t{23}}) {
    std::vector<int32_t> tokens = prompt;
    tokens.insert(tokens.end(), expected.begin(), expected.begin() + static_cast<ptrdiff_t>(done));
    const std::vector<int32_t> rest(expected.begin() + static_cast<ptrdiff_t>(done), expected.end());
    Continuation next = Next(static_cast<int64_t>(rest.size()), done);
    next.sampling = sampling;
    EXPECT_EQ(Collect(**node_.loop.Prompt(Reserve(tokens), next)).ids, rest) << done;
    if (rest.size() == 1) continue;
    next.index = done + 1;
    --next.max_tokens;
    const auto position = static_cast<int64_t>(tokens.size());
    EXPECT_EQ(Collect(**node_.loop.Start(Prefilled(tokens), {rest[0], position}, next)).ids,
              std::vector<int32_t>(rest.begin() + 1, rest.end()))
        << done;
  }
}

TEST_F(DecodeLoopTest, AFrequencyPenaltyWithoutMeasureForbidsRepetition) {
  Continuation next = Next(100);
  next.sampling = {.frequency_penalty = 1e6f, .logit_bias = {{kNanToken, -1e9f}}, .top_logprobs = 3};
  const auto stream = *node_.loop.Prompt(Reserve(Tokens(5)), next);
  std::set<int32_t> seen;
  while (const auto event = stream->Next(kHang)) {
    if (std::holds_alternative<FinishReason>(*event)) break;
    const auto* token = std::get_if<Token>(&*event);
    if (token == nullptr) continue;
    EXPECT_TRUE(seen.insert(token->id).second) << token->id;
    ASSERT_EQ(token->top.size(), 3u);
    EXPECT_GE(token->top[0].logprob, token->logprob) << "the penalty is not in it";
  }
  EXPECT_EQ(seen.size(), 100u);
}

TEST_F(DecodeLoopTest, StopIdEndsAndIsNotEmitted) {
  const std::vector<int32_t> free = RunAlone(prefill_, Tokens(5), 10, {}).ids;
  Continuation next = Next(10);
  next.stop_ids = {free[4]};
  const DecodeOutcome stopped = Collect(**node_.loop.Prompt(Reserve(Tokens(5)), next));
  EXPECT_EQ(stopped.reason, FinishReason::kStop);
  EXPECT_EQ(stopped.ids, std::vector<int32_t>(free.begin(), std::ranges::find(free, free[4])));
}

TEST_F(DecodeLoopTest, OneBadSequenceDoesNotHarmItsNeighbours) {
  const DecodeOutcome expected = RunAlone(prefill_, Tokens(5), 30, {});
  std::vector<int32_t> bad = Tokens(40, 90);
  bad[37] = kNanToken;
  const auto neighbour = Prompt(Tokens(5), 30);
  const auto bad_prompt = Prompt(bad, 5);
  const auto bad_token = Start(Prefilled(Tokens(6, 50)), kNanToken, 20);
  EXPECT_TRUE(absl::IsInternal(Collect(*bad_token).error));
  EXPECT_TRUE(absl::IsInternal(Collect(*bad_prompt).error));
  const DecodeOutcome outcome = Collect(*neighbour);
  EXPECT_EQ(outcome.ids, expected.ids);
  EXPECT_EQ(outcome.logprobs, expected.logprobs);
}

// A bit that flips in a page that many share costs one request.
TEST_F(DecodeLoopTest, APoisonedPageFailsOneRequestOnly) {
  const std::vector<int32_t> prompt = Tokens(130);
  const DecodeOutcome expected = Collect(*Prompt(prompt, 5));
  const auto lease = Reserve(prompt);
  ASSERT_EQ(lease->kv.cached_tokens, 128);
  *node_.node.pool().Pages(lease->kv).Token(0, 5) = kv::kPoison;
  EXPECT_TRUE(absl::IsInternal(Collect(**node_.loop.Prompt(lease, Next(5))).error));
  const auto again = Reserve(prompt);
  EXPECT_EQ(again->kv.cached_tokens, 0);
  EXPECT_EQ(Collect(**node_.loop.Prompt(again, Next(5))).ids, expected.ids);
}

TEST_F(DecodeLoopTest, WhoSeesTheEndSeesAllStepsCounted) {
  for (int i = 1; i <= 50; ++i) {
    Collect(*Prompt(Tokens(2), 1));
    ASSERT_EQ(node_.metrics.steps.Value(), i);
    ASSERT_EQ(node_.metrics.prompt_tokens.Value(), 2 * i);
  }
}

TEST_F(DecodeLoopTest, RemoveGivesThePagesBack) {
  const auto lease = Reserve(Tokens(5));
  const auto stream = *node_.loop.Prompt(lease, Next(190));
  ASSERT_TRUE(stream->Next(kHang));
  node_.loop.Remove(stream);
  EXPECT_FALSE(node_.leases.Check(*lease).ok());
  EXPECT_EQ(node_.node.pool().stats().leased_pages, 0);
}

TEST_F(DecodeLoopTest, BadRequestsAreRefused) {
  const auto lease = Prefilled(Tokens(5));
  const auto message = [](const absl::StatusOr<std::shared_ptr<TokenStream>>& started) {
    EXPECT_TRUE(absl::IsInvalidArgument(started.status()));
    return std::string(started.status().message());
  };
  DecodeLoop& loop = node_.loop;
  EXPECT_THAT(message(loop.Start(lease, {-1, 5}, Next(1))), HasSubstr("token -1"));
  EXPECT_THAT(message(loop.Start(lease, {1, 4}, Next(1))), HasSubstr("position 4"));
  EXPECT_THAT(message(loop.Start(lease, {1, 5}, Next(0))), HasSubstr("max_tokens 0"));
  EXPECT_THAT(message(loop.Start(lease, {1, 5}, Next(201))), HasSubstr("max_tokens 201"));
  EXPECT_THAT(message(loop.Start(Reserve(Tokens(5)), {1, 5}, Next(1))), HasSubstr("0 are valid"));
  EXPECT_THAT(message(loop.Prompt(Reserve({7, 200}), Next(1))), HasSubstr("token 200"));
  EXPECT_THAT(message(loop.Start(lease, {1, 5}, Next(1, 7))), HasSubstr("index 7"));
  EXPECT_THAT(message(loop.Prompt(Reserve({7, 8}), Next(1, 3))), HasSubstr("index 3"));
  Continuation biased = Next(1);
  biased.sampling.logit_bias = {{200, 1.0f}};
  EXPECT_THAT(message(loop.Start(lease, {1, 5}, biased)), HasSubstr("logit_bias of token 200"));
}

TEST_F(DecodeLoopTest, ALeaseThatLostItsPagesCannotBeStarted) {
  const auto lease = Prefilled(Tokens(5));
  node_.leases.Release(*lease);
  EXPECT_TRUE(absl::IsAborted(node_.loop.Start(lease, {1, 5}, Next(1)).status()));
  EXPECT_TRUE(absl::IsAborted(node_.loop.Prompt(lease, Next(1)).status()));
}

TEST(DecodeLoopPreemptionTest, AYoungerSequenceEndsWithAbortedAndTheOlderFinishes) {
  EngineNode alone;
  DecodeNode node({.max_batch = 4, .max_chunk = 16, .page_count = 4, .reserve_ahead = 1});
  const auto prompt = [&](int32_t token, uint64_t arrival) {
    const auto lease = *node.leases.Reserve({.tokens = {token}, .max_tokens = 150, .arrival = arrival});
    return *node.loop.Prompt(lease, {.max_tokens = 150});
  };
  node.gate.SetClosed(true);  // or the younger may end before the older begins
  const auto younger = prompt(60, 2);
  const auto older = prompt(50, 1);
  node.gate.SetClosed(false);
  const DecodeOutcome first = Collect(*older);
  const DecodeOutcome second = Collect(*younger);
  EXPECT_EQ(first.ids, RunAlone(alone, {50}, 150, {}).ids);
  EXPECT_TRUE(absl::IsAborted(second.error)) << "150 + 150 tokens do not fit 256";
  EXPECT_THAT(std::string(second.error.message()), HasSubstr("preempted: "));
  const std::vector<int32_t> whole = RunAlone(alone, {60}, 150, {}).ids;
  EXPECT_EQ(second.ids, std::vector<int32_t>(whole.begin(), whole.begin() + static_cast<int64_t>(second.ids.size())));
  EXPECT_EQ(node.leases.preemptions(), 1);
}

// Arrivals begin anew with the router, so a request may meet one of the same number: whoever has lost its pages is not
// in the step. Here the older one, which is enqueued last, needs its second page while the younger does not need any.
TEST(DecodeLoopPreemptionTest, OfTwoThatArrivedAlikeOneIsPreemptedBeforeTheStep) {
  EngineNode alone;
  DecodeNode node({.max_batch = 4, .max_chunk = 16, .page_count = 2, .reserve_ahead = 1});
  const std::vector<int32_t> older_prompt = {50, 51, 52, 53, 54, 55, 56, 57};
  const auto reserve = [&](const std::vector<int32_t>& tokens) {
    return *node.leases.Reserve({.tokens = tokens, .max_tokens = 100, .arrival = 1});
  };
  const auto first = reserve(older_prompt);
  const auto second = reserve({60});
  node.gate.SetClosed(true);
  const auto younger = *node.loop.Prompt(second, {.max_tokens = 100});
  const auto older = *node.loop.Prompt(first, {.max_tokens = 100});
  node.gate.SetClosed(false);
  EXPECT_EQ(Collect(*older).ids, RunAlone(alone, older_prompt, 100, {}).ids);
  EXPECT_TRUE(absl::IsAborted(Collect(*younger).error));
  EXPECT_FALSE(younger->Next(std::chrono::milliseconds(0)).has_value()) << "after an end nothing follows";
}

// A lease in the prefill process counts too; the older sequence waits until its writer has let go.
TEST(DecodeLoopPreemptionTest, ALeaseInPrefillIsRevokedAndItsPagesWaitedFor) {
  EngineNode alone;
  DecodeNode node({.max_batch = 4, .max_chunk = 16, .page_count = 2, .reserve_ahead = 1});
  const auto in_prefill = *node.leases.Reserve({.tokens = {60, 61}, .max_tokens = 50, .arrival = 2});
  auto writer = node.node.Writer(in_prefill->kv);
  const auto older = *node.leases.Reserve({.tokens = {50}, .max_tokens = 100, .arrival = 1});
  const auto stream = *node.loop.Prompt(older, {.max_tokens = 100});
  while (!writer->revoked()) std::this_thread::yield();
  writer.reset();
  EXPECT_EQ(Collect(*stream).ids, RunAlone(alone, {50}, 100, {}).ids);
  EXPECT_TRUE(absl::IsAborted(node.loop.Prompt(in_prefill, {.max_tokens = 1}).status()));
}

class LentDeviceTest : public DecodeLoopTest {
 protected:
  const std::string path_ = ::testing::TempDir() + "decode-loop-" + std::to_string(getpid()) + ".lock";
  const std::unique_ptr<LentDevice> device_ = LentDevice::Lend(path_).value();
  std::shared_ptr<TokenStream> Prompt(DecodeNode& node) {
    const std::vector<int32_t> tokens = Tokens(5);
    const auto lease = node.leases.Reserve({.tokens = tokens, .max_tokens = 200, .arrival = 1}).value();
    return node.loop.Prompt(lease, Next(3)).value();
  }
  std::shared_ptr<const DeviceLoan> BorrowSoon() {
    while (true) {
      if (auto loan = DeviceLoan::Borrow(path_)) return loan;
      std::this_thread::yield();
    }
  }
};

TEST_F(LentDeviceTest, WaitsUntilTheDeviceIsGivenBackAndReturnsItWithoutWork) {
  DecodeNode node({.lent_device = device_.get()});
  for (int i = 0; i < 2; ++i) {
    auto loan = BorrowSoon();
    const auto stream = Prompt(node);
    while (!loan->wanted()) std::this_thread::yield();
    EXPECT_FALSE(stream->Next(std::chrono::milliseconds(20)).has_value());
    loan.reset();
    EXPECT_EQ(Collect(*stream).ids.size(), 3u);
    node.loop.Remove(stream);
  }
  EXPECT_GT(node.metrics.device_wait_seconds.Value(), 0);
}

TEST_F(LentDeviceTest, ARequestThatIsGivenUpWhileItWaitsWantsNothingMore) {
  DecodeNode node({.lent_device = device_.get()});
  const auto loan = BorrowSoon();
  const auto stream = Prompt(node);
  while (!loan->wanted()) std::this_thread::yield();
  node.loop.Remove(stream);
  while (loan->wanted()) std::this_thread::yield();
}

TEST_F(LentDeviceTest, ABorrowerThatKeepsItIsNotWaitedForForever) {
  DecodeNode node({.lent_device = device_.get(), .device_patience = std::chrono::milliseconds(1)});
  const auto loan = BorrowSoon();
  const auto stream = Prompt(node);
  EXPECT_EQ(Collect(*stream).ids.size(), 3u);
  node.loop.Remove(stream);
}

}  // namespace
}  // namespace moestro::decode
