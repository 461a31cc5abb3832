// The events of one sequence, passed from the decode loop to the caller. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <variant>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/inference/types.h"

namespace moestro::decode {

class TokenStream {
 public:
  // Progress of the prompt, a token, or the end: a finish reason or an error. No event follows an end.
  using Event = std::variant<PrefillProgress, Token, FinishReason, absl::Status>;

  void Push(Event event) {
    MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }

  // The first step that takes the sequence along begins, `waited` after Start or Prompt. Before all events but an end.
  void NotePlace(std::chrono::duration<double> waited) {
    MutexLock lock(mutex_);
    waited_ = waited;
  }
  // Nullopt: it has no place yet.
  std::optional<std::chrono::duration<double>> waited() const {
    MutexLock lock(mutex_);
    return waited_;
  }

  // Returns the next event, or nullopt if none arrives within `timeout`.
  std::optional<Event> Next(std::chrono::milliseconds timeout) {
    MutexLock lock(mutex_);
    std::optional<Event> event;
    if (changed_.wait_for(lock, timeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !events_.empty(); })) {
      event.emplace(std::move(events_.front()));
      events_.pop_front();
    }
    return event;
  }

  // The caller is gone: the decode loop drops the sequence at its next check.
  void Cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }

 private:
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::chrono::duration<double>> waited_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> cancelled_{false};
};

}  // namespace moestro::decode
