// A node of fakes: a clock that runs only when someone sleeps, a model that is a hash, and roles that die on command.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/telemetry/metrics.h"
#include "services/router/request/request_life.h"

namespace moestro::testing {

class FakeRequestClock final : public router::RequestClock {
 public:
  TimePoint Now() override { return now_; }
  void SleepFor(Duration duration) override {
    Advance(duration);
    if (on_sleep) on_sleep();
  }
  // In steps, between which something may happen.
  void WaitFor(Condition& /*condition*/, MutexLock& lock, Duration duration,
               absl::FunctionRef<bool()> ready) override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const TimePoint end = Now() + duration; Now() < end && !ready();) {
      lock.unlock();
      SleepFor(std::min<Duration>(end - Now(), std::chrono::milliseconds(10)));
      lock.lock();
    }
  }
  void Advance(Duration duration) { now_ = now_.load() + duration; }
  std::function<void()> on_sleep;

 private:
  std::atomic<TimePoint> now_{TimePoint(std::chrono::hours(1))};
};

// What a node serves and its requests are for.
inline constexpr char kWeights[] = "weights";

// Sends every prompt to prefill.
inline constexpr router::PathSettings kAllToPrefill{.chunked_below_tokens = 0};

// Prefill, decode and the client of one request at a time. Each call that crosses a process boundary is a step; a fault
// is tied to the number of a step and happens just before it takes effect.
class FakeNode : public router::PrefillPeer, public router::DecodePeer {
 public:
  // kLeaseRevoked: it was not started in time. kPreempted: an older request needed its pages.
  enum class Fault { kPrefillDies, kDecodeDies, kBothDie, kLeaseRevoked, kPreempted, kClientLeaves, kPrefillDrains };

  explicit FakeNode(const router::PathSettings& settings = kAllToPrefill)
      : registry("router"),
        metrics(registry),
        roles([this](router::Role role) { return IsUp(role) ? router::Life::kUp : router::Life::kAway; },
              [](router::Role) {}, clock, std::chrono::seconds(10)),
        queue(4),
        policy(settings, clock) {
    spdlog::set_level(spdlog::level::off);
    roles.Poll();
  }

  router::RouterEnvironment Environment() { return {roles, queue, policy, metrics, clock}; }
  router::CallPeers Call() {
    return {.prefill = *this,
            .decode = *this,
            .check = [this] { return client_here ? absl::OkStatus() : absl::CancelledError("client left"); },
            .cancel = [this] { client_here = false; },
            .tenant = tenant};
  }

  // What a healthy node generates: depends on the tokens so far, the seed and the index only.
  static Token Model(const std::vector<int32_t>& tokens, const Sampling& sampling, uint64_t index) {
    uint64_t hash = sampling.seed * 0x9e3779b97f4a7c15u + index;
    for (const int32_t token : tokens) hash = (hash ^ static_cast<uint64_t>(token)) * 0x100000001b3u;
    return {static_cast<int32_t>(hash >> 33) % 1000 + 10, -0.5f * static_cast<float>(index)};
  }

  // PrefillPeer
  absl::StatusOr<router::PrefilledPrompt> Run(const router::PrefillRequest& job,
                                              router::PrefillProgressFn progress) override {
    const std::vector<int32_t> tokens(job.tokens.begin(), job.tokens.end());
    ++prefill_runs;
    whole_machine = job.whole_machine;
    way = job.way;
    way_required = job.way_required;
    MOE_RETURN_IF_ERROR(Step(router::Role::kPrefill));
    if (prefill_refuses) return absl::FailedPreconditionError("prefill: the pool has another layout");
    const auto total = static_cast<uint32_t>(tokens.size());
    while (true) {
      Pages* pages = Find(job.lease.id);
      if (pages == nullptr || !pages->end.ok()) return absl::AbortedError("prefill: the lease was revoked");
      EXPECT_EQ(pages->wanted, tokens);
      if (pages->valid.size() >= tokens.size()) break;
      pages->valid.push_back(tokens[pages->valid.size()]);
      ++prefilled_tokens;
      const auto valid = static_cast<uint32_t>(pages->valid.size());
      MOE_RETURN_IF_ERROR(Step(router::Role::kPrefill));  // decode may die in it, and the pages with it
      MOE_RETURN_IF_ERROR(progress({.done_tokens = valid, .total_tokens = total}));
    }
    EXPECT_EQ(Find(job.lease.id)->valid, tokens);
    return router::PrefilledPrompt{Model(tokens, job.sampling, tokens.size() - job.prompt_tokens), fp8_activations};
  }

  absl::Status Score(const router::PrefillRequest& job, uint32_t top, router::PrefillProgressFn progress,
                     router::ScoresFn scores) override {
    whole_machine = job.whole_machine;
    way = job.way;
    way_required = job.way_required;
    if (prefill_refuses) return absl::FailedPreconditionError("prefill: the pool has another layout");
    for (size_t i = 0; i < job.tokens.size(); ++i) {
      MOE_RETURN_IF_ERROR(Step(router::Role::kPrefill));
      const Pages* pages = Find(job.lease.id);
      if (pages == nullptr || !pages->end.ok()) return absl::AbortedError("prefill: the lease was revoked");
      EXPECT_TRUE(pages->valid.empty());
      MOE_RETURN_IF_ERROR(progress(
          {.done_tokens = static_cast<uint32_t>(i), .total_tokens = static_cast<uint32_t>(job.tokens.size())}));
      ScoredToken score{.id = job.tokens[i], .logprob = std::nullopt, .top = {}};
      if (i > 0) score.logprob = -1.0f * static_cast<float>(i);
      score.top.resize(i > 0 ? top : 0);
      MOE_RETURN_IF_ERROR(scores({score}));
    }
    return absl::OkStatus();
  }

  // DecodePeer
  std::unique_ptr<router::DecodeSession> OpenSession() override { return std::make_unique<Session>(*this); }

  bool IsUp(router::Role role) const { return clock.Now() >= down_until_[static_cast<size_t>(role)]; }
  void Kill(router::Role role) {
    down_until_[static_cast<size_t>(role)] = clock.Now() + downtime;
    if (role != router::Role::kDecode) return;
    pages_.clear();
    cache.clear();
  }

  size_t leases() const { return pages_.size(); }
  uint64_t reserved() const { return reserved_; }

  mutable FakeRequestClock clock;
  MetricsRegistry registry;
  router::RouterMetrics metrics;
  const std::shared_ptr<router::Tenant> tenant = std::make_shared<router::Tenant>("anonymous", registry);
  router::RoleMonitor roles;
  router::AdmissionQueue queue;
  router::PathPolicy policy;

  std::map<int, Fault> faults;  // by number of the step, from 1
  router::RequestClock::Duration downtime = std::chrono::seconds(3);
  std::function<void()> on_step;
  bool client_here = true;
  bool fp8_activations = false;  // of prefill
  bool prefill_refuses = false;  // it is of another version than decode
  std::string decode_weights = kWeights;
  uint32_t max_batch = 0;
  router::RequestClock::Duration place_wait{0};  // that decode's batch is full for a sequence
  uint64_t capacity = 1000;                      // tokens of the pool
  uint64_t taken = 0;                            // of these, by other requests
  // What the prefix cache holds; with keeps_prefixes also what ended sessions leave.
  std::vector<std::vector<int32_t>> cache;
  bool keeps_prefixes = false;
  int steps = 0;
  int prefill_runs = 0;
  int prefilled_tokens = 0;      // by prefill
  bool whole_machine = false;    // what prefill was told last
  std::optional<PromptWay> way;  // the same
  bool way_required = false;     // the same
  int decode_starts = 0;
  int decode_prompts = 0;
  int chunked_tokens = 0;                 // prompt tokens that decode computed
  std::vector<uint64_t> arrivals;         // one for every reservation granted
  std::vector<std::string> cache_scopes;  // the same

 private:
  struct Pages {
    std::vector<int32_t> wanted;  // Reserve's tokens
    std::vector<int32_t> valid;
    uint32_t tokens = 0;
    absl::Status end = absl::OkStatus();  // why decode has ended the session
  };

  class Session final : public router::DecodeSession {
   public:
    explicit Session(FakeNode& node) : node_(node) {}
    ~Session() override {
      if (Pages* pages = node_.Find(id_)) {
        node_.reserved_ -= pages->tokens;
        if (node_.keeps_prefixes) node_.cache.push_back(pages->valid);
      }
      node_.pages_.erase(id_);
    }
    absl::StatusOr<router::Reservation> Reserve(const router::ReserveRequest& request) override {
      EXPECT_FALSE(request.request_id.empty());
      const auto tokens = static_cast<uint32_t>(request.tokens.size()) + request.max_tokens;
      MOE_RETURN_IF_ERROR(node_.Step(router::Role::kDecode));
      if (request.fingerprint != node_.decode_weights) return absl::FailedPreconditionError("decode: other weights");
      if (tokens > node_.capacity) return absl::InvalidArgumentError("decode: never fits");
      if (node_.pages_.empty()) node_.reserved_ = 0;
      if (node_.reserved_ + tokens + node_.taken > node_.capacity)
        return absl::ResourceExhaustedError("decode: no pages now");
      node_.reserved_ += tokens;
      node_.arrivals.push_back(request.arrival);
      node_.cache_scopes.push_back(request.cache_scope);
      id_ = ++node_.last_lease_;
      Pages& pages = node_.pages_[id_];
      pages.tokens = tokens;
      pages.wanted.assign(request.tokens.begin(), request.tokens.end());
      if (!request.ignore_cache) pages.valid = node_.CachedPrefix(pages.wanted);
      return router::Reservation{.lease = {.pool = "pool", .id = id_, .cached_tokens = std::ssize(pages.valid)},
                                 .max_batch = node_.max_batch};
    }
    absl::Status Start(const router::DecodeStart& start) override {
      MOE_ASSIGN_OR_RETURN(const Pages* pages, Live());
      ++node_.decode_starts;
      EXPECT_EQ(pages->valid, pages->wanted);
      EXPECT_EQ(start.position, pages->valid.size());
      EXPECT_LE(start.position + 1 + start.max_tokens, pages->tokens);
      EXPECT_FLOAT_EQ(start.token.logprob, -0.5f * static_cast<float>(start.index));
      tokens_ = pages->wanted;
      tokens_.push_back(start.token.id);
      Begin(start.index + 1, start.max_tokens, start.sampling, start.stop_ids);
      return absl::OkStatus();
    }
    absl::Status Prompt(const router::DecodePrompt& prompt) override {
      MOE_ASSIGN_OR_RETURN(const Pages* pages, Live());
      ++node_.decode_prompts;
      EXPECT_LE(pages->wanted.size() + prompt.max_tokens, pages->tokens);
      tokens_ = pages->wanted;
      Begin(prompt.index, prompt.max_tokens, prompt.sampling, prompt.stop_ids);
      return absl::OkStatus();
    }
    absl::StatusOr<router::DecodeEvent> Next() override {
      if (!std::exchange(has_place_, true)) node_.clock.Advance(node_.place_wait);
      MOE_ASSIGN_OR_RETURN(Pages * pages, Live());
      EXPECT_TRUE(begun_);
      if (pages->valid.size() < pages->wanted.size()) return router::DecodeEvent(Chunk(*pages));
      if (left_ == 0) return router::DecodeEvent(FinishReason::kLength);
      --left_;
      const Token token = Model(tokens_, sampling_, index_++);
      if (std::ranges::find(stop_ids_, token.id) != stop_ids_.end()) return router::DecodeEvent(FinishReason::kStop);
      pages->valid = tokens_;
      tokens_.push_back(token.id);
      return router::DecodeEvent(token);
    }

    double waited_seconds() const override { return router::Seconds(node_.place_wait); }

    absl::Status GiveUp() override {
      EXPECT_FALSE(begun_);
      MOE_RETURN_IF_ERROR(Live().status());
      return absl::CancelledError("decode: the lease was not started");
    }

   private:
    // The pages, or why there are none any more.
    absl::StatusOr<Pages*> Live() {
      MOE_RETURN_IF_ERROR(node_.Step(router::Role::kDecode));
      Pages* pages = node_.Find(id_);
      if (pages == nullptr) return absl::UnavailableError("decode: Socket closed");
      MOE_RETURN_IF_ERROR(pages->end);
      return pages;
    }
    void Begin(uint64_t index, uint32_t max_tokens, const Sampling& sampling, const std::vector<int32_t>& stop_ids) {
      EXPECT_FALSE(begun_);
      begun_ = true;
      index_ = index;
      left_ = max_tokens;
      sampling_ = sampling;
      stop_ids_ = stop_ids;
    }
    PrefillProgress Chunk(Pages& pages) {
      pages.valid.push_back(pages.wanted[pages.valid.size()]);
      ++node_.chunked_tokens;
      return {.done_tokens = static_cast<uint32_t>(pages.valid.size()),
              .total_tokens = static_cast<uint32_t>(pages.wanted.size())};
    }

    FakeNode& node_;
    uint64_t id_ = 0;
    bool begun_ = false;
    bool has_place_ = false;
    std::vector<int32_t> tokens_;  // all, the last sampled one included
    uint64_t index_ = 0;           // of the next token to be sampled
    uint32_t left_ = 0;            // to be sampled
    Sampling sampling_;
    std::vector<int32_t> stop_ids_;
  };

  // The longest that the cache holds, without the last token.
  std::vector<int32_t> CachedPrefix(const std::vector<int32_t>& wanted) const {
    size_t longest = 0;
    for (const std::vector<int32_t>& entry : cache) {
      const size_t size = std::min(entry.size(), wanted.size() - 1);
      const auto end = std::mismatch(entry.begin(), entry.begin() + static_cast<ptrdiff_t>(size), wanted.begin()).first;
      longest = std::max(longest, static_cast<size_t>(end - entry.begin()));
    }
    return {wanted.begin(), wanted.begin() + static_cast<ptrdiff_t>(longest)};
  }

  absl::Status Step(router::Role role) {
    const auto fault = faults.find(++steps);
    if (on_step) on_step();
    if (fault != faults.end()) {
      if (fault->second == Fault::kPrefillDies || fault->second == Fault::kBothDie) Kill(router::Role::kPrefill);
      if (fault->second == Fault::kDecodeDies || fault->second == Fault::kBothDie) Kill(router::Role::kDecode);
      if (fault->second == Fault::kClientLeaves) client_here = false;
      if (fault->second == Fault::kLeaseRevoked) EndSessions(absl::CancelledError("decode: not started in time"));
      if (fault->second == Fault::kPreempted) EndSessions(absl::AbortedError("decode: preempted"));
      if (fault->second == Fault::kPrefillDrains && role == router::Role::kPrefill)
        return absl::CancelledError("prefill: drained");
    }
    if (!client_here) return absl::CancelledError("CANCELLED");
    if (!IsUp(role)) return absl::UnavailableError(std::string(router::RoleName(role)) + ": connection refused");
    return absl::OkStatus();
  }

  void EndSessions(const absl::Status& why) {
    for (auto& [id, pages] : pages_) pages.end = why;
  }

  Pages* Find(uint64_t id) {
    const auto found = pages_.find(id);
    return found == pages_.end() ? nullptr : &found->second;
  }

  std::array<router::RequestClock::TimePoint, 2> down_until_{};
  std::map<uint64_t, Pages> pages_;
  uint64_t reserved_ = 0;
  uint64_t last_lease_ = 0;
};

}  // namespace moestro::testing
