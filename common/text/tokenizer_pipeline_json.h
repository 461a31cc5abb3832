// The steps around the model in a tokenizer.json. Internal to the parser.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "common/text/json_field.h"
#include "common/text/tokenizer_spec.h"

namespace moestro::text {

// The pattern of a byte-level pre-tokenizer with use_regex (GPT-2), in Oniguruma's syntax.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Fills split_patterns, prefix and suffix from "normalizer", "pre_tokenizer", "post_processor" and "decoder".
absl::Status ParsePipeline(const Json& file, TokenizerSpec* spec);

// UNIMPLEMENTED for an unsupported value or type, with the remedy.
absl::Status UnsupportedField(std::string_view field, std::string_view value);

}  // namespace moestro::text
