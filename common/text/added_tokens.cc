#include "common/text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "common/text/unicode_word.h"
#include "common/text/utf8.h"

namespace moestro::text {
namespace {

uint64_t ChildKey(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<unsigned char>(byte); }

// Start of the last code point of `text`, which is not empty.
size_t LastCodePoint(std::string_view text) {
  size_t offset = text.size() - 1;
  while (offset > 0 && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80) --offset;
  return offset;
}

bool EndsWithWord(std::string_view text) { return !text.empty() && IsWord(text.substr(LastCodePoint(text))); }

bool StartsWithWord(std::string_view text) { return !text.empty() && IsWord(text.substr(0, Utf8Length(text[0]))); }

// Start of the white space at the end of text[0, end).
size_t SkipSpaceBack(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t last = LastCodePoint(text.substr(0, end));
    if (!IsUnicodeSpace(ReadUtf8(text, last).code_point)) break;
    end = last;
  }
  return end;
}

size_t SkipSpace(std::string_view text, size_t start) {
  while (start < text.size()) {
    const Utf8Step step = ReadUtf8(text, start);
    if (!IsUnicodeSpace(step.code_point)) break;
    start += step.length;
  }
  return start;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), token_at_(1, -1) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    uint32_t node = 0;
    for (const char byte : content) {
      const auto next = static_cast<uint32_t>(token_at_.size());
      const auto [child, is_new] = children_.try_emplace(ChildKey(node, byte), next);
      if (is_new) token_at_.push_back(-1);
      node = child->second;
    }
    token_at_[node] = static_cast<int32_t>(i);
    starts_[static_cast<unsigned char>(content[0])] = true;
  }
}

AddedTokenMatcher::Match AddedTokenMatcher::FindNext(std::string_view text, size_t start) const {
  for (size_t begin = start; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    Match longest{nullptr, begin, begin};
    uint32_t node = 0;
    for (size_t end = begin; end < text.size(); ++end) {
      const auto child = children_.find(ChildKey(node, text[end]));
      if (child == children_.end()) break;
      node = child->second;
      if (token_at_[node] >= 0) longest = {&tokens_[token_at_[node]], begin, end + 1};
    }
    if (longest.token != nullptr) return longest;
  }
  return {nullptr, text.size(), text.size()};
}

void AddedTokenMatcher::Split(std::string_view text, std::vector<Segment>* segments, size_t most) const {
  size_t tokens = 0;
  size_t done = 0;  // end of the segments so far
  for (Match match = FindNext(text, 0); match.token != nullptr; match = FindNext(text, match.end)) {
    size_t begin = match.begin;
    size_t end = match.end;
    if (match.token->single_word && (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) continue;
    if (match.token->lstrip) begin = std::max(SkipSpaceBack(text, begin), done);
    if (match.token->rstrip) end = SkipSpace(text, end);
    if (begin > done) segments->push_back({text.substr(done, begin - done), kPlainText});
    segments->push_back({text.substr(begin, end - begin), match.token->id});
    if (++tokens > most) return;
    // The previous token may have absorbed a white-space token; the next segment starts after both.
    done = std::max(done, end);
  }
  if (done < text.size()) segments->push_back({text.substr(done), kPlainText});
}

}  // namespace moestro::text
