// Random requests against a decode loop that has far too few pages for them: prompts in decode and in prefill, shared
// prefixes, cancellations, preemptions. Every request must give the tokens that it gives alone.
#include <gtest/gtest.h>

#include <condition_variable>
#include <limits>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tests/services/decode/decode_fixture.h"

namespace moestro::decode {
namespace {

struct Job {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
  Sampling sampling;
  bool by_prefill = false;
  int64_t cancel_after = -1;  // emitted tokens; -1: runs to its end
  bool ignore_cache = false;
};

std::vector<Job> RandomJobs(int count) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<std::vector<int32_t>> prefixes(3);
  for (auto& prefix : prefixes) {
    for (int i = 0; i < 140; ++i) prefix.push_back(below(200));
  }
  std::vector<Job> jobs(static_cast<size_t>(count));
  for (Job& job : jobs) {
    const auto& prefix = prefixes[static_cast<size_t>(below(3))];
    job.prompt.assign(prefix.begin(), prefix.begin() + below(2) * (1 + below(139)));
    for (int i = below(40); i >= 0; --i) job.prompt.push_back(below(200));
    job.max_tokens = 1 + below(90);
    if (below(2) == 0) job.sampling = {.temperature = 0.8f, .top_p = 0.9f, .top_k = 20, .seed = random()};
    job.by_prefill = below(3) == 0;
    if (below(5) == 0) job.cancel_after = below(static_cast<int>(job.max_tokens));
    job.ignore_cache = below(8) == 0;
  }
  return jobs;
}

// What the router does: a line in order of arrival whose head reserves; ABORTED means reserve again and go on.
class Clients {
 public:
  Clients(DecodeNode& decode, EngineNode& prefill) : decode_(decode), prefill_(prefill) {}

  DecodeOutcome Run(const Job& job) {
    const uint64_t arrival = Arrive();
    DecodeOutcome outcome;
    std::vector<int32_t> tokens = job.prompt;
    while (true) {
      const auto lease = Reserve(job, tokens, arrival);
      const absl::Status status = Attempt(job, lease, tokens, outcome);
      decode_.leases.Release(*lease);
      if (!absl::IsAborted(status)) {
        outcome.error = status;
        return outcome;
      }
      const std::lock_guard lock(mutex_);
      line_.insert(arrival);
    }
  }

 private:
  uint64_t Arrive() {
    const std::lock_guard lock(mutex_);
    line_.insert(++last_arrival_);
    return last_arrival_;
  }

  std::shared_ptr<Lease> Reserve(const Job& job, const std::vector<int32_t>& tokens, uint64_t arrival) {
    const auto emitted = static_cast<int64_t>(tokens.size() - job.prompt.size());
    std::unique_lock lock(mutex_);
    while (true) {
      moved_.wait(lock, [&] { return *line_.begin() == arrival; });
      auto lease = decode_.leases.Reserve({.tokens = tokens,
                                           .max_tokens = job.max_tokens - emitted,
                                           .arrival = arrival,
                                           .ignore_cache = job.ignore_cache});
      if (lease.ok()) {
        line_.erase(arrival);
        moved_.notify_all();
        return *lease;
      }
      EXPECT_TRUE(absl::IsResourceExhausted(lease.status())) << lease.status();
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }

  // OK: finished or cancelled.
  absl::Status Attempt(const Job& job, const std::shared_ptr<Lease>& lease, std::vector<int32_t>& tokens,
                       DecodeOutcome& outcome) {
    absl::StatusOr<std::shared_ptr<TokenStream>> stream = absl::InternalError("not started");
    const auto next = [&] {
      const auto emitted = static_cast<int64_t>(tokens.size() - job.prompt.size());
      return Continuation{
          .index = static_cast<uint64_t>(emitted), .max_tokens = job.max_tokens - emitted, .sampling = job.sampling};
    };
    const auto emit = [&](const Token& token) {
      outcome.ids.push_back(token.id);
      outcome.logprobs.push_back(token.logprob);
      tokens.push_back(token.id);
    };
    const auto cancelled = [&] { return std::ssize(outcome.ids) == job.cancel_after; };
    if (job.by_prefill) {
      const absl::StatusOr<Token> first = Prefill(lease->kv, tokens, job.sampling, next().index);
      if (!first.ok()) return first.status();
      const FirstToken first_token{first->id, static_cast<int64_t>(tokens.size())};
      emit(*first);
      if (cancelled() || next().max_tokens == 0) return absl::OkStatus();
      stream = decode_.loop.Start(lease, first_token, next());
    } else {
      stream = decode_.loop.Prompt(lease, next());
    }
    if (!stream.ok()) return stream.status();
    while (!cancelled()) {
      const auto event = (*stream)->Next(kHang);
      if (!event) return absl::DeadlineExceededError("no event");
      if (const auto* token = std::get_if<Token>(&*event)) emit(*token);
      if (const auto* error = std::get_if<absl::Status>(&*event)) return *error;
      if (std::holds_alternative<FinishReason>(*event)) break;
    }
    decode_.loop.Remove(*stream);
    return absl::OkStatus();
  }

  using FirstToken = DecodeLoop::FirstToken;

  absl::StatusOr<Token> Prefill(const KvLease& lease, const std::vector<int32_t>& tokens, const Sampling& sampling,
                                uint64_t index) {
    const std::lock_guard lock(prefill_mutex_);
    const auto writer = decode_.node.TryWriter(lease);
    if (!writer.ok()) return writer.status();
    return PrefillInto(prefill_.engine(), **writer, tokens, sampling, index);
  }

  DecodeNode& decode_;
  EngineNode& prefill_;
  std::mutex prefill_mutex_;
  std::mutex mutex_;
  std::condition_variable moved_;  // line_ has another head
  std::set<uint64_t> line_;        // guarded by mutex_: arrivals that wait for pages
  uint64_t last_arrival_ = 0;      // guarded by mutex_
};

TEST(DecodeLoadTest, EveryRequestGivesItsOwnTokens) {
  const std::vector<Job> jobs = RandomJobs(120);
  EngineNode alone(512);
  std::vector<DecodeOutcome> expected;
  for (const Job& job : jobs) expected.push_back(RunAlone(alone, job.prompt, job.max_tokens, job.sampling));

  DecodeNode decode({.max_batch = 4, .max_chunk = 24, .page_count = 9, .reserve_ahead = 1});
  Clients clients(decode, alone);
  std::vector<DecodeOutcome> outcomes(jobs.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (size_t job = next++; job < jobs.size(); job = next++) outcomes[job] = clients.Run(jobs[job]);
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(outcomes[i].error.ok()) << i << ": " << outcomes[i].error;
    const bool cancelled = jobs[i].cancel_after >= 0;
    const auto length = static_cast<size_t>(cancelled ? jobs[i].cancel_after : jobs[i].max_tokens);
    expected[i].ids.resize(length);
    expected[i].logprobs.resize(length);
    EXPECT_EQ(outcomes[i].ids, expected[i].ids) << i;
    EXPECT_EQ(outcomes[i].logprobs, expected[i].logprobs) << i;
  }
  const kv::KvPool::Stats stats = decode.node.pool().stats();
  EXPECT_EQ(stats.free_pages + stats.cached_pages, stats.total_pages);
  EXPECT_EQ(stats.leases, 0);
  RecordProperty("preemptions", std::to_string(decode.leases.preemptions()));
  EXPECT_GT(decode.leases.preemptions(), 5);
  EXPECT_GT(stats.prefix_hit_tokens, 0);
  EXPECT_GT(stats.evicted_pages, 0);
}

// As with --mode throughput: all at once, in steps of any length.
TEST(DecodeLoadTest, ManySequencesInOneBatchGiveTheirOwnTokens) {
  constexpr size_t kSequences = 96;
  EngineNode alone(512);
  DecodeNode decode({.max_batch = kSequences,
                     .max_chunk = 256,
                     .bound_seconds = std::numeric_limits<double>::infinity(),
                     .page_count = 256});
  std::vector<Job> jobs = RandomJobs(kSequences);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto lease = decode.leases.Reserve(
        {.tokens = jobs[i].prompt, .max_tokens = jobs[i].max_tokens, .arrival = i + 1, .ignore_cache = true});
    ASSERT_TRUE(lease.ok()) << lease.status();
    const Continuation next{.max_tokens = jobs[i].max_tokens, .sampling = jobs[i].sampling};
    streams.push_back(decode.loop.Prompt(*lease, next).value());
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    const DecodeOutcome outcome = Collect(*streams[i]);
    const DecodeOutcome expected = RunAlone(alone, jobs[i].prompt, jobs[i].max_tokens, jobs[i].sampling);
    EXPECT_EQ(outcome.ids, expected.ids) << i;
    EXPECT_EQ(outcome.logprobs, expected.logprobs) << i;
    EXPECT_EQ(outcome.reason, FinishReason::kLength) << i << ": " << outcome.error;
  }
  EXPECT_EQ(decode.leases.preemptions(), 0);
}

}  // namespace
}  // namespace moestro::decode
