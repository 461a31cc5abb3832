#include "common/kv/prefix_cache.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "common/base/check.h"

namespace moestro {

size_t PrefixCache::Hash::operator()(const Key& key) const {
  return absl::HashOf(key.parent, absl::MakeConstSpan(key.tokens.data(), key.tokens.size()));
}

bool PrefixCache::Equal::operator()(uint32_t page, const Key& key) const {
  const Entry& entry = cache->nodes_[page];
  return entry.parent == key.parent && std::ranges::equal(entry.tokens, key.tokens);
}

PrefixCache::PrefixCache(int64_t page_tokens, int64_t page_count)
    : page_tokens_(page_tokens), nodes_(page_count), index_(page_count, Hash{this}, Equal{this}) {
  MOE_CHECK(page_tokens > 0 && page_count <= kRoot);
}

std::vector<uint32_t> PrefixCache::Match(std::span<const int32_t> tokens) const {
  std::vector<uint32_t> pages;
  Node node = kRoot;
  while (static_cast<int64_t>(tokens.size()) >= page_tokens_) {
    const auto next = index_.find(Key{node, tokens.first(page_tokens_)});
    if (next == index_.end()) break;
    node = *next;
    pages.push_back(node);
    tokens = tokens.subspan(page_tokens_);
  }
  return pages;
}

void PrefixCache::HoldOne(uint32_t page) {
  Entry& entry = nodes_[page];
  if (entry.holds == 0) {
    --idle_;
    ++held_;
    if (entry.children == 0) idle_leaves_.erase({entry.last_use, page});
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
  if (entry.children == 0) idle_leaves_.emplace(entry.last_use, page);
}

void PrefixCache::Hold(Node node) {
  ++clock_;
  for (; node != kRoot; node = nodes_[node].parent) {
    MOE_CHECK(Contains(node));
    HoldOne(node);
  }
}

void PrefixCache::Drop(Node node) {
  ++clock_;
  for (; node != kRoot; node = nodes_[node].parent) DropOne(node);
}

PrefixCache::Node PrefixCache::Extend(Node node, std::span<const int32_t> tokens, uint32_t page) {
  MOE_CHECK(static_cast<int64_t>(tokens.size()) == page_tokens_ && (node == kRoot || nodes_[node].holds > 0));
  if (const auto next = index_.find(Key{node, tokens}); next != index_.end()) {
    HoldOne(*next);
    return *next;
  }
  MOE_CHECK(!Contains(page));
  nodes_[page] = {.tokens = {tokens.begin(), tokens.end()}, .parent = node, .holds = 1, .last_use = clock_};
  ++held_;
  if (node != kRoot) ++nodes_[node].children;
  index_.insert(page);
  return page;
}

uint32_t PrefixCache::Evict() {
  MOE_CHECK(!idle_leaves_.empty());
  const uint32_t page = idle_leaves_.begin()->second;
  idle_leaves_.erase(idle_leaves_.begin());
  index_.erase(index_.find(KeyOf(page)));
  const Node parent = nodes_[page].parent;
  nodes_[page] = Entry{};
  --idle_;
  if (parent == kRoot) return page;
  Entry& above = nodes_[parent];
  if (--above.children == 0 && above.holds == 0) idle_leaves_.emplace(above.last_use, parent);
  return page;
}

}  // namespace moestro
