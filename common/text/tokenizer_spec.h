// What a tokenizer's files say, checked and without their formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/text/added_tokens.h"
#include "common/text/bpe.h"
#include "common/text/normalizer.h"
#include "common/text/pre_tokenizer.h"

namespace moestro::text {

// How the vocabulary writes a token.
enum class Spelling {
  kByteLevel,  // one printable code point per byte (byte_level.h); text is merged from bytes
  kText,       // as it is; text is merged from code points, or from the bytes' own tokens, <0x00> to <0xFF>
};

struct TokenizerSpec {
  Spelling spelling = Spelling::kByteLevel;
  absl::flat_hash_map<std::string, int32_t> vocabulary;  // by spelling; ids are unique
  std::vector<BpeMerge> merges;
  bool ignore_merges = false;            // a piece that is a token is not merged from its parts
  std::vector<AddedToken> added_tokens;  // ids agree with the vocabulary if both contain the text
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> splits;
  std::optional<Metaspace> metaspace;  // only of kText; then there are no splits
  std::vector<int32_t> prefix;         // inserted by the post-processor before the text
  std::vector<int32_t> suffix;         // and after the text
  // Only of kText: decoding replaces `mark` by `mark_text` in each token, then strips this many spaces from the start.
  std::string mark;
  std::string mark_text;
  int stripped_spaces = 0;
};

// The spelling of a byte's own token in vocabularies of text: "<0x0A>".
std::string ByteTokenSpelling(unsigned char byte);

// Parses a tokenizer.json of byte-level BPE, or of BPE over text with byte_fallback. INVALID_ARGUMENT for a malformed
// file, UNIMPLEMENTED for a well-formed file of another kind; both name the field.
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(std::string_view tokenizer_json);

}  // namespace moestro::text
