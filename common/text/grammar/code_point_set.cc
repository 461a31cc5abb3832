#include "common/text/grammar/code_point_set.h"

#include <algorithm>
#include <utility>

namespace moestro::text::grammar {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

}  // namespace

CodePointSet::CodePointSet(std::vector<Range> ranges) {
  std::vector<Range> scalars;
  scalars.reserve(ranges.size() + 1);
  const auto add = [&](char32_t first, char32_t last) {
    if (first <= last) scalars.push_back({first, last});
  };
  for (const Range& range : ranges) {
    const char32_t last = std::min(range.last, kMaxCodePoint);
    add(range.first, std::min<char32_t>(last, kFirstSurrogate - 1));
    add(std::max<char32_t>(range.first, kLastSurrogate + 1), last);
  }
  std::sort(scalars.begin(), scalars.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  for (const Range& range : scalars) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePointSet CodePointSet::Of(std::string_view ascii) {
  std::vector<Range> ranges;
  for (const char c : ascii) ranges.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
  return CodePointSet(std::move(ranges));
}

CodePointSet CodePointSet::Complement() const {
  std::vector<Range> gaps;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) gaps.push_back({next, kMaxCodePoint});
  return CodePointSet(std::move(gaps));
}

CodePointSet CodePointSet::Intersection(const CodePointSet& other) const {
  std::vector<Range> common;
  for (size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const Range& a = ranges_[i];
    const Range& b = other.ranges_[j];
    if (std::max(a.first, b.first) <= std::min(a.last, b.last)) {
      common.push_back({std::max(a.first, b.first), std::min(a.last, b.last)});
    }
    a.last < b.last ? ++i : ++j;
  }
  return CodePointSet(std::move(common));
}

bool CodePointSet::Contains(char32_t code_point) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), code_point,
                                      [](char32_t value, const Range& range) { return value < range.first; });
  return after != ranges_.begin() && code_point <= std::prev(after)->last;
}

size_t CodePointSet::Count() const {
  size_t count = 0;
  for (const Range& range : ranges_) count += range.last - range.first + 1;
  return count;
}

}  // namespace moestro::text::grammar
