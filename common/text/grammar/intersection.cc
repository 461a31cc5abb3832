#include "common/text/grammar/intersection.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/status.h"

namespace moestro::text::grammar {
namespace {

// Of pairs of states, and of edges between them: some 3 MB.
constexpr size_t kMostPairs = 64 * 1024;
constexpr size_t kMostEdges = 256 * 1024;

}  // namespace

absl::StatusOr<Grammar> Intersect(const Automaton& a, const Automaton& b, CompileBudget& budget) {
  using Pair = std::pair<int32_t, int32_t>;
  std::vector<Pair> pairs;
  absl::flat_hash_map<Pair, int32_t> numbers;
  const auto number = [&](int32_t left, int32_t right) {
    const auto [entry, added] = numbers.try_emplace({left, right}, static_cast<int32_t>(pairs.size()));
    if (added) pairs.emplace_back(left, right);
    return entry->second;
  };
  Grammar::Graph graph;
  number(a.start(0), b.start(0));
  bool accepts = false;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [left, right] = pairs[i];
    const auto theirs = b.bytes(right);
    MOE_RETURN_IF_ERROR(budget.Spend(1 + std::ssize(a.bytes(left)) * (1 + std::ssize(theirs))));
    graph.accepting.push_back(a.accepting(left) && b.accepting(right));
    accepts |= graph.accepting.back();
    for (const Automaton::ByteEdge& mine : a.bytes(left)) {
      for (const Automaton::ByteEdge& other : theirs) {
        const uint8_t first = std::max(mine.first, other.first), last = std::min(mine.last, other.last);
        if (first > last) continue;
        graph.edges.push_back({static_cast<int32_t>(i), first, last, number(mine.target, other.target)});
      }
    }
    if (pairs.size() > kMostPairs || graph.edges.size() > kMostEdges) {
      return absl::InvalidArgumentError("what must hold at the same time is too large to be enforced");
    }
  }
  if (!accepts) return absl::NotFoundError("no text is in both");
  Grammar grammar;
  grammar.AddRule("(intersection)", grammar.FromGraph(std::move(graph)));
  return grammar;
}

}  // namespace moestro::text::grammar
