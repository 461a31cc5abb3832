// Cuts text into the pieces that byte-pair merges never cross.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/regex.h"

namespace moestro {

// A sequence of isolating splits, each applied to every piece of the one before. Immutable and thread-safe.
class PreTokenizer {
 public:
  // Patterns in Oniguruma's syntax; none leaves the text whole.
  static absl::StatusOr<PreTokenizer> Create(std::span<const std::string_view> patterns);

  // The pieces of `text`, which must be valid UTF-8: no empty ones, together the whole text, pointing into it.
  // OUT_OF_RANGE at more than `max_pieces`.
  absl::StatusOr<std::vector<std::string_view>> Split(std::string_view text, size_t max_pieces = SIZE_MAX) const;

 private:
  explicit PreTokenizer(std::vector<Regex> splits) : splits_(std::move(splits)) {}

  std::vector<Regex> splits_;
};

}  // namespace moestro
