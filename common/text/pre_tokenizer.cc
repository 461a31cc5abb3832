#include "common/text/pre_tokenizer.h"

#include <utility>

#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "common/text/utf8.h"

namespace moestro::text {

absl::StatusOr<PreTokenizer> PreTokenizer::Create(std::span<const SplitStep> steps) {
  std::vector<Step> compiled;
  for (const SplitStep& step : steps) {
    MOE_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(step.pattern));
    compiled.push_back({std::move(regex), step.keeps});
  }
  return PreTokenizer(std::move(compiled));
}

absl::StatusOr<std::vector<std::string_view>> PreTokenizer::Split(std::string_view text, size_t max_pieces) const {
  std::vector<std::string_view> pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const Step& step : steps_) {
    MOE_ASSIGN_OR_RETURN(pieces, step.regex.Split(pieces, step.keeps, max_pieces));
  }
  return pieces;
}

std::string Metaspace::Mark(std::string_view text, bool at_start) const {
  std::string marked = absl::StrReplaceAll(std::string(text), {{" ", mark}});
  const bool prepends = prepend == Prepend::kAlways || (prepend == Prepend::kFirst && at_start);
  if (prepends && !text.empty() && !marked.starts_with(mark)) marked.insert(0, mark);
  return marked;
}

std::vector<std::string_view> Metaspace::Split(std::string_view marked) const {
  std::vector<std::string_view> pieces;
  while (!marked.empty()) {
    const size_t end = split ? marked.find(mark, Utf8Length(marked[0])) : std::string_view::npos;
    pieces.push_back(marked.substr(0, end));
    marked.remove_prefix(pieces.back().size());
  }
  return pieces;
}

}  // namespace moestro::text
