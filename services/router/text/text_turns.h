// Limits how many requests work on texts at once: parsing, templates, tokenizing. That work uses decode's CPUs, and a
// client can ask for seconds of it. Small requests have turns of their own, so that they do not wait behind large ones.
// First come, first served in each of the two lines. Thread-safe.
//
// A router may run with real-time priority, ahead of the roles that compute (deploy/README.md). Seconds of work would
// then keep a CPU from decode, so the thread of a large request is an ordinary one during its turn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace moestro::router {

class TextTurns {
 public:
  // Requests of more bytes are large. Work on one of these takes up to some tens of milliseconds.
  static constexpr size_t kMostSmallBytes = 64 << 10;

  // A quarter of the CPUs that this process may use, at least one.
  static int OfMachine();

  // `turns`: of small requests, and as many of large ones.
  explicit TextTurns(int turns) : lines_{Line{turns}, Line{turns}} {}

  // One turn, of the thread that took it. Its destructor ends it. Movable; must not outlive the turns.
  class Turn {
   public:
    Turn(Turn&& other) noexcept;
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    friend class TextTurns;
    Turn(TextTurns& turns, size_t line);
    TextTurns* turns_;
    size_t line_;
    int policy_;  // of scheduling, to which the thread returns
    int priority_ = 0;
  };

  // Waits for a turn at work on a request of `bytes`. Calls `check` every 20 ms; its error ends the wait.
  absl::StatusOr<Turn> Take(size_t bytes, const std::function<absl::Status()>& check);

 private:
  struct Line {
    int free = 0;
    std::set<uint64_t> waiting = {};  // tickets; the first is next
  };

  Mutex mutex_;
  std::array<Condition, 2> changed_;
  std::array<Line, 2> lines_ ABSL_GUARDED_BY(mutex_);  // of small requests, of large ones
  uint64_t last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moestro::router
