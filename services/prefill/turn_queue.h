// First come, first served: the engine runs one prompt at a time, and callers wait for their turn. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace moestro {

class TurnQueue {
 public:
  // The right to use the engine, until destruction.
  class Turn {
   public:
    Turn(Turn&& other) noexcept : queue_(std::exchange(other.queue_, nullptr)), place_(other.place_) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (queue_ != nullptr) queue_->Leave(place_);
    }

   private:
    friend class TurnQueue;
    Turn(TurnQueue* queue, std::list<int>::iterator place) : queue_(queue), place_(place) {}
    TurnQueue* queue_;
    std::list<int>::iterator place_;
  };

  // Waits until all earlier callers are done. `interrupted` is asked every few milliseconds; its error ends the wait.
  // RESOURCE_EXHAUSTED when `limit` callers wait already.
  absl::StatusOr<Turn> Wait(size_t limit, absl::FunctionRef<absl::Status()> interrupted) {
    std::unique_lock lock(mutex_);
    if (line_.size() > limit) return absl::ResourceExhaustedError("the prefill queue is full");
    const auto place = line_.insert(line_.end(), 0);
    while (!moved_.wait_for(lock, kPoll, [&] { return line_.begin() == place; })) {
      if (absl::Status status = interrupted(); !status.ok()) {
        line_.erase(place);
        moved_.notify_all();
        return status;
      }
    }
    return Turn(this, place);
  }

  // Callers that wait, without the one whose turn it is.
  size_t waiting() const {
    std::lock_guard lock(mutex_);
    return line_.empty() ? 0 : line_.size() - 1;
  }

 private:
  static constexpr std::chrono::milliseconds kPoll{20};

  void Leave(std::list<int>::iterator place) {
    std::lock_guard lock(mutex_);
    line_.erase(place);
    moved_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable moved_;
  std::list<int> line_;  // guarded by mutex_; the first has the turn
};

}  // namespace moestro
