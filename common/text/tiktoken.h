// Tokenizers that are published as tiktoken's list of ranks: tiktoken.model, or a file *.tiktoken.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/tokenizer_spec.h"

namespace moestro::text {

// The pattern of cl100k_base, in Oniguruma's syntax, as it was when the models that use it were trained. Today's
// differs for white space at the end of a text.
inline constexpr std::string_view kCl100kPattern = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+)"
                                                   R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// `ranks`: lines of a token's bytes in Base64, a space and its rank, which is its id. Ranks are 0, 1, 2, ... in any
// order, and all 256 single bytes are tokens. The file has no pattern and no control tokens. The pattern is a constant
// of the family, by `tokenizer_class` of tokenizer_config.json or else by `model_type` of config.json. Control tokens
// are in `added_tokens_decoder` of tokenizer_config.json; those from `id_limit` on are left out. INVALID_ARGUMENT with
// the line or field for a malformed file, UNIMPLEMENTED for an unknown family.
absl::StatusOr<TokenizerSpec> ParseTiktoken(std::string_view ranks, std::string_view tokenizer_config_json,
                                            std::string_view model_type, int32_t id_limit);

}  // namespace moestro::text
