// Sets of Unicode scalar values.
#pragma once

#include <string_view>
#include <vector>

namespace moestro::text::grammar {

inline constexpr char32_t kMaxCodePoint = 0x10FFFF;

// Immutable: disjoint, ascending ranges with gaps between them. Surrogates are never in a set.
class CodePointSet {
 public:
  struct Range {
    char32_t first;
    char32_t last;  // inclusive
    bool operator==(const Range&) const = default;
  };

  CodePointSet() = default;
  // The union of ranges in any order. A range whose last is below its first is empty.
  explicit CodePointSet(std::vector<Range> ranges);
  static CodePointSet All() { return CodePointSet({{0, kMaxCodePoint}}); }
  // The ASCII characters of a text.
  static CodePointSet Of(std::string_view ascii);

  CodePointSet Complement() const;
  CodePointSet Intersection(const CodePointSet& other) const;
  CodePointSet Without(const CodePointSet& other) const { return Intersection(other.Complement()); }

  bool empty() const { return ranges_.empty(); }
  bool Contains(char32_t code_point) const;
  size_t Count() const;
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

}  // namespace moestro::text::grammar
