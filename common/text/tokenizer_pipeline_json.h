// The steps around the model in a tokenizer.json. Internal to the parser.
#pragma once

#include "absl/status/status.h"
#include "common/text/json_field.h"
#include "common/text/tokenizer_spec.h"

namespace moestro {

// Fills split_patterns, prefix and suffix from "normalizer", "pre_tokenizer", "post_processor" and "decoder".
absl::Status ParsePipeline(const Json& file, TokenizerSpec* spec);

// UNIMPLEMENTED for a value or type that is not supported, with the remedy.
absl::Status UnsupportedField(std::string_view field, std::string_view value);

}  // namespace moestro
