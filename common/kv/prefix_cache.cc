#include "common/kv/prefix_cache.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "common/base/check.h"

namespace moestro::kv {

size_t PrefixCache::Hash::operator()(const Key& key) const {
  return absl::HashOf(key.scope, key.parent, absl::MakeConstSpan(key.tokens.data(), key.tokens.size()));
}

bool PrefixCache::Equal::operator()(uint32_t page, const Key& key) const {
  const Entry& entry = cache->nodes_[page];
  return entry.scope == key.scope && entry.parent == key.parent && std::ranges::equal(entry.tokens, key.tokens);
}

PrefixCache::PrefixCache(int64_t page_tokens, int64_t page_count)
    : page_tokens_(page_tokens), nodes_(page_count), index_(page_count, Hash{this}, Equal{this}) {
  MOE_CHECK(page_tokens > 0 && page_count <= kRoot);
}

std::vector<uint32_t> PrefixCache::Match(const std::string& scope, std::span<const int32_t> tokens) const {
  std::vector<uint32_t> pages;
  const auto known = scope_index_.find(scope);
  if (known == scope_index_.end()) return pages;
  Node node = kRoot;
  while (static_cast<int64_t>(tokens.size()) >= page_tokens_) {
    const auto next = index_.find(Key{known->second, node, tokens.first(page_tokens_)});
    if (next == index_.end()) break;
    node = *next;
    pages.push_back(node);
    tokens = tokens.subspan(page_tokens_);
  }
  return pages;
}

uint32_t PrefixCache::FindOrAddScope(const std::string& name) {
  if (const auto known = scope_index_.find(name); known != scope_index_.end()) return known->second;
  if (free_scopes_.empty()) {
    free_scopes_.push_back(static_cast<uint32_t>(scopes_.size()));
    scopes_.emplace_back();
  }
  const uint32_t scope = free_scopes_.back();
  free_scopes_.pop_back();
  scopes_[scope].name = name;
  scope_index_.emplace(name, scope);
  return scope;
}

void PrefixCache::Unlist(const Scope& scope) {
  if (scope.idle_leaves.empty()) return;
  const Leaf& leaf = *scope.idle_leaves.begin();
  by_age_.erase(leaf);
  by_size_.erase({-scope.pages, leaf.first, leaf.second});
}

void PrefixCache::List(const Scope& scope) {
  if (scope.idle_leaves.empty()) return;
  const Leaf& leaf = *scope.idle_leaves.begin();
  by_age_.insert(leaf);
  by_size_.insert({-scope.pages, leaf.first, leaf.second});
}

uint64_t PrefixCache::SpaceTime(const Leaf& leaf) const {
  const auto& [last_use, page] = leaf;
  return static_cast<uint64_t>(scopes_[nodes_[page].scope].pages) * (clock_ + 1 - last_use);
}

void PrefixCache::HoldOne(uint32_t page) {
  Entry& entry = nodes_[page];
  if (entry.holds == 0) {
    --idle_;
    ++held_;
    if (entry.children == 0) scopes_[entry.scope].idle_leaves.erase({entry.last_use, page});
  }
  if (++entry.holds == 2) ++shared_;
  entry.last_use = clock_;
}

void PrefixCache::DropOne(uint32_t page) {
  Entry& entry = nodes_[page];
  MOE_CHECK(entry.holds > 0);
  entry.last_use = clock_;
  if (entry.holds-- == 2) --shared_;
  if (entry.holds > 0) return;
  --held_;
  ++idle_;
  if (entry.children == 0) scopes_[entry.scope].idle_leaves.emplace(entry.last_use, page);
}

void PrefixCache::Hold(Node node) {
  ++clock_;
  if (node == kRoot) return;
  MOE_CHECK(Contains(node));
  const Scope& scope = scopes_[nodes_[node].scope];
  Unlist(scope);
  for (; node != kRoot; node = nodes_[node].parent) HoldOne(node);
  List(scope);
}

void PrefixCache::Drop(Node node) {
  ++clock_;
  if (node == kRoot) return;
  const Scope& scope = scopes_[nodes_[node].scope];
  Unlist(scope);
  for (; node != kRoot; node = nodes_[node].parent) DropOne(node);
  List(scope);
}

PrefixCache::Node PrefixCache::Extend(const std::string& scope_name, Node node, std::span<const int32_t> tokens,
                                      uint32_t page) {
  MOE_CHECK(static_cast<int64_t>(tokens.size()) == page_tokens_ && (node == kRoot || nodes_[node].holds > 0));
  const uint32_t index = FindOrAddScope(scope_name);
  MOE_CHECK(node == kRoot || nodes_[node].scope == index);
  Scope& scope = scopes_[index];
  Unlist(scope);
  const auto next = index_.find(Key{index, node, tokens});
  const Node result = next == index_.end() ? page : *next;
  if (next != index_.end()) {
    HoldOne(result);
  } else {
    MOE_CHECK(!Contains(page));
    nodes_[page] = {
        .tokens = {tokens.begin(), tokens.end()}, .scope = index, .parent = node, .holds = 1, .last_use = clock_};
    ++held_;
    ++scope.pages;
    if (node != kRoot) ++nodes_[node].children;
    index_.insert(page);
  }
  List(scope);
  return result;
}

void PrefixCache::Forget(Node node) {
  if (node == kRoot) return;
  while (nodes_[node].parent != kRoot) node = nodes_[node].parent;
  Entry& first = nodes_[node];
  if (!first.forgotten) index_.erase(index_.find(KeyOf(node)));
  first.forgotten = true;
}

uint32_t PrefixCache::Evict() {
  MOE_CHECK(!by_age_.empty());
  const Leaf oldest = *by_age_.begin();
  const auto& [size, last_use, largest_page] = *by_size_.begin();
  const Leaf largest = {last_use, largest_page};
  const Leaf leaf = SpaceTime(largest) > SpaceTime(oldest) ? largest : oldest;
  const uint32_t page = leaf.second;
  Scope& scope = scopes_[nodes_[page].scope];
  Unlist(scope);
  scope.idle_leaves.erase(leaf);
  if (!nodes_[page].forgotten) index_.erase(index_.find(KeyOf(page)));
  const Node parent = nodes_[page].parent;
  if (parent != kRoot) {
    Entry& above = nodes_[parent];
    if (--above.children == 0 && above.holds == 0) scope.idle_leaves.emplace(above.last_use, parent);
  }
  if (--scope.pages == 0) {
    scope_index_.erase(scope.name);
    free_scopes_.push_back(nodes_[page].scope);
    scope.name.clear();
  }
  nodes_[page] = Entry{};
  --idle_;
  List(scope);
  return page;
}

}  // namespace moestro::kv
