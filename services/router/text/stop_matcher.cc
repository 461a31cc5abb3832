#include "services/router/text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace moestro::router {

StopMatcher::Pattern::Pattern(std::string stop) : text(std::move(stop)), borders(text.size()) {
  for (size_t i = 1, length = 0; i < text.size(); borders[i++] = length) {
    while (length > 0 && text[i] != text[length]) length = borders[length - 1];
    if (text[i] == text[length]) ++length;
  }
}

// REQUIRES: not complete.
void StopMatcher::Pattern::Push(char byte) {
  while (matched > 0 && byte != text[matched]) matched = borders[matched - 1];
  if (byte == text[matched]) ++matched;
}

StopMatcher::StopMatcher(const std::vector<std::string>& stops, bool keeps)
    : keeps_(keeps), patterns_(stops.begin(), stops.end()) {}

std::string StopMatcher::Push(std::string_view text) {
  if (!found_.empty()) return "";
  std::string pending = std::exchange(held_, {});
  for (const char byte : text) {
    pending += byte;
    for (Pattern& pattern : patterns_) {
      pattern.Push(byte);
      if (pattern.complete() && pattern.text.size() > found_.size()) found_ = pattern.text;
    }
    if (found_.empty()) continue;
    if (!keeps_) pending.erase(pending.size() - found_.size());
    return pending;
  }
  size_t held = 0;
  for (const Pattern& pattern : patterns_) held = std::max(held, pattern.matched);
  held_ = pending.substr(pending.size() - held);
  pending.erase(pending.size() - held);
  return pending;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

}  // namespace moestro::router
