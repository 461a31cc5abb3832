// Splits text into the pieces that byte-pair merges never cross.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/regex.h"

namespace moestro::text {

// A sequence of isolating splits; each applies to every piece of the previous one. Immutable and thread-safe.
class PreTokenizer {
 public:
  // Patterns in Oniguruma's syntax; without patterns the text stays whole.
  static absl::StatusOr<PreTokenizer> Create(std::span<const std::string_view> patterns);

  // The pieces of `text`, which must be valid UTF-8. Pieces are not empty, cover the whole text and point into it.
  // OUT_OF_RANGE for more than `max_pieces`.
  absl::StatusOr<std::vector<std::string_view>> Split(std::string_view text, size_t max_pieces = SIZE_MAX) const;

 private:
  explicit PreTokenizer(std::vector<Regex> splits) : splits_(std::move(splits)) {}

  std::vector<Regex> splits_;
};

}  // namespace moestro::text
