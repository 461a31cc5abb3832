// A grammar compiled to bytes: one automaton for each rule, whose edges are bytes or calls of other rules.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/grammar/budget.h"
#include "common/text/grammar/grammar.h"

namespace moestro::text::grammar {

// Without empty edges: every edge of a state consumes a byte, or calls a rule that consumes one. From every state an
// accepting one can be reached. Immutable, thread-safe.
class Automaton {
 public:
  struct ByteEdge {
    uint8_t first;
    uint8_t last;  // inclusive
    int32_t target;
    auto operator<=>(const ByteEdge&) const = default;
  };
  struct CallEdge {
    RuleId rule;
    int32_t target;  // after the rule
    auto operator<=>(const CallEdge&) const = default;
  };

  // INVALID_ARGUMENT names the rule that has no definition, that begins with itself, or that cannot end; or the grammar
  // is larger than limits.h allows.
  static absl::StatusOr<Automaton> Compile(const Grammar& grammar, CompileBudget& budget);

  std::span<const ByteEdge> bytes(int32_t state) const {
    return std::span(byte_edges_).subspan(states_[state].bytes, states_[state + 1].bytes - states_[state].bytes);
  }
  std::span<const CallEdge> calls(int32_t state) const {
    return std::span(call_edges_).subspan(states_[state].calls, states_[state + 1].calls - states_[state].calls);
  }
  bool accepting(int32_t state) const { return states_[state].accepting; }
  // Accepting, and without edges: after a call that leads here the caller's own caller goes on.
  bool only_accepting(int32_t state) const { return accepting(state) && bytes(state).empty() && calls(state).empty(); }
  int32_t start(RuleId rule) const { return rules_[rule].start; }
  // A rule that begins with a call of another comes before it.
  int32_t order(RuleId rule) const { return rules_[rule].order; }
  RuleId rule_at(int32_t order) const { return in_order_[order]; }
  bool matches_nothing(RuleId rule) const { return rules_[rule].nullable; }

  int32_t state_count() const { return static_cast<int32_t>(states_.size()) - 1; }
  // Bytes of one class are on the same edges everywhere.
  int byte_classes() const { return byte_classes_; }
  uint8_t class_of(uint8_t byte) const { return class_of_[byte]; }

 private:
  friend class AutomatonBuilder;

  struct State {
    uint32_t bytes = 0;  // its first edge; the last ends where those of the next state begin
    uint32_t calls = 0;
    bool accepting = false;
  };
  struct RuleEntry {
    int32_t start = 0;
    int32_t order = 0;
    bool nullable = false;
  };

  std::vector<State> states_;  // and one past the end
  std::vector<ByteEdge> byte_edges_;
  std::vector<CallEdge> call_edges_;
  std::vector<RuleEntry> rules_;
  std::vector<RuleId> in_order_;
  std::array<uint8_t, 256> class_of_ = {};
  int byte_classes_ = 1;
};

}  // namespace moestro::text::grammar
