#include "services/router/output/markers.h"

#include <algorithm>
#include <utility>

namespace moestro::router {

MarkerSet::MarkerSet(std::vector<std::string> markers) : markers_(std::move(markers)) {
  std::erase(markers_, "");
  std::ranges::sort(markers_);
  for (const std::string& marker : markers_) starts_[static_cast<unsigned char>(marker[0])] = true;
}

// Narrows the sorted markers, byte by byte, to those that begin like the text. The shortest comes first.
MarkerSet::Match MarkerSet::At(std::string_view text) const {
  Match match;
  if (text.empty() || !starts_[static_cast<unsigned char>(text[0])]) return match;
  auto first = markers_.begin();
  auto last = markers_.end();
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto byte_of = [i](const std::string& marker) { return static_cast<unsigned char>(marker[i]); };
    first = std::ranges::lower_bound(first, last, byte, {}, byte_of);
    last = std::ranges::upper_bound(first, last, byte, {}, byte_of);
    for (; first != last && first->size() == i + 1; ++first) match.size = i + 1;
    if (first == last) return match;
  }
  match.may_grow = true;
  return match;
}

std::string_view Trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

void PendingText::Append(std::string_view text) {
  text_.erase(0, begin_);
  begin_ = 0;
  text_ += text;
}

std::string_view PendingText::Take(size_t bytes) {
  const std::string_view taken = rest().substr(0, bytes);
  begin_ += taken.size();
  return taken;
}

size_t PendingText::SpaceSize() const { return std::min(rest().find_first_not_of(kSpace), rest().size()); }

PendingText::Cut PendingText::TakeUntil(const MarkerSet& markers) {
  const std::string_view text = rest();
  for (size_t i = 0; i < text.size(); ++i) {
    const MarkerSet::Match match = markers.At(text.substr(i));
    if (match.may_grow && !ended_) return {.before = Take(i), .marker = {}};
    if (match.size == 0) continue;
    const std::string_view before = Take(i);
    return {.before = before, .marker = Take(match.size)};
  }
  return {.before = Take(text.size()), .marker = {}};
}

PendingText::Next PendingText::TakeMarker(const MarkerSet& markers, std::string_view* marker) {
  const MarkerSet::Match match = markers.At(rest());
  if ((rest().empty() || match.may_grow) && !ended_) return Next::kUnknown;
  *marker = Take(match.size);
  return match.size > 0 ? Next::kMarker : Next::kOther;
}

}  // namespace moestro::router
