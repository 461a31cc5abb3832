// What PrefixCache should do, done slowly: a map from whole prefixes to pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace moestro::testing {

using Tokens = std::vector<int32_t>;

class NaivePrefixTree {
 public:
  explicit NaivePrefixTree(int64_t page_tokens) : page_tokens_(page_tokens) {}

  std::vector<uint32_t> Match(const std::string& scope, std::span<const int32_t> tokens) const {
    std::vector<uint32_t> pages;
    for (const Tokens& prefix : Prefixes(tokens)) {
      const auto node = nodes_.find({scope, prefix});
      if (node == nodes_.end()) break;
      pages.push_back(node->second.page);
    }
    return pages;
  }

  // `prefix` is the whole path here, where PrefixCache names its last page.
  void Hold(const std::string& scope, std::span<const int32_t> prefix) { Count(scope, prefix, 1); }
  void Drop(const std::string& scope, std::span<const int32_t> prefix) { Count(scope, prefix, -1); }

  // True when `page` joined the tree as the last one of `prefix`.
  bool Extend(const std::string& scope, std::span<const int32_t> prefix, uint32_t page) {
    const auto [node, added] = nodes_.try_emplace({scope, Tokens(prefix.begin(), prefix.end())}, Node{.page = page});
    ++node->second.holds;
    node->second.last_use = clock_;
    return added;
  }

  // Of the oldest idle leaf and the oldest one of the largest scope, that with the greater space-time product.
  uint32_t Evict() {
    auto oldest = nodes_.end();
    auto largest = nodes_.end();
    for (auto node = nodes_.begin(); node != nodes_.end(); ++node) {
      if (node->second.holds > 0 || HasChildren(node)) continue;
      if (oldest == nodes_.end() || Age(node) < Age(oldest)) oldest = node;
      if (largest == nodes_.end() || std::pair(-Pages(node), Age(node)) < std::pair(-Pages(largest), Age(largest))) {
        largest = node;
      }
    }
    const auto leaf = SpaceTime(largest) > SpaceTime(oldest) ? largest : oldest;
    const uint32_t page = leaf->second.page;
    nodes_.erase(leaf);
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
  int64_t scopes() const {
    std::set<std::string> names;
    for (const auto& [key, node] : nodes_) names.insert(key.first);
    return static_cast<int64_t>(names.size());
  }

 private:
  struct Node {
    uint32_t page = 0;
    int holds = 0;
    uint64_t last_use = 0;
  };
  using Map = std::map<std::pair<std::string, Tokens>, Node>;  // by scope and prefix

  std::vector<Tokens> Prefixes(std::span<const int32_t> tokens) const {
    std::vector<Tokens> prefixes;
    for (int64_t end = page_tokens_; end <= static_cast<int64_t>(tokens.size()); end += page_tokens_) {
      prefixes.emplace_back(tokens.begin(), tokens.begin() + end);
    }
    return prefixes;
  }

  void Count(const std::string& scope, std::span<const int32_t> tokens, int holds) {
    ++clock_;
    for (const Tokens& prefix : Prefixes(tokens)) {
      Node& node = nodes_.at({scope, prefix});
      node.holds += holds;
      node.last_use = clock_;
    }
  }

  // In lexicographic order a prefix stands right before what begins with it.
  bool HasChildren(Map::const_iterator node) const {
    const auto next = std::next(node);
    if (next == nodes_.end() || next->first.first != node->first.first) return false;
    const Tokens& prefix = node->first.second;
    const Tokens& after = next->first.second;
    return after.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), after.begin());
  }

  static std::pair<uint64_t, uint32_t> Age(Map::const_iterator node) {
    return {node->second.last_use, node->second.page};
  }
  // Of the node's scope.
  int64_t Pages(Map::const_iterator node) const {
    return std::ranges::count_if(nodes_, [&](const auto& other) { return other.first.first == node->first.first; });
  }
  int64_t SpaceTime(Map::const_iterator node) const {
    return Pages(node) * static_cast<int64_t>(clock_ + 1 - node->second.last_use);
  }

  const int64_t page_tokens_;
  Map nodes_;
  uint64_t clock_ = 0;
};

}  // namespace moestro::testing
