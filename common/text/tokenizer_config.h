// The part of tokenizer_config.json that decides how text becomes a prompt.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moestro {

struct TokenizerConfig {
  std::string bos_token;       // literal text; empty: none
  std::string eos_token;       // literal text; empty: none
  bool add_bos_token = false;  // encoding with special tokens starts with bos_token
  bool add_eos_token = false;  // encoding with special tokens ends with eos_token
  std::string chat_template;   // Jinja source; empty: none here (newer checkpoints have a file chat_template.jinja)
};

// Bytes of tokenizer_config.json. Of several named chat templates the one called "default" is taken.
// INVALID_ARGUMENT naming the field that is malformed.
absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view tokenizer_config_json);

}  // namespace moestro
