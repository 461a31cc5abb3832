// Recognises texts of a grammar byte by byte, on all ways through it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/text/grammar/automaton.h"
#include "common/text/grammar/budget.h"

namespace moestro::text::grammar {

// A configuration is the set of positions that the text so far leads to: a state, and who called its rule. The callers
// of one rule at one place in the text are one set with one number, so positions do not multiply with the ways to them.
// Configurations are numbered too, and their successors kept: most bytes cost one look into a table.
// Not thread-safe. After an error every configuration is kDead.
class Matcher {
 public:
  using Configuration = uint32_t;
  static constexpr Configuration kDead = 0;  // no text goes on from here

  explicit Matcher(std::shared_ptr<const Automaton> automaton);

  Configuration start() const { return start_; }

  // A configuration inside one rule: in `state`, called from a place unknown.
  Configuration Inside(int32_t state);

  Configuration Next(Configuration from, uint8_t byte) {
    const uint8_t byte_class = automaton_->class_of(byte);
    const uint32_t known = next_[from * classes_ + byte_class];
    return known != kUnknown ? known : Compute(from, byte, byte_class);
  }

  // The text so far is complete.
  bool MayEnd(Configuration at) const { return Holds(at, kEnd); }
  // One of Inside: the rule may end here.
  bool MayLeave(Configuration at) const { return Holds(at, kOutside); }

  struct Position {
    int32_t state;     // or kEnd, kOutside
    uint32_t callers;  // the set of positions that follow the rule
    auto operator<=>(const Position&) const = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Position& position) {
      return H::combine(std::move(hash), position.state, position.callers);
    }
  };
  static constexpr int32_t kEnd = -1;
  static constexpr int32_t kOutside = -2;
  // Without those that calls would add.
  const std::vector<Position>& positions(Configuration at) const { return configurations_[at].positions; }
  // Where a rule with these callers leads when it ends.
  Configuration After(uint32_t callers);

  // Forgets what is not needed from `current` on, if that has become much, and returns its new number. Invalidates all
  // others. INVALID_ARGUMENT: the text nests deeper than limits.h allows.
  Configuration Compact(Configuration current);

  // INVALID_ARGUMENT: positions, configurations or steps reached a limit of limits.h. RESOURCE_EXHAUSTED: the effort
  // was spent; the matcher goes on after the next Begin.
  const absl::Status& status() const { return status_; }
  // The steps that follow are counted from 0, and bound by `effort`, whose flag must outlive them.
  void Begin(const Effort& effort);
  // Since Begin.
  int64_t steps() const { return steps_; }
  // Work outside that shall count too.
  void Spend(int64_t steps);

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;

  struct Entry {
    std::vector<Position> positions;
    std::vector<Position> active = {};  // these, and the starts of the rules that they call
    bool expanded = false;
  };

  bool Holds(Configuration at, int32_t state) const;
  Configuration Compute(Configuration from, uint8_t byte, uint8_t byte_class);
  void Expand(Configuration at);
  // Adds a position, and those that follow because its rule may end there.
  void Reach(Position position);
  Configuration TakeReached();
  Configuration Intern(std::vector<Position> positions);
  uint32_t InternCallers(std::vector<Position> callers);
  void Clear();
  void Store(size_t positions);
  void Fail(const char* what);

  std::shared_ptr<const Automaton> automaton_;
  uint32_t classes_;
  std::vector<Entry> configurations_;
  std::vector<uint32_t> next_;  // [configuration][byte class]
  absl::flat_hash_map<std::vector<Position>, Configuration> numbers_;
  std::vector<std::vector<Position>> callers_;
  absl::flat_hash_map<std::vector<Position>, uint32_t> caller_numbers_;
  Configuration start_ = kDead;
  // Work space.
  std::vector<Position> open_;
  std::vector<Position> reached_;
  absl::flat_hash_set<Position> seen_;
  Effort effort_;
  int64_t steps_ = 0;
  size_t stored_ = 0;  // positions, in all sets
  absl::Status status_;
};

}  // namespace moestro::text::grammar
