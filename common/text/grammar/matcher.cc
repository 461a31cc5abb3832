#include "common/text/grammar/matcher.h"

#include <algorithm>
#include <map>

#include "common/text/concat.h"
#include "common/text/grammar/limits.h"

namespace moestro::text::grammar {
namespace {

void SortUnique(std::vector<Matcher::Position>* positions) {
  std::sort(positions->begin(), positions->end());
  positions->erase(std::unique(positions->begin(), positions->end()), positions->end());
}

}  // namespace

Matcher::Matcher(std::shared_ptr<const Automaton> automaton)
    : automaton_(std::move(automaton)), classes_(automaton_->byte_classes()) {
  Clear();
  std::vector<Position> first = {{automaton_->start(0), InternCallers({{kEnd, 0}})}};
  if (automaton_->matches_nothing(0)) first.push_back({kEnd, 0});
  start_ = Intern(std::move(first));
}

void Matcher::Clear() {
  configurations_.clear();
  next_.clear();
  numbers_.clear();
  callers_.clear();
  caller_numbers_.clear();
  stored_ = 0;
  Intern({});  // kDead
  std::fill(next_.begin(), next_.end(), kDead);
}

void Matcher::Store(size_t positions) {
  stored_ += positions;
  if (stored_ > kKeptPositions * kMaskGrowth) Fail("too many positions are possible");
}

void Matcher::Fail(const char* what) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(Concat("the grammar cannot be followed: ", what));
}

void Matcher::Begin(const Effort& effort) {
  effort_ = effort;
  steps_ = 0;
  if (absl::IsResourceExhausted(status_)) status_ = absl::OkStatus();
}

void Matcher::Spend(int64_t steps) {
  steps_ += steps;
  if (steps_ > kMaxMaskSteps) return Fail("finding the next tokens takes too many steps");
  if (status_.ok() && effort_.IsSpent(steps_)) status_ = absl::ResourceExhaustedError("the effort is spent");
}

bool Matcher::Holds(Configuration at, int32_t state) const {
  // These are the first two in the order of states.
  const std::vector<Position>& positions = configurations_[at].positions;
  for (size_t i = 0; i < std::min<size_t>(2, positions.size()); ++i) {
    if (positions[i].state == state) return true;
  }
  return false;
}

Matcher::Configuration Matcher::Inside(int32_t state) {
  Reach({state, InternCallers({{kOutside, 0}})});
  return TakeReached();
}

Matcher::Configuration Matcher::After(uint32_t callers) {
  const std::vector<Position> positions = callers_[callers];
  for (const Position& position : positions) Reach(position);
  return TakeReached();
}

void Matcher::Reach(Position position) {
  open_.push_back(position);
  while (!open_.empty()) {
    const Position next = open_.back();
    open_.pop_back();
    if (!seen_.insert(next).second) continue;
    ++steps_;
    if (next.state < 0) {
      reached_.push_back(next);
      continue;
    }
    if (!automaton_->only_accepting(next.state)) reached_.push_back(next);
    if (automaton_->accepting(next.state)) {
      const std::vector<Position>& callers = callers_[next.callers];
      open_.insert(open_.end(), callers.begin(), callers.end());
    }
  }
}

Matcher::Configuration Matcher::TakeReached() {
  seen_.clear();
  SortUnique(&reached_);
  if (reached_.size() > kMaxPositions) Fail("it is too ambiguous");
  return Intern(std::exchange(reached_, {}));
}

Matcher::Configuration Matcher::Compute(Configuration from, uint8_t byte, uint8_t byte_class) {
  if (!status_.ok()) return kDead;
  if (!configurations_[from].expanded) Expand(from);
  for (const Position& position : configurations_[from].active) {
    for (const Automaton::ByteEdge& edge : automaton_->bytes(position.state)) {
      ++steps_;
      if (byte < edge.first) break;  // they are sorted
      if (byte <= edge.last) Reach({edge.target, position.callers});
    }
  }
  const Configuration next = TakeReached();
  Spend(1);
  if (!status_.ok()) return kDead;
  next_[from * classes_ + byte_class] = next;
  return next;
}

// A rule that is called from several positions is entered once, for all of them: the positions that follow its calls
// are complete when its turn comes in the order of rules.
void Matcher::Expand(Configuration at) {
  std::vector<Position> active;
  std::map<int32_t, std::vector<Position>> called;  // by the order of the rule
  const auto add = [&](const Position& position) {
    if (position.state < 0) return;
    active.push_back(position);
    for (const Automaton::CallEdge& call : automaton_->calls(position.state)) {
      ++steps_;
      std::vector<Position>& callers = called[automaton_->order(call.rule)];
      if (automaton_->only_accepting(call.target)) {
        // The rule's end is the caller's end.
        callers.insert(callers.end(), callers_[position.callers].begin(), callers_[position.callers].end());
        steps_ += static_cast<int64_t>(callers_[position.callers].size());
      } else {
        callers.push_back({call.target, position.callers});
      }
    }
  };
  for (const Position& position : configurations_[at].positions) add(position);
  while (!called.empty()) {
    const auto first = called.extract(called.begin());
    add({automaton_->start(automaton_->rule_at(first.key())), InternCallers(std::move(first.mapped()))});
    if (active.size() > kMaxPositions) {
      Fail("it is too ambiguous");
      break;
    }
  }
  Store(active.size());
  configurations_[at].active = std::move(active);
  configurations_[at].expanded = true;
}

Matcher::Configuration Matcher::Intern(std::vector<Position> positions) {
  const auto number = static_cast<Configuration>(configurations_.size());
  const auto [entry, added] = numbers_.try_emplace(positions, number);
  if (!added) return entry->second;
  if (number > kKeptConfigurations * kMaskGrowth) Fail("too many positions are possible");
  Store(2 * positions.size());  // the key, too
  configurations_.push_back({std::move(positions)});
  next_.resize(next_.size() + classes_, kUnknown);
  return number;
}

uint32_t Matcher::InternCallers(std::vector<Position> callers) {
  SortUnique(&callers);
  steps_ += static_cast<int64_t>(callers.size());
  const auto number = static_cast<uint32_t>(callers_.size());
  const auto [entry, added] = caller_numbers_.try_emplace(callers, number);
  if (!added) return entry->second;
  if (number > kKeptCalls * kMaskGrowth) Fail("too many calls of rules are open");
  Store(2 * callers.size());
  callers_.push_back(std::move(callers));
  return number;
}

Matcher::Configuration Matcher::Compact(Configuration current) {
  if (configurations_.size() <= kKeptConfigurations && callers_.size() <= kKeptCalls && stored_ <= kKeptPositions) {
    return current;
  }
  const std::vector<Position> positions = configurations_[current].positions;
  // A set of callers refers to sets with lower numbers only.
  std::vector<bool> needed(callers_.size(), false);
  for (const Position& position : positions) {
    if (position.state >= 0) needed[position.callers] = true;
  }
  for (size_t i = needed.size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (const Position& position : callers_[i]) {
      if (position.state >= 0) needed[position.callers] = true;
    }
  }
  const std::vector<std::vector<Position>> old = std::exchange(callers_, {});
  std::vector<uint32_t> renamed(old.size(), 0);
  const auto rename = [&](std::vector<Position> set) {
    for (Position& position : set) {
      if (position.state >= 0) position.callers = renamed[position.callers];
    }
    return set;
  };
  Clear();
  for (size_t i = 0; i < old.size(); ++i) {
    if (needed[i]) renamed[i] = InternCallers(rename(old[i]));
  }
  if (callers_.size() > kKeptCalls / 2 || stored_ > kKeptPositions / 2) Fail("the text nests too deep");
  start_ = kDead;  // not needed any more
  std::vector<Position> kept = rename(positions);
  std::sort(kept.begin(), kept.end());
  return Intern(std::move(kept));
}

}  // namespace moestro::text::grammar
