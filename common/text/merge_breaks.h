// The places of a text that no merge can cross.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace moestro::text {

// Tokenizers of SentencePiece do not split a text into words: all of it is merged as one piece. But a merge makes a
// token, so it never crosses two neighbours that no token has side by side. Cut there, a text has the same tokens, and
// merging takes the time and memory of its words. Immutable and thread-safe.
class MergeBreaks {
 public:
  // `vocabulary`: the tokens' texts, valid UTF-8.
  explicit MergeBreaks(const absl::flat_hash_map<std::string, int32_t>& vocabulary);

  // The start of `text`, up to its first break. `text` is valid UTF-8 and not empty; so is the result.
  std::string_view FirstPiece(std::string_view text) const;

 private:
  absl::flat_hash_set<uint64_t> neighbours_;  // pairs of code points that some token has side by side
};

}  // namespace moestro::text
