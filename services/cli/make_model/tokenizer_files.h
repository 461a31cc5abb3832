// tokenizer.json and tokenizer_config.json: a small byte-level BPE with DeepSeek-V3's pre-tokenizer, control tokens and
// chat layout.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace moestro {

struct TokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  int64_t token_count = 0;  // highest id + 1: embedding and head rows from here on are padding
};

// The same bytes at every call: the tokenizer depends on neither preset nor seed.
absl::StatusOr<TokenizerFiles> BuildTokenizerFiles();

}  // namespace moestro
