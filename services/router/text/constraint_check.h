// Whether constraints can be followed, found out at a bounded cost.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/inference/types.h"
#include "common/text/grammar/budget.h"

namespace moestro::router {

// What compiling recent constraints has given, by their SHA-256: a client sends the same tools with every request.
// Thread-safe.
class KnownConstraints {
 public:
  std::optional<absl::Status> Find(const std::string& hash);
  void Note(const std::string& hash, const absl::Status& result);

 private:
  struct Entry {
    std::string hash;
    absl::Status result;
  };
  Mutex mutex_;
  std::list<Entry> recent_ ABSL_GUARDED_BY(mutex_);  // the latest first
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_hash_ ABSL_GUARDED_BY(mutex_);
};

// All work on the constraints of one request, with one budget. Not thread-safe.
class ConstraintCheck {
 public:
  // A budget for a turn at work on texts. Who finds it spent tries again with Whole, outside of the turn.
  static ConstraintCheck Quick(KnownConstraints& known);
  // A budget that refuses what it does not suffice for. `check` is called from time to time; its error ends the work.
  static ConstraintCheck Whole(KnownConstraints& known, const std::function<absl::Status()>& check);

  // INVALID_ARGUMENT: the constraint cannot be followed. RESOURCE_EXHAUSTED: the quick budget is spent. Errors of
  // check.
  absl::Status Compile(const Constraint& constraint);
  // For work on the texts of constraints.
  absl::Status SpendBytes(size_t bytes) { return budget_.SpendBytes(bytes); }

  // Nothing is known of the constraint: the budget was too small, or the check has ended the work.
  bool is_interrupted() const { return budget_.is_interrupted(); }

 private:
  ConstraintCheck(KnownConstraints& known, text::grammar::CompileBudget budget)
      : known_(known), budget_(std::move(budget)) {}

  KnownConstraints& known_;
  text::grammar::CompileBudget budget_;
};

}  // namespace moestro::router
