// A queue for the engine, which runs one prompt at a time. First come, first served. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace moestro::prefill {

class TurnQueue {
 public:
  // The right to use the engine. Its destructor ends it.
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

  // Waits until all earlier callers are done. Calls `look` every few milliseconds; its error ends the wait. `moves`:
  // since the last call, the owner of the turn made progress (Advance) or passed the turn on. RESOURCE_EXHAUSTED when
  // `limit` callers already wait.
  absl::StatusOr<Turn> Wait(size_t limit, absl::FunctionRef<absl::Status(bool moves)> look) {
    MutexLock lock(mutex_);
    if (line_.size() > limit) return absl::ResourceExhaustedError("the prefill queue is full");
    const auto place = line_.insert(line_.end(), 0);
    uint64_t seen = advances_;
    while (
        !moved_.wait_for(lock, kPoll, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return line_.begin() == place; })) {
      const bool moves = std::exchange(seen, advances_) != advances_;
      if (absl::Status status = look(moves); !status.ok()) {
        line_.erase(place);
        moved_.notify_all();
        return status;
      }
    }
    return Turn(this, place);
  }

  // Returns a turn at once, or nullopt if another caller has it or waits for it.
  std::optional<Turn> Try() {
    MutexLock lock(mutex_);
    if (!line_.empty()) return std::nullopt;
    return Turn(this, line_.insert(line_.end(), 0));
  }

  // Called by the owner of the turn when its work makes progress.
  void Advance() {
    MutexLock lock(mutex_);
    ++advances_;
  }

  // Callers that wait, without the owner of the turn.
  size_t waiting() const {
    MutexLock lock(mutex_);
    return line_.empty() ? 0 : line_.size() - 1;
  }

 private:
  static constexpr std::chrono::milliseconds kPoll{20};

  void Leave(std::list<int>::iterator place) {
    MutexLock lock(mutex_);
    line_.erase(place);
    ++advances_;
    moved_.notify_all();
  }

  mutable Mutex mutex_;
  Condition moved_;
  std::list<int> line_ ABSL_GUARDED_BY(mutex_);  // the first has the turn
  uint64_t advances_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moestro::prefill
