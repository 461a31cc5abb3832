// Token ids assigned by tokenizer.json and tokenizer_config.json. Internal to this folder.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "common/base/status.h"

namespace moestro::checkpoint {

// The highest id of the vocabulary and the added tokens, plus one. INVALID_ARGUMENT, with the token, for an id that is
// not an integer in [0, vocab_size).
absl::StatusOr<int64_t> TokenCount(std::string_view tokenizer_json, int64_t vocab_size);

using TokenIds = absl::flat_hash_map<std::string, int32_t>;

// Text -> id of the added (special) tokens of both files; either document may be an empty object. tokenizer.json takes
// precedence.
absl::StatusOr<TokenIds> AddedTokens(const nlohmann::json& tokenizer, const nlohmann::json& tokenizer_config,
                                     int64_t vocab_size);

}  // namespace moestro::checkpoint
