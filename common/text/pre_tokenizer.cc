#include "common/text/pre_tokenizer.h"

#include <utility>

#include "common/base/status.h"

namespace moestro::text {

absl::StatusOr<PreTokenizer> PreTokenizer::Create(std::span<const std::string_view> patterns) {
  std::vector<Regex> splits;
  for (const std::string_view pattern : patterns) {
    MOE_ASSIGN_OR_RETURN(Regex split, Regex::Compile(pattern));
    splits.push_back(std::move(split));
  }
  return PreTokenizer(std::move(splits));
}

absl::StatusOr<std::vector<std::string_view>> PreTokenizer::Split(std::string_view text, size_t max_pieces) const {
  std::vector<std::string_view> pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const Regex& split : splits_) {
    MOE_ASSIGN_OR_RETURN(pieces, split.SplitIsolated(pieces, max_pieces));
  }
  return pieces;
}

}  // namespace moestro::text
