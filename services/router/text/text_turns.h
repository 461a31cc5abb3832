// Limits how many requests work on texts at once: parsing, templates, tokenizing. That work uses decode's CPUs, and a
// client can ask for seconds of it. First come, first served. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <set>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace moestro::router {

class TextTurns {
 public:
  // A quarter of the CPUs that this process may use, at least one.
  static int OfMachine();

  explicit TextTurns(int turns) : free_(turns) {}

  // One turn. Its destructor ends it. Movable; must not outlive the turns.
  class Turn {
   public:
    Turn(Turn&& other) noexcept;
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    friend class TextTurns;
    explicit Turn(TextTurns& turns) : turns_(&turns) {}
    TextTurns* turns_;
  };

  // Waits for a turn. Calls `check` every 20 ms; its error ends the wait.
  absl::StatusOr<Turn> Take(const std::function<absl::Status()>& check);

 private:
  Mutex mutex_;
  Condition changed_;
  int free_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> waiting_ ABSL_GUARDED_BY(mutex_);  // tickets; the first is next
};

}  // namespace moestro::router
