// What becomes of one sequence, on its way from the decode loop to the caller. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <variant>

#include "absl/status/status.h"
#include "common/model/sampler.h"

namespace moestro {

enum class StopReason { kStopId, kLength };

// Of a prompt that decode runs: tokens whose KV is there.
struct PromptProgress {
  int64_t done = 0;
  int64_t total = 0;
};

class TokenStream {
 public:
  // Progress of the prompt; a token; or why the sequence ended: a reason, or an error. After an end nothing follows.
  using Event = std::variant<PromptProgress, SampledToken, StopReason, absl::Status>;

  void Push(Event event) {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }

  // The next event, or nothing when none came within `timeout`.
  std::optional<Event> Next(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return !events_.empty(); })) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  // The caller has gone: the decode loop drops the sequence at its next look.
  void Cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace moestro
