// Splits text into the pieces that merges never cross.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/regex.h"

namespace moestro::text {

struct SplitStep {
  std::string pattern;  // Oniguruma's syntax
  SplitKeeps keeps = SplitKeeps::kAll;
};

// A sequence of splits; each applies to every piece of the previous one. Immutable and thread-safe.
class PreTokenizer {
 public:
  // Without steps the text stays whole.
  static absl::StatusOr<PreTokenizer> Create(std::span<const SplitStep> steps);

  // The pieces of `text`, which must be valid UTF-8. Pieces are not empty, point into the text and cover it, but for
  // what a step drops. OUT_OF_RANGE for more than `max_pieces`.
  absl::StatusOr<std::vector<std::string_view>> Split(std::string_view text, size_t max_pieces = SIZE_MAX) const;

 private:
  struct Step {
    Regex regex;
    SplitKeeps keeps;
  };
  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  std::vector<Step> steps_;
};

// SentencePiece's way to keep spaces: each becomes a mark, and words begin with one. Immutable and thread-safe.
struct Metaspace {
  enum class Prepend {
    kNever,
    kFirst,   // only where the text starts, not after an added token
    kAlways,  // to every stretch of text between added tokens
  };
  std::string mark;  // one code point, UTF-8
  Prepend prepend = Prepend::kAlways;
  bool split = true;  // a piece begins at every mark; else the text stays whole

  // `text` with marks for spaces. It begins with a mark if `prepend` says so; `at_start`: the text starts here.
  std::string Mark(std::string_view text, bool at_start) const;
  // The pieces of a marked text.
  std::vector<std::string_view> Split(std::string_view marked) const;
};

}  // namespace moestro::text
