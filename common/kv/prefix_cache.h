// Which pages hold the KV of which token prefixes: a radix tree over whole pages. Pure bookkeeping of page numbers; it
// knows nothing of shared memory, leases or time. Not thread-safe.
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

namespace moestro {

// Every page is a node: the edge to it is its page_tokens token ids, and the path from the root spells the prefix whose
// KV the pages on it hold. KV depends on all tokens before it, so equal tokens in other places are other nodes.
//
// Each cache scope has a tree of its own: a prefix is found in the scope that computed it and in no other. A scope is
// kept as long as it has pages.
//
// A hold keeps a path: none of its pages is evicted. Holds lie on whole paths, so what lies below an idle page (one
// that nobody holds) is idle too, and every idle page can be evicted, leaves first.
class PrefixCache {
 public:
  // The end of a prefix: its last page, or kRoot, the empty prefix of every scope.
  using Node = uint32_t;
  static constexpr Node kRoot = UINT32_MAX;

  // For pages [0, page_count), page_count < 2^32.
  PrefixCache(int64_t page_tokens, int64_t page_count);
  PrefixCache(const PrefixCache&) = delete;  // the index points into the nodes
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The pages, in order, of the longest prefix of `tokens` that is cached in `scope`. Tokens after the last whole page
  // are ignored. Is not a use: the order of eviction stays.
  std::vector<uint32_t> Match(const std::string& scope, std::span<const int32_t> tokens) const;

  // One more hold on the path that ends at `node`, which must be in the tree or kRoot. A use of its pages.
  void Hold(Node node);
  // Ends a hold; also a use.
  void Drop(Node node);

  // Moves a hold on `node` one page on: to the page that is cached for `tokens` (exactly page_tokens) after it, or, if
  // there is none, to `page`, which joins the tree. The result says which; the hold covers `node` as before. `scope`:
  // that of `node`.
  Node Extend(const std::string& scope, Node node, std::span<const int32_t> tokens, uint32_t page);

  // Whatever begins with the first page of the path to `node` is not found any more. The pages stay in the tree, to be
  // held, extended, dropped and evicted as before; the same tokens may be cached in other pages.
  void Forget(Node node);

  // Takes an idle leaf out of its tree. There must be one: idle_pages() > 0.
  //
  // It is the least recently used leaf, as long as one scope holds everything. Between scopes the space-time product
  // decides, pages of a scope times the age of its oldest idle leaf: either the oldest leaf of all goes, or that of the
  // largest scope if its product is greater. So a scope that floods the cache pays with its own pages: from one that is
  // n times smaller it takes none that are less than n times as old as its own. And a scope that nobody uses any more
  // gives up its pages in the end, however small it is.
  uint32_t Evict();

  bool Contains(uint32_t page) const { return !nodes_[page].tokens.empty(); }
  bool IsIdle(uint32_t page) const { return Contains(page) && nodes_[page].holds == 0; }

  int64_t held_pages() const { return held_; }                                  // with at least one hold
  int64_t shared_pages() const { return shared_; }                              // with two or more
  int64_t idle_pages() const { return idle_; }                                  // with none: all of them can be evicted
  int64_t scopes() const { return static_cast<int64_t>(scope_index_.size()); }  // at most the pages in the trees

 private:
  using Leaf = std::pair<uint64_t, uint32_t>;  // last_use, page
  struct Scope {
    std::string name;
    int64_t pages = 0;
    std::set<Leaf> idle_leaves;  // idle pages without children: the next to be evicted is the first
  };
  struct Entry {
    std::vector<int32_t> tokens;  // of this page; empty: in no tree
    uint32_t scope = 0;           // index into scopes_
    Node parent = kRoot;
    bool forgotten = false;  // not in the index
    uint32_t children = 0;
    uint32_t holds = 0;
    uint64_t last_use = 0;  // clock_ at that time
  };
  struct Key {
    uint32_t scope;
    Node parent;
    std::span<const int32_t> tokens;
  };
  // The index holds pages and is asked for (scope, parent, tokens).
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
  // Around every change of a scope's pages or idle leaves: takes it out of the orders below, and puts it back.
  void Unlist(const Scope& scope);
  void List(const Scope& scope);
  uint64_t SpaceTime(const Leaf& leaf) const;

  const int64_t page_tokens_;
  std::vector<Entry> nodes_;  // by page
  absl::flat_hash_set<uint32_t, Hash, Equal> index_;
  absl::flat_hash_map<std::string, uint32_t> scope_index_;  // by name
  std::vector<Scope> scopes_;
  std::vector<uint32_t> free_scopes_;  // indexes of scopes_ that no page has
  // The first idle leaf of every scope that has one: the oldest first, and that of the scope with most pages first.
  std::set<Leaf> by_age_;
  std::set<std::tuple<int64_t, uint64_t, uint32_t>> by_size_;  // -pages, then the leaf
  uint64_t clock_ = 0;                                         // one tick per Hold and Drop
  int64_t held_ = 0;
  int64_t shared_ = 0;
  int64_t idle_ = 0;
};

}  // namespace moestro
