#include "common/text/merge_breaks.h"

#include "common/text/utf8.h"

namespace moestro::text {
namespace {

uint64_t PairKey(char32_t left, char32_t right) { return uint64_t{left} << 32 | right; }

}  // namespace

MergeBreaks::MergeBreaks(const absl::flat_hash_map<std::string, int32_t>& vocabulary) {
  for (const auto& [token, id] : vocabulary) {
    if (token.empty()) continue;
    Utf8Step left = ReadUtf8(token, 0);
    for (size_t offset = left.length; offset < token.size();) {
      const Utf8Step right = ReadUtf8(token, offset);
      neighbours_.insert(PairKey(left.code_point, right.code_point));
      offset += right.length;
      left = right;
    }
  }
}

std::string_view MergeBreaks::FirstPiece(std::string_view text) const {
  Utf8Step left = ReadUtf8(text, 0);
  size_t end = left.length;
  while (end < text.size()) {
    const Utf8Step right = ReadUtf8(text, end);
    if (!neighbours_.contains(PairKey(left.code_point, right.code_point))) break;
    end += right.length;
    left = right;
  }
  return text.substr(0, end);
}

}  // namespace moestro::text
