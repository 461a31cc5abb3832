// The contents of a tokenizer.json, checked and without JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/text/added_tokens.h"
#include "common/text/bpe.h"

namespace moestro::text {

struct TokenizerSpec {
  absl::flat_hash_map<std::string, int32_t> vocabulary;  // by byte-level spelling; ids are unique
  std::vector<BpeMerge> merges;                          // by rank
  bool ignore_merges = false;                            // a piece that is a token is not merged from bytes
  std::vector<AddedToken> added_tokens;                  // ids agree with the vocabulary if both contain the text
  std::vector<std::string> split_patterns;               // Oniguruma, in the order of application
  std::vector<int32_t> prefix;                           // inserted by the post-processor before the text
  std::vector<int32_t> suffix;                           // and after the text
};

// Parses a byte-level BPE tokenizer.json. INVALID_ARGUMENT for a malformed file, UNIMPLEMENTED for a well-formed file
// of another kind; both name the field.
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(std::string_view tokenizer_json);

}  // namespace moestro::text
