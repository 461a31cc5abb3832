// Which pages hold the KV of which token prefixes: a radix tree over whole pages. Pure bookkeeping of page numbers; it
// knows nothing of shared memory, leases or time. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace moestro {

// Every page is a node: the edge to it is its page_tokens token ids, and the path from the root spells the prefix whose
// KV the pages on it hold. KV depends on all tokens before it, so equal tokens in other places are other nodes.
//
// A hold keeps a path: none of its pages is evicted. Holds lie on whole paths, so what lies below an idle page (one
// that nobody holds) is idle too, and every idle page can be evicted, leaves first.
class PrefixCache {
 public:
  // The end of a prefix: its last page, or kRoot, the empty prefix.
  using Node = uint32_t;
  static constexpr Node kRoot = UINT32_MAX;

  // For pages [0, page_count), page_count < 2^32.
  PrefixCache(int64_t page_tokens, int64_t page_count);
  PrefixCache(const PrefixCache&) = delete;  // the index points into the nodes
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The pages, in order, of the longest prefix of `tokens` that is cached. Tokens after the last whole page are
  // ignored. Is not a use: the order of eviction stays.
  std::vector<uint32_t> Match(std::span<const int32_t> tokens) const;

  // One more hold on the path that ends at `node`, which must be in the tree or kRoot. A use of its pages.
  void Hold(Node node);
  // Ends a hold; also a use.
  void Drop(Node node);

  // Moves a hold on `node` one page on: to the page that is cached for `tokens` (exactly page_tokens) after it, or, if
  // there is none, to `page`, which joins the tree. The result says which; the hold covers `node` as before.
  Node Extend(Node node, std::span<const int32_t> tokens, uint32_t page);

  // Takes the least recently used leaf among the idle pages out of the tree. There must be one: idle_pages() > 0.
  uint32_t Evict();

  bool Contains(uint32_t page) const { return !nodes_[page].tokens.empty(); }
  bool IsIdle(uint32_t page) const { return Contains(page) && nodes_[page].holds == 0; }

  int64_t held_pages() const { return held_; }      // with at least one hold
  int64_t shared_pages() const { return shared_; }  // with two or more
  int64_t idle_pages() const { return idle_; }      // with none: all of them can be evicted

 private:
  struct Entry {
    std::vector<int32_t> tokens;  // of this page; empty: not in the tree
    Node parent = kRoot;
    uint32_t children = 0;
    uint32_t holds = 0;
    uint64_t last_use = 0;  // clock_ at that time
  };
  struct Key {
    Node parent;
    std::span<const int32_t> tokens;
  };
  // The index holds pages and is asked for (parent, tokens).
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

  Key KeyOf(uint32_t page) const { return {nodes_[page].parent, nodes_[page].tokens}; }
  void HoldOne(uint32_t page);
  void DropOne(uint32_t page);

  const int64_t page_tokens_;
  std::vector<Entry> nodes_;  // by page
  absl::flat_hash_set<uint32_t, Hash, Equal> index_;
  // Idle pages without children as (last_use, page): the next to be evicted is the first.
  std::set<std::pair<uint64_t, uint32_t>> idle_leaves_;
  uint64_t clock_ = 0;  // one tick per Hold and Drop
  int64_t held_ = 0;
  int64_t shared_ = 0;
  int64_t idle_ = 0;
};

}  // namespace moestro
