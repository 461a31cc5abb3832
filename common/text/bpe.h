// Pair merging of one piece of text.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace moestro::text {

// Merges two adjacent tokens into one. The lowest rank goes first.
struct BpeMerge {
  uint32_t rank;
  int32_t left;
  int32_t right;
  int32_t result;
};

// The tokens that a piece starts as. A code point that has a token starts as this token, any other as its bytes.
struct BpeAlphabet {
  std::array<int32_t, 256> bytes;                           // Bpe::kNoToken if the vocabulary has none
  absl::flat_hash_map<char32_t, int32_t> code_points = {};  // empty: pieces start as bytes
};

// Immutable and thread-safe.
class Bpe {
 public:
  static constexpr int32_t kNoToken = -1;

  // Of two merges for the same pair, the later in `merges` counts. Ids are not negative.
  Bpe(BpeAlphabet alphabet, const std::vector<BpeMerge>& merges);

  // Appends the tokens of `piece`, which must be valid UTF-8 if the alphabet has code points. Merges the adjacent pair
  // of the lowest rank (the leftmost of equals) until no pair has a merge. O(n log n). At most kMaxPieceBytes.
  // INVALID_ARGUMENT if a byte has no token.
  absl::Status Encode(std::string_view piece, std::vector<int32_t>* ids) const;

  static constexpr int64_t kMaxPieceBytes = int64_t{1} << 30;

 private:
  struct Rule {
    uint32_t rank;
    int32_t result;
  };
  // The merge of two adjacent tokens, or null.
  const Rule* Find(int32_t left, int32_t right) const;

  BpeAlphabet alphabet_;
  absl::flat_hash_map<uint64_t, Rule> rules_;  // by left id << 32 | right id
};

}  // namespace moestro::text
