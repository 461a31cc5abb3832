// What the states of a grammar say of the next token, whoever called their rule.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/base/mutex.h"
#include "common/text/grammar/matcher.h"
#include "common/text/grammar/token_mask.h"
#include "common/text/grammar/token_trie.h"

namespace moestro::text::grammar {

// Visits all nodes of the trie in [begin, end) that the matcher reaches: visit(node, configuration). All hang below one
// node, at `from`.
template <typename Visit>
void WalkTrie(const TokenTrie& trie, Matcher& matcher, Matcher::Configuration from, uint32_t begin, uint32_t end,
              Visit visit) {
  if (begin >= end) return;
  const TokenTrie::Node* nodes = trie.nodes().data();
  std::vector<Matcher::Configuration> path(trie.depth() + 1);  // by depth
  path[nodes[begin].depth - 1] = from;
  int64_t steps = 0;
  for (uint32_t node = begin; node < end; ++steps) {
    const Matcher::Configuration next = matcher.Next(path[nodes[node].depth - 1], nodes[node].byte);
    if (next == Matcher::kDead) {
      node = nodes[node].end;
      continue;
    }
    path[nodes[node].depth] = next;
    visit(node, next);
    ++node;
  }
  matcher.Spend(steps / 16);  // looks into a table, each far cheaper than a step of the matcher
}

// The part of a mask that a state decides alone, and where the rest begins.
struct InnerMask {
  std::vector<int32_t> few;  // the tokens that stay in the rule or just end it, if they are few
  TokenMask many;            // otherwise; else without ids
  bool is_many = false;
  std::vector<uint32_t> exits;  // nodes of the trie with nodes below at which the rule may end
};

// Computed at first use, then shared by all requests with one grammar. Thread-safe.
class InnerMasks {
 public:
  explicit InnerMasks(std::shared_ptr<const TokenTrie> trie) : trie_(std::move(trie)) {}

  // Null if the matcher failed.
  std::shared_ptr<const InnerMask> Get(int32_t state, Matcher& matcher);

 private:
  std::shared_ptr<const TokenTrie> trie_;
  Mutex mutex_;
  absl::flat_hash_map<int32_t, std::shared_ptr<const InnerMask>> masks_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moestro::text::grammar
