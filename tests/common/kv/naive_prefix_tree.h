// What PrefixCache should do, done slowly: a map from whole prefixes to pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

namespace moestro::testing {

using Tokens = std::vector<int32_t>;

class NaivePrefixTree {
 public:
  explicit NaivePrefixTree(int64_t page_tokens) : page_tokens_(page_tokens) {}

  std::vector<uint32_t> Match(std::span<const int32_t> tokens) const {
    std::vector<uint32_t> pages;
    for (const Tokens& prefix : Prefixes(tokens)) {
      const auto node = nodes_.find(prefix);
      if (node == nodes_.end()) break;
      pages.push_back(node->second.page);
    }
    return pages;
  }

  // `prefix` is the whole path here, where PrefixCache names its last page.
  void Hold(std::span<const int32_t> prefix) { Count(prefix, 1); }
  void Drop(std::span<const int32_t> prefix) { Count(prefix, -1); }

  // True when `page` joined the tree as the last one of `prefix`.
  bool Extend(std::span<const int32_t> prefix, uint32_t page) {
    const auto [node, added] = nodes_.try_emplace(Tokens(prefix.begin(), prefix.end()), Node{.page = page});
    ++node->second.holds;
    node->second.last_use = clock_;
    return added;
  }

  uint32_t Evict() {
    auto oldest = nodes_.end();
    for (auto node = nodes_.begin(); node != nodes_.end(); ++node) {
      if (node->second.holds > 0 || HasChildren(node)) continue;
      if (oldest == nodes_.end() || Order(node->second) < Order(oldest->second)) oldest = node;
    }
    const uint32_t page = oldest->second.page;
    nodes_.erase(oldest);
    return page;
  }

  bool Contains(uint32_t page) const {
    return std::ranges::any_of(nodes_, [&](const auto& node) { return node.second.page == page; });
  }
  bool IsIdle(uint32_t page) const {
    return std::ranges::any_of(nodes_,
                               [&](const auto& node) { return node.second.page == page && node.second.holds == 0; });
  }
  // Pages with between `least` and `most` holds.
  int64_t CountHeld(int least, int most) const {
    return std::ranges::count_if(
        nodes_, [&](const auto& node) { return node.second.holds >= least && node.second.holds <= most; });
  }
  int64_t idle_pages() const { return CountHeld(0, 0); }
  int64_t held_pages() const { return CountHeld(1, INT32_MAX); }
  int64_t shared_pages() const { return CountHeld(2, INT32_MAX); }

 private:
  struct Node {
    uint32_t page = 0;
    int holds = 0;
    uint64_t last_use = 0;
  };
  using Map = std::map<Tokens, Node>;

  std::vector<Tokens> Prefixes(std::span<const int32_t> tokens) const {
    std::vector<Tokens> prefixes;
    for (int64_t end = page_tokens_; end <= static_cast<int64_t>(tokens.size()); end += page_tokens_) {
      prefixes.emplace_back(tokens.begin(), tokens.begin() + end);
    }
    return prefixes;
  }

  void Count(std::span<const int32_t> tokens, int holds) {
    ++clock_;
    for (const Tokens& prefix : Prefixes(tokens)) {
      Node& node = nodes_.at(prefix);
      node.holds += holds;
      node.last_use = clock_;
    }
  }

  // In lexicographic order a prefix stands right before what begins with it.
  bool HasChildren(Map::const_iterator node) const {
    const auto next = std::next(node);
    return next != nodes_.end() && next->first.size() > node->first.size() &&
           std::equal(node->first.begin(), node->first.end(), next->first.begin());
  }

  static std::tuple<uint64_t, uint32_t> Order(const Node& node) { return {node.last_use, node.page}; }

  const int64_t page_tokens_;
  Map nodes_;
  uint64_t clock_ = 0;
};

}  // namespace moestro::testing
