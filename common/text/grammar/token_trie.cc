#include "common/text/grammar/token_trie.h"

#include <algorithm>
#include <string>

#include "common/text/grammar/grammar.h"

namespace moestro::text::grammar {
namespace {

// A longer token could be chosen only where a grammar wants its text, and no published vocabulary has one.
constexpr size_t kMaxTokenBytes = 1024;

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, int32_t token_count)
    : token_count_(token_count), stripped_spaces_(tokenizer.stripped_spaces()) {
  offsets_.reserve(token_count_ + 1);
  std::vector<int32_t> sorted;
  for (int32_t id = 0; id < token_count_; ++id) {
    offsets_.push_back(static_cast<uint32_t>(text_.size()));
    std::string token = tokenizer.DecodeBytes(id);
    if (token.empty() || token.size() > kMaxTokenBytes) continue;
    if (tokenizer.IsSpecial(id)) {
      token = SpecialTokenBytes(token);
    } else if (token.find(static_cast<char>(kSpecialTokenByte)) != std::string::npos) {
      continue;  // a part of no text: it must not be taken for the beginning of a special token
    }
    text_.insert(text_.end(), token.begin(), token.end());
    sorted.push_back(id);
  }
  offsets_.push_back(static_cast<uint32_t>(text_.size()));
  std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) { return bytes(a) < bytes(b); });
  nodes_.push_back({0, 0, 0, 0});
  std::vector<uint32_t> path = {0};  // the nodes of the last token
  std::string_view last;
  for (const int32_t id : sorted) {
    const std::string_view token = bytes(id);
    const size_t common = std::mismatch(last.begin(), last.end(), token.begin(), token.end()).first - last.begin();
    for (; path.size() > common + 1; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t i = common; i < token.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {0, static_cast<uint32_t>(tokens_.size()), static_cast<uint16_t>(i + 1), static_cast<uint8_t>(token[i])});
    }
    tokens_.push_back(id);
    depth_ = std::max(depth_, static_cast<int>(token.size()));
    last = token;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({0, static_cast<uint32_t>(tokens_.size()), 0, 0});
}

std::string_view TokenTrie::bytes(int32_t id) const {
  if (id < 0 || id >= token_count_) return {};
  return std::string_view(text_.data() + offsets_[id], offsets_[id + 1] - offsets_[id]);
}

}  // namespace moestro::text::grammar
