// A regular expression that splits text into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/pcre2_code.h"

namespace moestro::text {

// What a split leaves of a text: its matches, the gaps between them, or both.
enum class SplitKeeps { kAll, kMatches, kGaps };

// Immutable and thread-safe.
class Regex {
 public:
  // `pattern` is in Oniguruma's syntax (oniguruma.h lists the supported part).
  static absl::StatusOr<Regex> Compile(std::string_view pattern);

  // Splits each text into its matches and the gaps between them, in order and without empty pieces, and drops what
  // `keeps` does not name. The pieces point into the texts. No match spans two texts. The texts must be valid UTF-8.
  // RESOURCE_EXHAUSTED if the matcher reaches its limits, OUT_OF_RANGE for more than `max_pieces`.
  absl::StatusOr<std::vector<std::string_view>> Split(std::span<const std::string_view> texts,
                                                      SplitKeeps keeps = SplitKeeps::kAll,
                                                      size_t max_pieces = SIZE_MAX) const;

 private:
  explicit Regex(Pcre2Code code) : code_(std::move(code)) {}

  Pcre2Code code_;
};

}  // namespace moestro::text
