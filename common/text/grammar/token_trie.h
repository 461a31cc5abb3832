// The tokens of a vocabulary, by their bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/text/tokenizer.h"

namespace moestro::text::grammar {

// A prefix tree in one array, each node before its children. Immutable, thread-safe; 150,000 tokens take some 7 MB.
class TokenTrie {
 public:
  struct Node {
    uint32_t end;     // one past the last node below it
    uint32_t tokens;  // its first token; the last one ends where those of the next node begin
    uint16_t depth;   // bytes from the root, which has none
    uint8_t byte;
  };

  // Ids without bytes, or with one that no text has, have no place in a text. Special tokens have that of
  // SpecialTokenBytes (grammar.h). Ids are those below `token_count`, the rows of the model's head.
  TokenTrie(const Tokenizer& tokenizer, int32_t token_count);

  // The root is node 0.
  const std::vector<Node>& nodes() const { return nodes_; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()) - 1; }
  // The ids that have exactly the bytes of the path to a node.
  std::span<const int32_t> tokens(uint32_t node) const {
    return std::span(tokens_).subspan(nodes_[node].tokens, nodes_[node + 1].tokens - nodes_[node].tokens);
  }
  // The bytes of a token; none for one that is not in the trie.
  std::string_view bytes(int32_t id) const;

  int depth() const { return depth_; }
  int32_t token_count() const { return token_count_; }
  // Spaces that the tokenizer drops from the start of a text.
  int stripped_spaces() const { return stripped_spaces_; }

 private:
  std::vector<Node> nodes_;  // and one past the end
  std::vector<int32_t> tokens_;
  std::vector<char> text_;         // of all tokens
  std::vector<uint32_t> offsets_;  // by id; and one past the end
  int depth_ = 0;
  int32_t token_count_;
  int stripped_spaces_;
};

}  // namespace moestro::text::grammar
