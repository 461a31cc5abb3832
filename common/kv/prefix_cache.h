// Maps token prefixes to the pages that hold their KV: a radix tree over whole pages. Keeps only page numbers; knows
// nothing of shared memory, leases or time. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace moestro::kv {

// Every page is a node. The edge to it is its page_tokens token ids; the path from the root spells the prefix whose KV
// its pages hold. KV depends on all preceding tokens, so equal tokens after different prefixes are different nodes.
//
// Each cache scope has its own tree: a prefix is found only in the scope that computed it. A scope exists as long as it
// has pages.
//
// A hold protects a path: none of its pages is evicted. Holds cover whole paths, so all pages below an idle page (one
// without holds) are idle too. Hence every idle page can be evicted, leaves first.
class PrefixCache {
 public:
  // The end of a prefix: its last page, or kRoot, the empty prefix of every scope.
  using Node = uint32_t;
  static constexpr Node kRoot = UINT32_MAX;

  // For pages [0, page_count), page_count < 2^32.
  PrefixCache(int64_t page_tokens, int64_t page_count);
  PrefixCache(const PrefixCache&) = delete;  // the index points into the nodes
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The pages, in order, of the longest prefix of `tokens` cached in `scope`. Ignores tokens after the last whole page.
  // Does not count as a use: the eviction order is unchanged.
  std::vector<uint32_t> Match(const std::string& scope, std::span<const int32_t> tokens) const;

  // Adds a hold on the path that ends at `node`, which must be in the tree or kRoot. Counts as a use of its pages.
  void Hold(Node node);
  // Ends a hold; also counts as a use.
  void Drop(Node node);

  // Moves a hold on `node` one page further: to the page cached for `tokens` (exactly page_tokens) after it. If there
  // is none, `page` joins the tree. Returns the page used; the hold still covers `node`. `scope`: that of `node`.
  Node Extend(const std::string& scope, Node node, std::span<const int32_t> tokens, uint32_t page);

  // Hides all prefixes that begin with the first page of the path to `node` from Match. The pages stay in the tree and
  // can be held, extended, dropped and evicted as before. The same tokens may be cached in other pages.
  void Forget(Node node);

  // Removes an idle leaf from its tree. REQUIRES: idle_pages() > 0.
  //
  // Within one scope, evicts the least recently used leaf. Between scopes, the space-time product decides: the pages of
  // a scope times the age of its oldest idle leaf. The victim is the globally oldest leaf, unless the largest scope has
  // a greater product; then it is that scope's oldest leaf. So a scope that floods the cache pays with its own pages:
  // from a scope n times smaller, it takes only pages at least n times as old as its own. And an unused scope
  // eventually loses its pages, however small it is.
  uint32_t Evict();

  bool Contains(uint32_t page) const { return !nodes_[page].tokens.empty(); }
  bool IsIdle(uint32_t page) const { return Contains(page) && nodes_[page].holds == 0; }

  int64_t held_pages() const { return held_; }                                  // at least one hold
  int64_t shared_pages() const { return shared_; }                              // two or more holds
  int64_t idle_pages() const { return idle_; }                                  // no holds: all of them can be evicted
  int64_t scopes() const { return static_cast<int64_t>(scope_index_.size()); }  // at most the pages in the trees

 private:
  using Leaf = std::pair<uint64_t, uint32_t>;  // last_use, page
  struct Scope {
    std::string name;
    int64_t pages = 0;
    std::set<Leaf> idle_leaves;  // idle pages without children: the first is evicted next
  };
  struct Entry {
    std::vector<int32_t> tokens;  // of this page; empty: not in a tree
    uint32_t scope = 0;           // index into scopes_
    Node parent = kRoot;
    bool forgotten = false;  // not in the index
    uint32_t children = 0;
    uint32_t holds = 0;
    uint64_t last_use = 0;  // value of clock_ at the last use
  };
  struct Key {
    uint32_t scope;
    Node parent;
    std::span<const int32_t> tokens;
  };
  // The index holds pages; lookups use (scope, parent, tokens).
  struct Hash {
    using is_transparent = void;
    size_t operator()(const Key& key) const;
    size_t operator()(uint32_t page) const { return (*this)(cache->KeyOf(page)); }
    const PrefixCache* cache;
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(uint32_t a, uint32_t b) const { return a == b; }
    bool operator()(uint32_t page, const Key& key) const;
    bool operator()(const Key& key, uint32_t page) const { return (*this)(page, key); }
    const PrefixCache* cache;
  };

  Key KeyOf(uint32_t page) const { return {nodes_[page].scope, nodes_[page].parent, nodes_[page].tokens}; }
  uint32_t FindOrAddScope(const std::string& name);
  void HoldOne(uint32_t page);
  void DropOne(uint32_t page);
  // Bracket every change of a scope's pages or idle leaves: remove it from the orders below, and reinsert it.
  void Unlist(const Scope& scope);
  void List(const Scope& scope);
  uint64_t SpaceTime(const Leaf& leaf) const;

  const int64_t page_tokens_;
  std::vector<Entry> nodes_;  // by page
  absl::flat_hash_set<uint32_t, Hash, Equal> index_;
  absl::flat_hash_map<std::string, uint32_t> scope_index_;  // by name
  std::vector<Scope> scopes_;
  std::vector<uint32_t> free_scopes_;  // indices of unused entries of scopes_
  // The first idle leaf of every scope that has one: ordered by age, and by pages of the scope, descending.
  std::set<Leaf> by_age_;
  std::set<std::tuple<int64_t, uint64_t, uint32_t>> by_size_;  // -pages, then the leaf
  uint64_t clock_ = 0;                                         // advances at each Hold and Drop
  int64_t held_ = 0;
  int64_t shared_ = 0;
  int64_t idle_ = 0;
};

}  // namespace moestro::kv
