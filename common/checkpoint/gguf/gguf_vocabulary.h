// The tokens in the metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/status.h"
#include "common/checkpoint/gguf/gguf_metadata.h"

namespace moestro::checkpoint {

inline constexpr std::string_view kGgufTokens = "tokenizer.ggml.tokens";
inline constexpr std::string_view kGgufMerges = "tokenizer.ggml.merges";
inline constexpr std::string_view kGgufTokenTypes = "tokenizer.ggml.token_type";

// What a user can do where a file's own tokenizer cannot be used: ends messages.
inline constexpr std::string_view kPutTokenizerBeside = "; put the model's tokenizer.json beside the file";

enum class GgufTokenType {  // the numbers of the file
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct GgufToken {
  std::string_view text;  // valid UTF-8. Empty: a row of the embedding without a token
  GgufTokenType type = GgufTokenType::kUnused;

  // Whether it is matched as a whole, before text is split.
  bool added() const {
    return type == GgufTokenType::kUnknown || type == GgufTokenType::kControl || type == GgufTokenType::kUserDefined;
  }
  bool special() const { return added() && type != GgufTokenType::kUserDefined; }
};

struct GgufVocabulary {
  std::vector<GgufToken> tokens;                       // by id
  absl::flat_hash_map<std::string_view, int32_t> ids;  // of the tokens that are not empty
};

struct GgufMerge {
  int32_t left;
  int32_t right;
};

// Unused tokens are rows without a token: converters name them to fill the embedding. The result points into the
// metadata. INVALID_ARGUMENT, with key and index: no tokens or types, types that do not fit, text that is too long or
// not UTF-8, the same text twice, and a token past the `rows` of the embedding.
absl::StatusOr<GgufVocabulary> ReadGgufVocabulary(const GgufMetadata& metadata, int64_t rows);

// tokenizer.ggml.merges, best first. INVALID_ARGUMENT for one that is not two tokens whose texts together are a token.
absl::StatusOr<std::vector<GgufMerge>> ReadGgufMerges(const GgufMetadata& metadata, const GgufVocabulary& vocabulary);

// The merges of a SentencePiece vocabulary, as converters to tokenizer.json write them: every way to cut a normal token
// into two. The best score of the result goes first; then the result's id, then the left part's.
absl::StatusOr<std::vector<GgufMerge>> MergesOfGgufScores(const GgufMetadata& metadata,
                                                          const GgufVocabulary& vocabulary);

}  // namespace moestro::checkpoint
