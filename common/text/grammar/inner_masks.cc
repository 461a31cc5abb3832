#include "common/text/grammar/inner_masks.h"

#include <utility>

namespace moestro::text::grammar {
namespace {

// Of one grammar; it starts anew beyond. Those of a typical schema take some hundred KB.
constexpr size_t kMaxBytes = 16 * 1024 * 1024;

std::shared_ptr<const InnerMask> Compute(const TokenTrie& trie, int32_t state, Matcher& matcher) {
  const auto mask = std::make_shared<InnerMask>();
  const size_t most = trie.token_count() / 64;  // the ids take no more memory than bits would
  const auto allow = [&](uint32_t node) {
    for (const int32_t id : trie.tokens(node)) {
      if (mask->is_many) {
        mask->many.Allow(id);
        continue;
      }
      mask->few.push_back(id);
      if (mask->few.size() <= most) continue;
      mask->is_many = true;
      mask->many = TokenMask(trie.token_count());
      for (const int32_t known : std::exchange(mask->few, {})) mask->many.Allow(known);
    }
  };
  WalkTrie(trie, matcher, matcher.Inside(state), 1, trie.size(), [&](uint32_t node, Matcher::Configuration at) {
    allow(node);
    if (matcher.MayLeave(at) && trie.nodes()[node].end > node + 1) mask->exits.push_back(node);
  });
  return matcher.status().ok() ? mask : nullptr;
}

}  // namespace

std::shared_ptr<const InnerMask> InnerMasks::Get(int32_t state, Matcher& matcher) {
  {
    const MutexLock lock(mutex_);
    if (const auto known = masks_.find(state); known != masks_.end()) return known->second;
  }
  std::shared_ptr<const InnerMask> mask = Compute(*trie_, state, matcher);
  if (mask == nullptr) return nullptr;
  const size_t bytes = 128 + mask->few.capacity() * sizeof(int32_t) + mask->exits.capacity() * sizeof(uint32_t) +
                       (mask->is_many ? trie_->token_count() / 8 : 0);
  const MutexLock lock(mutex_);
  if (bytes_ + bytes > kMaxBytes) {
    masks_.clear();
    bytes_ = 0;
  }
  if (masks_.emplace(state, mask).second) bytes_ += bytes;
  return mask;
}

}  // namespace moestro::text::grammar
