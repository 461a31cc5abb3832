// A node of fakes: a clock that runs only when someone sleeps, a model that is a hash, and roles that die on command.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/telemetry/metrics.h"
#include "services/router/request_life.h"

namespace moestro::testing {

class FakeClock final : public Clock {
 public:
  TimePoint Now() override { return now_; }
  void SleepFor(Duration duration) override {
    now_ += duration;
    if (on_sleep) on_sleep();
  }
  std::function<void()> on_sleep;

 private:
  TimePoint now_{std::chrono::hours(1)};
};

// Prefill, decode and the client of one request at a time. Each call that crosses a process boundary is a step; a fault
// is tied to the number of a step and happens just before it takes effect.
class FakeNode : public PrefillPeer, public DecodePeer {
 public:
  enum class Fault { kPrefillDies, kDecodeDies, kBothDie, kLeaseRevoked, kClientLeaves, kPrefillDrains };

  FakeNode()
      : registry("router"),
        metrics(registry),
        roles([this](Role role) { return IsUp(role); }, clock, std::chrono::seconds(10)),
        queue(4) {
    spdlog::set_level(spdlog::level::off);
    roles.Poll();
  }

  RouterEnvironment Environment() { return {roles, queue, metrics, clock}; }
  CallPeers Call() {
    return {*this, *this, [this] { return client_here ? absl::OkStatus() : absl::CancelledError("client left"); }};
  }

  // What a healthy node generates: depends on the tokens so far, the seed and the index only.
  static GeneratedToken Model(const std::vector<int32_t>& tokens, const Sampling& sampling, uint64_t index) {
    uint64_t hash = sampling.seed * 0x9e3779b97f4a7c15u + index;
    for (const int32_t token : tokens) hash = (hash ^ static_cast<uint64_t>(token)) * 0x100000001b3u;
    return {static_cast<int32_t>(hash >> 33) % 1000 + 10, -0.5f * static_cast<float>(index)};
  }

  // PrefillPeer
  absl::StatusOr<GeneratedToken> Run(const PrefillJob& job, PrefillProgressFn progress) override {
    const std::vector<int32_t> tokens(job.tokens.begin(), job.tokens.end());
    ++prefill_runs;
    MOE_RETURN_IF_ERROR(Step(Role::kPrefill));
    const auto total = static_cast<uint32_t>(tokens.size());
    while (true) {
      Pages* pages = Find(job.lease.id);
      if (pages == nullptr || pages->revoked) return absl::AbortedError("prefill: the lease was revoked");
      if (pages->valid.size() >= tokens.size()) break;
      pages->valid.push_back(tokens[pages->valid.size()]);
      ++prefilled_tokens;
      const auto valid = static_cast<uint32_t>(pages->valid.size());
      MOE_RETURN_IF_ERROR(Step(Role::kPrefill));  // decode may die in it, and the pages with it
      MOE_RETURN_IF_ERROR(progress(valid, total));
    }
    EXPECT_EQ(Find(job.lease.id)->valid, tokens);
    return Model(tokens, job.sampling, tokens.size() - job.prompt_tokens);
  }

  absl::Status Score(const PrefillJob& job, uint32_t top, PrefillProgressFn progress, ScoresFn scores) override {
    for (size_t i = 0; i < job.tokens.size(); ++i) {
      MOE_RETURN_IF_ERROR(Step(Role::kPrefill));
      if (Find(job.lease.id) == nullptr) return absl::AbortedError("prefill: the lease was revoked");
      MOE_RETURN_IF_ERROR(progress(static_cast<uint32_t>(i), static_cast<uint32_t>(job.tokens.size())));
      ScoredPosition score{.id = job.tokens[i], .logprob = std::nullopt, .top = {}};
      if (i > 0) score.logprob = -1.0f * static_cast<float>(i);
      score.top.resize(i > 0 ? top : 0);
      MOE_RETURN_IF_ERROR(scores({score}));
    }
    return absl::OkStatus();
  }

  // DecodePeer
  std::unique_ptr<DecodeSession> OpenSession() override { return std::make_unique<Session>(*this); }

  bool IsUp(Role role) const { return clock.Now() >= down_until_[static_cast<size_t>(role)]; }
  void Kill(Role role) {
    down_until_[static_cast<size_t>(role)] = clock.Now() + downtime;
    if (role == Role::kDecode) pages_.clear();
  }

  size_t leases() const { return pages_.size(); }
  uint64_t reserved() const { return reserved_; }

  mutable FakeClock clock;
  MetricsRegistry registry;
  RouterMetrics metrics;
  RoleMonitor roles;
  AdmissionQueue queue;

  std::map<int, Fault> faults;  // by number of the step, from 1
  Clock::Duration downtime = std::chrono::seconds(3);
  bool client_here = true;
  uint64_t capacity = 1000;  // tokens of the pool
  uint32_t cached_tokens = 0;
  int steps = 0;
  int prefill_runs = 0;
  int prefilled_tokens = 0;
  int decode_starts = 0;

 private:
  struct Pages {
    std::vector<int32_t> valid;
    uint32_t tokens = 0;
    bool revoked = false;
  };

  class Session final : public DecodeSession {
   public:
    explicit Session(FakeNode& node) : node_(node) {}
    ~Session() override {
      if (Pages* pages = node_.Find(id_)) node_.reserved_ -= pages->tokens;
      node_.pages_.erase(id_);
    }
    absl::StatusOr<Reservation> Reserve(const ReserveRequest& request) override {
      EXPECT_FALSE(request.request_id.empty());
      const auto tokens = static_cast<uint32_t>(request.tokens.size()) + request.max_tokens;
      MOE_RETURN_IF_ERROR(node_.Step(Role::kDecode));
      if (tokens > node_.capacity) return absl::InvalidArgumentError("decode: never fits");
      if (node_.pages_.empty()) node_.reserved_ = 0;
      if (node_.reserved_ + tokens > node_.capacity) return absl::ResourceExhaustedError("decode: no pages now");
      node_.reserved_ += tokens;
      id_ = ++node_.last_lease_;
      node_.pages_[id_].tokens = tokens;
      return Reservation{.lease = {.pool = "pool", .slot = 0, .id = id_, .pages = {}},
                         .cached_tokens = node_.cached_tokens};
    }
    absl::Status Start(const DecodeStart& start) override {
      MOE_RETURN_IF_ERROR(node_.Step(Role::kDecode));
      Pages* pages = node_.Find(id_);
      if (pages == nullptr) return absl::UnavailableError("decode: Socket closed");
      ++node_.decode_starts;
      EXPECT_EQ(start.position, pages->valid.size());
      EXPECT_LE(start.position + 1 + start.max_tokens, pages->tokens);
      EXPECT_FLOAT_EQ(start.token.logprob, -0.5f * static_cast<float>(start.index));
      start_ = start;
      tokens_ = pages->valid;
      tokens_.push_back(start.token.id);
      return absl::OkStatus();
    }
    absl::StatusOr<DecodeEvent> Next() override {
      MOE_RETURN_IF_ERROR(node_.Step(Role::kDecode));
      if (node_.Find(id_) == nullptr) return absl::UnavailableError("decode: Socket closed");
      if (sent_ == start_.max_tokens) return DecodeEvent(FinishReason::kLength);
      ++sent_;
      const GeneratedToken token = Model(tokens_, start_.sampling, start_.index + sent_);
      for (const int32_t stop : start_.stop_ids) {
        if (stop == token.id) return DecodeEvent(FinishReason::kStop);
      }
      tokens_.push_back(token.id);
      return DecodeEvent(token);
    }

   private:
    FakeNode& node_;
    uint64_t id_ = 0;
    DecodeStart start_;
    std::vector<int32_t> tokens_;
    uint32_t sent_ = 0;
  };

  absl::Status Step(Role role) {
    const auto fault = faults.find(++steps);
    if (fault != faults.end()) {
      if (fault->second == Fault::kPrefillDies || fault->second == Fault::kBothDie) Kill(Role::kPrefill);
      if (fault->second == Fault::kDecodeDies || fault->second == Fault::kBothDie) Kill(Role::kDecode);
      if (fault->second == Fault::kClientLeaves) client_here = false;
      if (fault->second == Fault::kLeaseRevoked) {
        for (auto& [id, pages] : pages_) pages.revoked = true;
      }
      if (fault->second == Fault::kPrefillDrains && role == Role::kPrefill)
        return absl::CancelledError("prefill: drained");
    }
    if (!client_here) return absl::CancelledError("CANCELLED");
    if (!IsUp(role)) return absl::UnavailableError(std::string(RoleName(role)) + ": connection refused");
    return absl::OkStatus();
  }

  Pages* Find(uint64_t id) {
    const auto found = pages_.find(id);
    return found == pages_.end() ? nullptr : &found->second;
  }

  std::array<Clock::TimePoint, 2> down_until_{};
  std::map<uint64_t, Pages> pages_;
  uint64_t reserved_ = 0;
  uint64_t last_lease_ = 0;
};

}  // namespace moestro::testing
