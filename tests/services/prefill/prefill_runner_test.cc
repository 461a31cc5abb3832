#include "services/prefill/prefill_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "common/platform/numa.h"
#include "tests/support/engine_node.h"

namespace moestro::prefill {
namespace {

absl::Status Never() { return absl::OkStatus(); }

std::vector<int32_t> Tokens(int count, int seed = 3) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), seed);
  for (int32_t& id : ids) id = id * 7 % 50;
  return ids;
}

class PrefillRunnerTest : public testing::Test {
 protected:
  static MlaFormPolicy Absorbed() { return {.choice = MlaFormChoice::kAbsorbed}; }

  PrefillJob Job(int tokens) const {
    PrefillJob job;
    job.token_ids = Tokens(tokens);
    job.prompt_tokens = tokens;
    return job;
  }
  Token Run(PrefillRunner& runner, const PrefillJob& job, const KvLease& lease) {
    const auto writer = node_.Writer(lease);
    return **runner.Run(job, *writer, Never, {});
  }

  EngineNode node_{/*max_rows=*/16};
  PrefillRunner runner_{node_.engine(), node_.workers(), Absorbed()};
};

TEST_F(PrefillRunnerTest, PublishesEveryChunkAndSamples) {
  const KvLease lease = *node_.pool().Reserve({.capacity = 100});
  const auto writer = node_.Writer(lease);
  std::vector<int64_t> done;
  const PrefillEvents events{.on_progress =
                                 [&](int64_t tokens, int64_t total) {
                                   EXPECT_EQ(total, 40);
                                   EXPECT_EQ(node_.pool().ValidTokens(lease), tokens);
                                   done.push_back(tokens);
                                 },
                             .on_score = {}};
  const auto token = runner_.Run(Job(40), *writer, Never, events);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_THAT(done, testing::ElementsAre(16, 32, 40));
  EXPECT_TRUE(token->has_value());
}

TEST_F(PrefillRunnerTest, ResumedPromptGivesTheSameToken) {
  const KvLease whole = *node_.pool().Reserve({.capacity = 100});
  const Token expected = Run(runner_, Job(40), whole);

  const KvLease lease = *node_.pool().Reserve({.capacity = 100});
  int layers = 0;
  const auto stop_in_second_chunk = [&] {
    return ++layers > node_.spec().num_layers ? absl::CancelledError("killed here") : absl::OkStatus();
  };
  {
    const auto writer = node_.Writer(lease);
    EXPECT_TRUE(absl::IsCancelled(runner_.Run(Job(40), *writer, stop_in_second_chunk, {}).status()));
  }
  EXPECT_EQ(node_.pool().ValidTokens(lease), 16);
  const Token resumed = Run(runner_, Job(40), lease);
  EXPECT_EQ(resumed.id, expected.id);
  EXPECT_EQ(resumed.logprob, expected.logprob);
  // Everything is valid now: what is left to do is the last token's logits.
  EXPECT_EQ(Run(runner_, Job(40), lease).logprob, expected.logprob);
}

TEST_F(PrefillRunnerTest, ContinuationUsesTheFormAndIndexThatDecodeUses) {
  // A prompt in the un-absorbed form and tokens after it in the absorbed one, whatever the chunks.
  PrefillJob job = Job(30);
  job.prompt_tokens = 20;
  job.sampling = {.temperature = 1, .top_p = 1, .top_k = 0, .seed = 5};
  PrefillRunner unabsorbed(node_.engine(), node_.workers(), {.choice = MlaFormChoice::kUnabsorbed});
  const Token once = Run(unabsorbed, job, *node_.pool().Reserve({.capacity = 64}));
  PrefillJob prompt = job;
  prompt.token_ids.resize(20);
  const KvLease lease = *node_.pool().Reserve({.capacity = 64});
  Run(unabsorbed, prompt, lease);
  const Token twice = Run(unabsorbed, job, lease);
  EXPECT_EQ(once.id, twice.id);
  EXPECT_EQ(once.logprob, twice.logprob);
}

TEST_F(PrefillRunnerTest, ScoresEveryPosition) {
  PrefillJob job = Job(40);
  job.score_top = 2;
  const KvLease lease = *node_.pool().Reserve({.capacity = 64});
  const auto writer = node_.Writer(lease);
  std::vector<ScoredToken> scores;
  const PrefillEvents events{.on_progress = {}, .on_score = [&](ScoredToken score) { scores.push_back(score); }};
  const auto token = runner_.Run(job, *writer, Never, events);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_FALSE(token->has_value());
  ASSERT_EQ(scores.size(), 40u);
  EXPECT_FALSE(scores[0].logprob.has_value());
  for (size_t i = 1; i < scores.size(); ++i) {
    EXPECT_EQ(scores[i].id, job.token_ids[i]);
    ASSERT_EQ(scores[i].top.size(), 2u);
    EXPECT_LE(*scores[i].logprob, scores[i].top[0].logprob);
  }
}

// Two own threads, and one on each CPU of the machine (which here is also the process's) while decode computes nothing.
// In the third prompt decode begins, and in the fourth it ends.
TEST_F(PrefillRunnerTest, CoresFollowTheWorkWithTheSameBits) {
  const std::vector<int> cpus = AllowedCpus();
  const int all = 2 + static_cast<int>(cpus.size());
  EngineNode node(/*max_rows=*/16, /*nan_token=*/-1, /*page_count=*/64,
                  {.threads = 2, .domains = 1, .pin = true, .lent_cpus = cpus});
  const std::string path = ::testing::TempDir() + "prefill-runner-cores-" + std::to_string(getpid());
  WorkerPool decode_pool(1);
  const auto decode = SharedCores::Open(path, SharedCores::Role::kDecode, decode_pool, {.follow_quota = false}).value();
  const auto cores =
      SharedCores::Open(path, SharedCores::Role::kPrefill, node.workers(), {.follow_quota = false}).value();
  unlink(path.c_str());
  PrefillRunner runner(node.engine(), node.workers(), Absorbed(), {}, cores.get());
  std::vector<float> logprobs;
  std::vector<int> workers;
  for (const int prompt : {0, 1, 2, 3}) {
    PrefillJob job = Job(40);
    job.score_top = 0;
    if (prompt == 1) decode->Begin();
    if (prompt == 2) decode->End();
    const auto writer = node.Writer(*node.pool().Reserve({.capacity = 64}));
    const PrefillEvents events{.on_progress =
                                   [&](int64_t done, int64_t) {
                                     if (prompt == 2 && done == 16) decode->Begin();
                                     if (prompt == 3 && done == 16) decode->End();
                                   },
                               .on_workers = [&](int count) { workers.push_back(count); },
                               .on_score = [&](ScoredToken score) { logprobs.push_back(score.logprob.value_or(0)); }};
    ASSERT_TRUE(runner.Run(job, *writer, Never, events).ok());
    EXPECT_EQ(workers.front(), prompt % 2 == 0 ? all : 2);
    EXPECT_EQ(workers.back(), prompt % 3 == 0 ? all : 2);
    workers.clear();
  }
  ASSERT_EQ(logprobs.size(), 4u * 40);
  for (size_t i = 40; i < logprobs.size(); ++i) ASSERT_EQ(logprobs[i], logprobs[i % 40]) << i;
  // Between prompts prefill computes nothing.
  EXPECT_EQ(decode->Follow(), 1);
}

TEST_F(PrefillRunnerTest, BeatsBetweenLayersAndRestsAfterwards) {
  const auto later = [] { return Heartbeat::Clock::now() + std::chrono::hours(1); };
  const KvLease lease = *node_.pool().Reserve({.capacity = 64});
  const auto writer = node_.Writer(lease);
  const auto heartbeat = runner_.heartbeat();
  std::vector<Heartbeat::Clock::duration> silences;
  const auto begin = later();
  const auto between_layers = [&] {
    EXPECT_GT(heartbeat->Silence(later()), std::chrono::minutes(59));
    silences.push_back(heartbeat->Silence(begin));
    return absl::OkStatus();
  };
  ASSERT_TRUE(runner_.Run(Job(40), *writer, between_layers, {}).ok());
  EXPECT_GE(std::ssize(silences), 3 * node_.spec().num_layers);
  EXPECT_TRUE(std::ranges::is_sorted(silences, std::greater())) << "beats have gone on";
  EXPECT_LT(silences.back(), silences.front());
  EXPECT_EQ(heartbeat->Silence(later()), std::chrono::hours(0));
}

TEST_F(PrefillRunnerTest, RenewsItsLeaseWithEveryLayer) {
  const KvLease lease = *node_.pool().Reserve({.capacity = 64});
  const auto writer = node_.Writer(lease);
  const uint32_t before = node_.pool().Renewals(lease);
  int64_t layers = 0;
  ASSERT_TRUE(runner_.Run(Job(40), *writer, Never, {.on_progress = {}, .on_layer = [&] { ++layers; }}).ok());
  EXPECT_EQ(layers, 3 * node_.spec().num_layers) << "40 tokens in chunks of 16";
  EXPECT_EQ(node_.pool().Renewals(lease), before + layers);
}

TEST_F(PrefillRunnerTest, APromptWithoutNumbersMarksItsLeaseAsFailed) {
  EngineNode node(/*max_rows=*/16, /*nan_token=*/3);
  PrefillRunner runner(node.engine(), node.workers(), Absorbed());
  PrefillJob job = Job(70);
  for (int32_t& id : job.token_ids) id = 10 + id % 20;
  job.token_ids.back() = 3;
  const KvLease lease = *node.pool().Reserve({.tokens = job.token_ids, .capacity = 70});
  EXPECT_TRUE(absl::IsInternal(runner.Run(job, *node.Writer(lease), Never, {}).status()));
  ASSERT_EQ(node.pool().ValidTokens(lease), 64) << "a whole page";
  node.pool().Cache(lease, job.token_ids);
  node.pool().Release(lease);
  EXPECT_EQ(node.pool().stats().cached_pages, 0);
}

TEST_F(PrefillRunnerTest, RevokedLeaseAborts) {
  const KvLease lease = *node_.pool().Reserve({.capacity = 64});
  const auto writer = node_.Writer(lease);
  const auto revoke = [&] {
    node_.pool().Release(lease);
    return absl::OkStatus();
  };
  EXPECT_TRUE(absl::IsAborted(runner_.Run(Job(40), *writer, revoke, {}).status()));
}

// Freed pages may hold anything, also what no computation survives. That is no error of the prompt.
TEST_F(PrefillRunnerTest, AnErrorAfterTheLeaseWasRevokedIsNotThePrompts) {
  EngineNode node(/*max_rows=*/16, /*nan_token=*/3);
  PrefillRunner runner(node.engine(), node.workers(), Absorbed());
  PrefillJob job = Job(10);
  job.token_ids.back() = 3;
  for (int64_t revoked_before = 0; revoked_before < node.spec().num_layers; ++revoked_before) {
    const KvLease lease = *node.pool().Reserve({.capacity = 64});
    const auto writer = node.Writer(lease);
    int64_t layer = 0;
    bool revoked = false;
    const auto revoke = [&] {
      if (layer++ == revoked_before) {
        node.pool().Release(lease);
        revoked = true;
      }
      return absl::OkStatus();
    };
    const absl::Status status = runner.Run(job, *writer, revoke, {}).status();
    EXPECT_EQ(status.code(), revoked ? absl::StatusCode::kAborted : absl::StatusCode::kInternal) << status;
    if (!revoked) node.pool().Release(lease);
  }
}

TEST_F(PrefillRunnerTest, BadJobsAreRefused) {
  const KvLease lease = *node_.pool().Reserve({.capacity = 64});
  const auto writer = node_.Writer(lease);
  const auto message = [&](const PrefillJob& job) {
    const auto result = runner_.Run(job, *writer, Never, {});
    EXPECT_TRUE(absl::IsInvalidArgument(result.status()));
    return std::string(result.status().message());
  };
  EXPECT_THAT(message(Job(0)), testing::HasSubstr("token_ids"));
  EXPECT_THAT(message(Job(65)), testing::HasSubstr("lease"));
  PrefillJob job = Job(4);
  job.prompt_tokens = 5;
  EXPECT_THAT(message(job), testing::HasSubstr("prompt_tokens"));
  job = Job(4);
  job.token_ids[2] = 1 << 30;
  EXPECT_THAT(message(job), testing::HasSubstr("1073741824"));
  job = Job(4);
  job.score_top = 101;
  EXPECT_THAT(message(job), testing::HasSubstr("score.top"));
  job = Job(4);
  job.sampling.temperature = -1;
  EXPECT_THAT(message(job), testing::HasSubstr("temperature"));
}

}  // namespace
}  // namespace moestro::prefill
