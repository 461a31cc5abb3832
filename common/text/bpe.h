// Byte-pair merging of one piece of text.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace moestro::text {

// Merges two adjacent tokens into one.
struct BpeMerge {
  int32_t left;
  int32_t right;
  int32_t result;
};

// Immutable and thread-safe.
class Bpe {
 public:
  static constexpr int32_t kNoToken = -1;

  // `byte_ids`: the token of each byte, kNoToken if the vocabulary has none. `merges` by rank, ascending; of two merges
  // for the same pair, the later counts. Ids are not negative.
  Bpe(const std::array<int32_t, 256>& byte_ids, const std::vector<BpeMerge>& merges);

  // Appends the tokens of `piece`. Starting from bytes, merges the adjacent pair of the lowest rank (the leftmost of
  // equals) until no pair has a merge. O(n log n). At most kMaxPieceBytes. INVALID_ARGUMENT if a byte has no token.
  absl::Status Encode(std::string_view piece, std::vector<int32_t>* ids) const;

  static constexpr int64_t kMaxPieceBytes = int64_t{1} << 30;

 private:
  struct Rule {
    uint32_t rank;
    int32_t result;
  };
  // The merge of two adjacent tokens, or null.
  const Rule* Find(int32_t left, int32_t right) const;

  std::array<int32_t, 256> byte_ids_;
  absl::flat_hash_map<uint64_t, Rule> rules_;  // by left id << 32 | right id
};

}  // namespace moestro::text
