// Tokens that are found in the text as a whole, before it is cut into pieces: control tokens and user additions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace moestro {

struct AddedToken {
  int32_t id = 0;
  std::string content;       // literal text, not empty
  bool single_word = false;  // only between word boundaries
  bool lstrip = false;       // takes the white space to its left with it
  bool rstrip = false;       // takes the white space to its right with it
  bool normalized = false;   // looked for only in what the other added tokens leave
  bool special = false;      // not part of the text when decoding without special tokens
};

// Finds tokens leftmost first, the longest of those that start together. Immutable and thread-safe.
class AddedTokenMatcher {
 public:
  static constexpr int32_t kPlainText = -1;
  struct Segment {
    std::string_view text;
    int32_t id;  // kPlainText or the id of the token that stands here
  };

  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Appends `text`, which must be valid UTF-8, in segments without empty plain ones.
  void Split(std::string_view text, std::vector<Segment>* segments) const;

 private:
  struct Match {
    const AddedToken* token;  // null: none
    size_t begin;
    size_t end;
  };
  Match FindNext(std::string_view text, size_t start) const;

  std::vector<AddedToken> tokens_;
  // A trie over bytes: child node by node << 8 | byte, node 0 is the root; the token that ends at each node, or -1.
  absl::flat_hash_map<uint64_t, uint32_t> children_;
  std::vector<int32_t> token_at_;
  std::array<bool, 256> starts_{};  // whether any token starts with the byte
};

}  // namespace moestro
