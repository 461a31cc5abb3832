// Control tokens that a model's files name beside tokenizer.json. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace moestro::checkpoint {

struct TokenNames {
  std::string_view tokenizer_config_json;  // added_tokens_decoder, eos_token, additional_special_tokens, ...
  // Read if the first has no added_tokens_decoder, as older files do; empty: absent.
  std::string_view added_tokens_json = {};        // {text: id}
  std::string_view special_tokens_map_json = {};  // of the same fields as the first
};

// tokenizer.json with what it lacks of the tokens in `names`, as transformers 5 adds them: a text of the vocabulary
// keeps its id, any other has the next free one. Ids end at `vocab_size`, the rows of the embedding; later ones are
// left out. The same text where nothing lacks, or where its form is not known: who uses it reports that.
// INVALID_ARGUMENT for names that are not JSON.
absl::StatusOr<std::string> WithNamedTokens(std::string tokenizer_json, const TokenNames& names, int64_t vocab_size);

}  // namespace moestro::checkpoint
