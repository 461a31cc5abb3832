// Tokens that are matched as a whole, before the text is split: control tokens and user additions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace moestro::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;       // literal text, not empty
  bool single_word = false;  // only between word boundaries
  bool lstrip = false;       // includes the white space to its left
  bool rstrip = false;       // includes the white space to its right
  bool normalized = false;   // matched only in text without other added tokens
  bool special = false;      // omitted when decoding without special tokens
};

// Finds the leftmost token; of tokens with the same start, the longest. Immutable and thread-safe.
class AddedTokenMatcher {
 public:
  static constexpr int32_t kPlainText = -1;
  struct Segment {
    std::string_view text;
    int32_t id;  // kPlainText or the token's id
  };

  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Appends `text`, which must be valid UTF-8, as segments without empty plain ones. Stops at more than `most` tokens:
  // a text of a client can be nothing but tokens.
  void Split(std::string_view text, std::vector<Segment>* segments, size_t most = SIZE_MAX) const;

 private:
  struct Match {
    const AddedToken* token;  // null: none
    size_t begin;
    size_t end;
  };
  Match FindNext(std::string_view text, size_t start) const;

  std::vector<AddedToken> tokens_;
  // A byte trie with root 0. children_ maps node << 8 | byte to the child node; token_at_ has the token that ends at
  // each node, or -1.
  absl::flat_hash_map<uint64_t, uint32_t> children_;
  std::vector<int32_t> token_at_;
  std::array<bool, 256> starts_{};  // whether any token starts with the byte
};

}  // namespace moestro::text
