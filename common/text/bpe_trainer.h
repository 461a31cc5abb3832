// A small trainer of byte-level BPE vocabularies, for generated models.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro {

// Spellings are byte-level (see byte_level.h), as a tokenizer.json has them.
struct TrainedBpe {
  std::vector<std::string> tokens;                          // by id: the 256 bytes in order, then one for each merge
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
};

// Learns up to `merges` >= 0 merges from `corpus`, cut by the DeepSeek-V3 pre-tokenizer: always the most frequent pair
// of adjacent tokens, of equals the one whose bytes are lexicographically smaller. Stops early when no pair occurs
// twice. Two merges that give the same text share one token. The same corpus always gives the same result.
// INVALID_ARGUMENT if the corpus is not UTF-8 or `merges` is negative.
absl::StatusOr<TrainedBpe> TrainBpe(std::string_view corpus, int merges);

}  // namespace moestro
