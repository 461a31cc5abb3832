// The tokenizer of a GGUF file, in the form that its checkpoint was published with.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/checkpoint/gguf/gguf_metadata.h"
#include "common/checkpoint/gguf/gguf_vocabulary.h"

namespace moestro::checkpoint {

struct GgufTokenizer {
  // One of the two.
  std::string tokenizer_json = {};
  std::string tiktoken_ranks = {};
  // Of the ranks: what names their pattern in tokenizer_config.json.
  std::string_view tokenizer_class = {};
  // Whether BOS begins a text if tokenizer.ggml.add_bos_token is absent.
  bool begins_with_bos = false;
};

// tokenizer.ggml.model is "gpt2", byte-level BPE, or "llama", BPE of SentencePiece with byte tokens. The file has the
// name of the pattern that splits text, tokenizer.ggml.pre, but not the pattern. It lacks the flags of added tokens:
// here they match anywhere and leave the white space around them. INVALID_ARGUMENT for what is malformed,
// UNIMPLEMENTED for another model or an unknown name; both name the key.
absl::StatusOr<GgufTokenizer> MakeGgufTokenizer(const GgufMetadata& metadata, const GgufVocabulary& vocabulary);

}  // namespace moestro::checkpoint
