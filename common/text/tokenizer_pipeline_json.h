// The parts of a tokenizer.json around the model. Internal to the parsers of this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/json_field.h"
#include "common/text/tokenizer_spec.h"

namespace moestro::text {

// The pattern of a byte-level pre-tokenizer with use_regex (GPT-2), in Oniguruma's syntax.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Fills the spelling and all steps from "normalizer", "pre_tokenizer", "post_processor" and "decoder".
absl::Status ParsePipeline(const Json& file, TokenizerSpec* spec);

// An entry of "added_tokens" without its id. `where` names it in messages.
absl::StatusOr<AddedToken> ParseAddedToken(const Json& entry, int32_t id, const std::string& where);

// UNIMPLEMENTED for an unsupported value or type, with the remedy.
absl::Status UnsupportedField(std::string_view field, std::string_view value);

}  // namespace moestro::text
