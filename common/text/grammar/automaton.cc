#include "common/text/grammar/automaton.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/grammar/limits.h"
#include "common/text/grammar/utf8_edges.h"
#include "common/text/json/quoted.h"

namespace moestro::text::grammar {
namespace {

// Nodes in each other; their builder is recursive.
constexpr int kMaxDepth = 1000;

absl::Status TooLarge(std::string_view what) {
  return absl::InvalidArgumentError(Concat("the grammar is too large: ", what));
}

absl::Status RuleError(const Grammar::Rule& rule, std::string_view what) {
  return absl::InvalidArgumentError(Concat("rule ", Quoted(rule.name), " ", what));
}

// Nodes that match the empty text, given the rules that do.
std::vector<bool> EmptyNodes(const Grammar& grammar, const std::vector<bool>& empty_rules) {
  using Kind = Grammar::Node::Kind;
  std::vector<bool> empty;
  empty.reserve(grammar.nodes().size());
  for (const Grammar::Node& node : grammar.nodes()) {
    const auto matches = [&](NodeId child) { return empty[child]; };
    const auto begin = node.children.begin(), end = node.children.end();
    switch (node.kind) {
      case Kind::kBytes:
        empty.push_back(node.bytes.empty());
        break;
      case Kind::kClass:
        empty.push_back(false);
        break;
      case Kind::kSequence:
        empty.push_back(std::all_of(begin, end, matches));
        break;
      case Kind::kAlternatives:
        empty.push_back(std::any_of(begin, end, matches));
        break;
      case Kind::kRepeat:
        empty.push_back(node.min == 0 || matches(node.children[0]));
        break;
      case Kind::kRule:
        empty.push_back(empty_rules[node.rule]);
        break;
      case Kind::kUntil:
        empty.push_back(false);
        break;
      case Kind::kWithout:
        empty.push_back(true);
        break;
      case Kind::kGraph:
        empty.push_back(node.graph.accepting[0]);
        break;
    }
  }
  return empty;
}

}  // namespace

// Builds each rule with empty edges, removes them, and checks the whole.
class AutomatonBuilder {
 public:
  AutomatonBuilder(const Grammar& grammar, CompileBudget& budget) : grammar_(grammar), budget_(budget) {}

  absl::StatusOr<Automaton> Build() {
    if (grammar_.is_too_large()) return TooLarge("it has too many parts");
    if (grammar_.rules().size() > kMaxRules) return TooLarge(Concat("over ", kMaxRules, " rules"));
    for (const Grammar::Rule& rule : grammar_.rules()) {
      if (rule.body < 0) return RuleError(rule, "is not defined");
      if (grammar_.nodes()[rule.body].depth > kMaxDepth) return RuleError(rule, "is nested too deep");
    }
    MOE_RETURN_IF_ERROR(FindEmptyRules());
    for (RuleId rule = 0; rule < RuleCount(); ++rule) MOE_RETURN_IF_ERROR(BuildRule(rule));
    MOE_RETURN_IF_ERROR(OrderRules());
    MOE_RETURN_IF_ERROR(KeepWhatEnds());
    Flatten();
    FindByteClasses();
    return std::move(result_);
  }

 private:
  using ByteEdge = Automaton::ByteEdge;
  using CallEdge = Automaton::CallEdge;

  struct State {
    std::vector<int32_t> empty = {};  // targets
    std::vector<ByteEdge> bytes = {};
    std::vector<CallEdge> calls = {};
    bool accepting = false;
  };

  RuleId RuleCount() const { return static_cast<RuleId>(grammar_.rules().size()); }
  const Grammar::Rule& RuleOf(RuleId rule) const { return grammar_.rules()[rule]; }

  absl::Status Spend(int64_t steps) { return budget_.Spend(steps); }

  absl::Status FindEmptyRules() {
    std::vector<bool> rules(RuleCount(), false);
    while (true) {
      MOE_RETURN_IF_ERROR(Spend(static_cast<int64_t>(grammar_.nodes().size())));
      const std::vector<bool> nodes = EmptyNodes(grammar_, rules);
      std::vector<bool> found(RuleCount());
      for (RuleId rule = 0; rule < RuleCount(); ++rule) found[rule] = nodes[RuleOf(rule).body];
      if (found == rules) break;
      rules = std::move(found);
    }
    result_.rules_.resize(RuleCount());
    for (RuleId rule = 0; rule < RuleCount(); ++rule) result_.rules_[rule].nullable = rules[rule];
    return absl::OkStatus();
  }

  int32_t NewState() {
    draft_.emplace_back();
    return static_cast<int32_t>(draft_.size() - 1);
  }

  void AddByte(int32_t from, size_t first, size_t last, int32_t to) {
    draft_[from].bytes.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(last), to});
  }

  // Adds what `node` matches after state `from`; returns the state that follows. Only adds edges to `from`: what
  // repeats, or has several ends, gets states of its own.
  absl::StatusOr<int32_t> Add(NodeId id, int32_t from) {
    MOE_RETURN_IF_ERROR(Spend(1));
    if (draft_.size() + states_.size() > kMaxStates) return TooLarge(Concat("over ", kMaxStates, " states"));
    const Grammar::Node& node = grammar_.nodes()[id];
    switch (node.kind) {
      case Grammar::Node::Kind::kBytes:
        MOE_RETURN_IF_ERROR(Spend(static_cast<int64_t>(node.bytes.size())));
        for (const char c : node.bytes) {
          const int32_t next = NewState();
          const auto byte = static_cast<uint8_t>(c);
          draft_[from].bytes.push_back({byte, byte, next});
          from = next;
        }
        return from;
      case Grammar::Node::Kind::kClass:
        return AddClass(id, from);
      case Grammar::Node::Kind::kSequence:
        for (const NodeId child : node.children) {
          MOE_ASSIGN_OR_RETURN(from, Add(child, from));
        }
        return from;
      case Grammar::Node::Kind::kAlternatives: {
        const int32_t end = NewState();
        for (const NodeId child : node.children) {
          MOE_ASSIGN_OR_RETURN(const int32_t last, Add(child, from));
          draft_[last].empty.push_back(end);
        }
        return end;
      }
      case Grammar::Node::Kind::kRepeat:
        return AddRepeat(node, from);
      case Grammar::Node::Kind::kRule: {
        const int32_t next = NewState();
        draft_[from].calls.push_back({node.rule, next});
        if (result_.rules_[node.rule].nullable) draft_[from].empty.push_back(next);
        return next;
      }
      case Grammar::Node::Kind::kUntil:
        return AddUntil(node.bytes, from);
      case Grammar::Node::Kind::kWithout:
        return AddWithout(node.bytes, from);
      case Grammar::Node::Kind::kGraph:
        return AddGraph(node.graph, from);
    }
    return from;
  }

  // One state for each beginning of `end` that the text's last bytes may be; the last of them has all of it.
  absl::StatusOr<std::vector<int32_t>> AddSearch(const std::string& end, int32_t from) {
    // No character has the bytes from this one on.
    constexpr size_t kBytes = 0xF5;
    MOE_RETURN_IF_ERROR(Spend(static_cast<int64_t>(kBytes * end.size())));
    std::vector<int32_t> states;
    for (size_t i = 0; i <= end.size(); ++i) states.push_back(NewState());
    draft_[from].empty.push_back(states[0]);
    std::vector<std::array<size_t, 256>> after(end.size());  // which beginning the text ends with after each byte
    size_t shorter = 0;                                      // the longest beginning that ends it, too, and is shorter
    for (size_t i = 0; i < end.size(); ++i) {
      const auto byte = static_cast<uint8_t>(end[i]);
      if (i > 0) after[i] = after[shorter];
      if (i > 0) shorter = after[shorter][byte];
      after[i][byte] = i + 1;
      for (size_t first = 0, last = 0; first < kBytes; first = ++last) {
        while (last + 1 < kBytes && after[i][last + 1] == after[i][first]) ++last;
        AddByte(states[i], first, last, states[after[i][first]]);
      }
    }
    return states;
  }

  absl::StatusOr<int32_t> AddWithout(const std::string& text, int32_t from) {
    MOE_ASSIGN_OR_RETURN(const std::vector<int32_t> states, AddSearch(text, from));
    const int32_t end = NewState();
    for (size_t i = 0; i < text.size(); ++i) draft_[states[i]].empty.push_back(end);
    return end;  // nothing leaves the state that has found the text
  }

  absl::StatusOr<int32_t> AddUntil(const std::string& end, int32_t from) {
    MOE_ASSIGN_OR_RETURN(const std::vector<int32_t> states, AddSearch(end, from));
    const int32_t special = NewState();
    for (size_t i = 0; i < end.size(); ++i) AddByte(states[i], kSpecialTokenByte, kSpecialTokenByte, special);
    int32_t at = special;
    for (const char c : SpecialTokenBytes(end).substr(1)) {
      const int32_t next = NewState();
      AddByte(at, static_cast<uint8_t>(c), static_cast<uint8_t>(c), next);
      at = next;
    }
    draft_[at].empty.push_back(states[end.size()]);
    return states[end.size()];
  }

  absl::StatusOr<int32_t> AddGraph(const Grammar::Graph& graph, int32_t from) {
    MOE_RETURN_IF_ERROR(Spend(static_cast<int64_t>(graph.edges.size() + graph.accepting.size())));
    if (draft_.size() + graph.accepting.size() > kMaxStates) return TooLarge(Concat("over ", kMaxStates, " states"));
    const auto first = static_cast<int32_t>(draft_.size());
    draft_.resize(draft_.size() + graph.accepting.size());
    const int32_t end = NewState();
    draft_[from].empty.push_back(first);
    for (const Grammar::Graph::Edge& edge : graph.edges)
      AddByte(first + edge.from, edge.first, edge.last, first + edge.to);
    for (size_t i = 0; i < graph.accepting.size(); ++i) {
      if (graph.accepting[i]) draft_[first + static_cast<int32_t>(i)].empty.push_back(end);
    }
    return end;
  }

  absl::StatusOr<int32_t> AddRepeat(const Grammar::Node& node, int32_t from) {
    const NodeId child = node.children[0];
    for (uint32_t i = 0; i < node.min; ++i) {
      MOE_ASSIGN_OR_RETURN(from, Add(child, from));
    }
    const int32_t head = NewState();
    draft_[from].empty.push_back(head);
    if (node.max == Grammar::kUnbounded) {
      MOE_ASSIGN_OR_RETURN(const int32_t last, Add(child, head));
      draft_[last].empty.push_back(head);
      return head;
    }
    const int32_t end = NewState();
    int32_t last = head;
    for (uint32_t i = node.min; i < node.max; ++i) {
      draft_[last].empty.push_back(end);
      MOE_ASSIGN_OR_RETURN(last, Add(child, last));
    }
    draft_[last].empty.push_back(end);
    return end;
  }

  // The sequences share their ends.
  absl::StatusOr<int32_t> AddClass(NodeId id, int32_t from) {
    auto [cached, added] = sequences_.try_emplace(id);
    if (added) cached->second = Utf8Sequences(grammar_.nodes()[id].set);
    MOE_RETURN_IF_ERROR(Spend(4 * static_cast<int64_t>(cached->second.size())));
    const int32_t to = NewState();
    std::map<std::tuple<uint8_t, uint8_t, int32_t>, int32_t> shared;  // by its edge
    for (const ByteSequence& sequence : cached->second) {
      int32_t next = to;
      for (int i = sequence.length - 1; i > 0; --i) {
        const auto [first, last] = sequence.ranges[i];
        const auto [entry, is_new] = shared.try_emplace({first, last, next}, -1);
        if (is_new) {
          entry->second = NewState();
          draft_[entry->second].bytes.push_back({first, last, next});
        }
        next = entry->second;
      }
      draft_[from].bytes.push_back({sequence.ranges[0].first, sequence.ranges[0].last, next});
    }
    return to;
  }

  // Builds the rule in draft_, then appends to states_ those states that edges lead to, with the edges of all states
  // that empty edges lead to.
  absl::Status BuildRule(RuleId rule) {
    draft_.clear();
    const int32_t first = NewState();
    MOE_ASSIGN_OR_RETURN(const int32_t last, Add(RuleOf(rule).body, first));
    draft_[last].accepting = true;
    std::vector<int32_t> number(draft_.size(), -1);  // in states_
    std::vector<int32_t> kept;
    const auto keep = [&](int32_t state) {
      if (number[state] < 0) {
        number[state] = static_cast<int32_t>(states_.size() + kept.size());
        kept.push_back(state);
      }
      return number[state];
    };
    result_.rules_[rule].start = keep(first);
    std::vector<int32_t> seen(draft_.size(), -1);  // by which state, last
    std::vector<State> complete;
    for (size_t i = 0; i < kept.size(); ++i) {
      State state;
      std::vector<int32_t> reached = {kept[i]};
      seen[kept[i]] = static_cast<int32_t>(i);
      for (size_t next = 0; next < reached.size(); ++next) {
        const State& from = draft_[reached[next]];
        MOE_RETURN_IF_ERROR(Spend(1 + static_cast<int64_t>(from.bytes.size() + from.calls.size() + from.empty.size())));
        state.accepting = state.accepting || from.accepting;
        for (const ByteEdge& edge : from.bytes) state.bytes.push_back({edge.first, edge.last, keep(edge.target)});
        for (const CallEdge& edge : from.calls) state.calls.push_back({edge.rule, keep(edge.target)});
        for (const int32_t target : from.empty) {
          if (std::exchange(seen[target], static_cast<int32_t>(i)) != static_cast<int32_t>(i)) {
            reached.push_back(target);
          }
        }
      }
      std::sort(state.bytes.begin(), state.bytes.end());
      state.bytes.erase(std::unique(state.bytes.begin(), state.bytes.end()), state.bytes.end());
      std::sort(state.calls.begin(), state.calls.end());
      state.calls.erase(std::unique(state.calls.begin(), state.calls.end()), state.calls.end());
      edges_ += state.bytes.size() + state.calls.size();
      if (edges_ > kMaxEdges) return TooLarge(Concat("over ", kMaxEdges, " edges"));
      complete.push_back(std::move(state));
    }
    std::move(complete.begin(), complete.end(), std::back_inserter(states_));
    return absl::OkStatus();
  }

  // By depth-first search over the calls that rules begin with.
  absl::Status OrderRules() {
    enum class Mark { kNew, kOpen, kDone };
    std::vector<Mark> marks(RuleCount(), Mark::kNew);
    std::vector<RuleId> done;
    for (RuleId root = 0; root < RuleCount(); ++root) {
      if (marks[root] != Mark::kNew) continue;
      std::vector<std::pair<RuleId, size_t>> path = {{root, 0}};  // and its next call
      marks[root] = Mark::kOpen;
      while (!path.empty()) {
        const RuleId rule = path.back().first;
        const std::vector<CallEdge>& calls = states_[result_.rules_[rule].start].calls;
        if (path.back().second == calls.size()) {
          marks[rule] = Mark::kDone;
          done.push_back(rule);
          path.pop_back();
          continue;
        }
        const RuleId callee = calls[path.back().second++].rule;
        if (marks[callee] == Mark::kOpen) {
          return RuleError(RuleOf(callee), "begins with itself (left recursion): write it with a repetition");
        }
        if (marks[callee] == Mark::kNew) {
          marks[callee] = Mark::kOpen;
          path.emplace_back(callee, 0);
        }
      }
    }
    result_.in_order_.assign(done.rbegin(), done.rend());
    for (int32_t i = 0; i < RuleCount(); ++i) result_.rules_[result_.in_order_[i]].order = i;
    return absl::OkStatus();
  }

  // Removes edges after which no text could be completed.
  absl::Status KeepWhatEnds() {
    std::vector<std::vector<int32_t>> byte_sources(states_.size());
    std::vector<std::vector<std::pair<int32_t, RuleId>>> call_sources(states_.size());
    std::vector<std::vector<int32_t>> waiting(RuleCount());  // states whose call would end, if the rule does
    std::map<int32_t, RuleId> starts;
    for (RuleId rule = 0; rule < RuleCount(); ++rule) starts[result_.rules_[rule].start] = rule;
    std::vector<bool> ends(states_.size(), false);
    std::vector<int32_t> work;
    const auto mark = [&](int32_t state) {
      if (!ends[state]) work.push_back(state);
      ends[state] = true;
    };
    for (int32_t state = 0; state < static_cast<int32_t>(states_.size()); ++state) {
      for (const ByteEdge& edge : states_[state].bytes) byte_sources[edge.target].push_back(state);
      for (const CallEdge& edge : states_[state].calls) call_sources[edge.target].emplace_back(state, edge.rule);
      if (states_[state].accepting) mark(state);
    }
    const auto rule_ends = [&](RuleId rule) { return ends[result_.rules_[rule].start]; };
    while (!work.empty()) {
      const int32_t state = work.back();
      work.pop_back();
      for (const int32_t source : byte_sources[state]) mark(source);
      for (const auto& [source, rule] : call_sources[state]) {
        rule_ends(rule) ? mark(source) : waiting[rule].push_back(source);
      }
      if (const auto start = starts.find(state); start != starts.end()) {
        for (const int32_t source : std::exchange(waiting[start->second], {})) mark(source);
      }
    }
    if (!rule_ends(0)) {
      const auto endless = std::find_if(result_.in_order_.begin(), result_.in_order_.end(),
                                        [&](RuleId rule) { return rule != 0 && !rule_ends(rule); });
      return RuleError(RuleOf(endless == result_.in_order_.end() ? 0 : *endless), "matches no text that ends");
    }
    for (State& state : states_) {
      std::erase_if(state.bytes, [&](const ByteEdge& edge) { return !ends[edge.target]; });
      std::erase_if(state.calls, [&](const CallEdge& edge) { return !ends[edge.target] || !rule_ends(edge.rule); });
    }
    return absl::OkStatus();
  }

  void Flatten() {
    const auto end = [&](bool accepting) {
      return Automaton::State{static_cast<uint32_t>(result_.byte_edges_.size()),
                              static_cast<uint32_t>(result_.call_edges_.size()), accepting};
    };
    for (const State& state : states_) {
      result_.states_.push_back(end(state.accepting));
      result_.byte_edges_.insert(result_.byte_edges_.end(), state.bytes.begin(), state.bytes.end());
      result_.call_edges_.insert(result_.call_edges_.end(), state.calls.begin(), state.calls.end());
    }
    result_.states_.push_back(end(false));
  }

  void FindByteClasses() {
    std::array<bool, 257> begins = {};
    for (const ByteEdge& edge : result_.byte_edges_) begins[edge.first] = begins[edge.last + 1] = true;
    int byte_class = 0;
    for (int byte = 0; byte < 256; ++byte) {
      if (byte > 0 && begins[byte]) ++byte_class;
      result_.class_of_[byte] = static_cast<uint8_t>(byte_class);
    }
    result_.byte_classes_ = byte_class + 1;
  }

  const Grammar& grammar_;
  CompileBudget& budget_;
  Automaton result_;
  std::vector<State> draft_;                               // of one rule, with empty edges
  std::vector<State> states_;                              // of all rules, without
  std::map<NodeId, std::vector<ByteSequence>> sequences_;  // of classes
  size_t edges_ = 0;
};

absl::StatusOr<Automaton> Automaton::Compile(const Grammar& grammar, CompileBudget& budget) {
  return AutomatonBuilder(grammar, budget).Build();
}

}  // namespace moestro::text::grammar
