// Converts text to token ids and back, as specified by the files of the model's tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/added_tokens.h"
#include "common/text/bpe.h"
#include "common/text/merge_breaks.h"
#include "common/text/normalizer.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/tokenizer_spec.h"
#include "common/text/utf8_assembler.h"

namespace moestro::text {

// Limits on the cost of encoding a text.
struct EncodeLimits {
  size_t max_tokens = SIZE_MAX;
  // A word, or a run of white space or punctuation, that is merged as a whole and takes some thirty times its memory.
  size_t max_piece_bytes = SIZE_MAX;
  // Called from time to time; an error ends the encoding. Empty: never called.
  std::function<absl::Status()> check = nullptr;
};

// The part of tokenizer_config.json that affects how text becomes a prompt.
struct TokenizerConfig {
  std::string bos_token;       // literal text; empty: none
  std::string eos_token;       // literal text; empty: none
  bool add_bos_token = false;  // encoding with special tokens starts with bos_token
  bool add_eos_token = false;  // encoding with special tokens ends with eos_token
};

// The files of a checkpoint that define its tokenizer.
struct TokenizerFiles {
  std::string_view tokenizer_json;  // in the Hugging Face format. Empty: use the next four
  std::string_view tiktoken_ranks = {};
  std::string_view tokenizer_config_json = {};
  std::string_view model_type = {};  // of config.json
  int32_t id_limit = INT32_MAX;      // rows of the embedding; control tokens of tokenizer_config_json end there
};

// A BPE tokenizer: byte-level, over text with byte_fallback (SentencePiece), or of tiktoken. Immutable after creation
// and thread-safe.
class Tokenizer {
 public:
  // Some checkpoints request a BOS or EOS token only in tokenizer_config.json; these fields of `config` apply on top of
  // the post-processor of tokenizer.json. INVALID_ARGUMENT for a malformed or missing file, UNIMPLEMENTED for an
  // unsupported kind of tokenizer; both name file and field.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(const TokenizerFiles& files,
                                                                 const TokenizerConfig& config = {});

  struct EncodeOptions {
    // Run the post-processor (BOS, EOS). Off for text from a chat template, which writes them itself.
    bool add_special_tokens = true;
    // Match added tokens in the text. Off for untrusted text: then no added token matches, flagged special or not
    // (DeepSeek's turn markers are not). Text that spells a control token stays ordinary text.
    bool parse_special_tokens = true;
    // The text starts here: it is not the continuation of one that was encoded before.
    bool at_start = true;
  };
  // INVALID_ARGUMENT with the byte offset for text that is not UTF-8, for a byte that the vocabulary lacks, and for a
  // piece of more than `limits.max_piece_bytes`. RESOURCE_EXHAUSTED if the pre-tokenizer reaches its limits on hostile
  // text. OUT_OF_RANGE as soon as more than `limits.max_tokens` are found: the cost of this check does not grow with
  // the text's number of tokens.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view utf8, const EncodeOptions& options,
                                              const EncodeLimits& limits = {}) const;

  // The bytes of one token, possibly part of a UTF-8 sequence; the literal text of an added token. Empty for an id
  // without a token, such as a padding row of the embedding.
  std::string DecodeBytes(int32_t id) const;

  // The text of all tokens; each ill-formed UTF-8 sequence becomes U+FFFD. `skip_special` omits special tokens.
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const;

  bool IsSpecial(int32_t id) const;

  // Highest id + 1. Some lower ids may have no token.
  int32_t size() const { return size_; }

  // The most bytes of text that one id stands for: the longest token, times what the text may lose when it is
  // normalized. But a pre-tokenizer may drop any part of a text.
  size_t longest_token_bytes() const { return longest_token_bytes_; }

  // An assembler that repairs and strips the bytes of a stream of tokens as Decode does.
  Utf8Assembler NewAssembler() const;

  // Spaces that Decode drops from the start of a text.
  int stripped_spaces() const { return stripped_spaces_; }

  // In the order of the file.
  const std::vector<AddedToken>& added_tokens() const { return added_tokens_; }

  // The token with this content: the literal text of an added token, the spelling in the vocabulary of any other.
  std::optional<int32_t> TokenId(std::string_view content) const;

 private:
  struct Token {
    std::string bytes;
    bool special = false;
  };

  using Segment = AddedTokenMatcher::Segment;
  struct Encoding;

  Tokenizer(TokenizerSpec spec, PreTokenizer pre_tokenizer);
  std::string TokenBytes(const std::string& spelling) const;
  absl::Status ApplyConfig(const TokenizerConfig& config);
  absl::StatusOr<int32_t> ConfiguredToken(const std::string& content, const char* field) const;
  // Text without those added tokens that match before it is normalized.
  absl::Status EncodeRaw(std::string_view raw, const EncodeOptions& options, Encoding& out) const;
  // Normalized text in which no added token matches.
  absl::Status EncodePlain(std::string_view text, bool at_start, Encoding& out) const;
  absl::Status EncodePiece(std::string_view piece, Encoding& out) const;

  Spelling spelling_;
  std::string mark_;
  std::string mark_text_;
  int stripped_spaces_;
  absl::flat_hash_map<std::string, int32_t> vocabulary_;  // by spelling
  absl::flat_hash_map<std::string, int32_t> added_;       // by literal text
  absl::flat_hash_map<int32_t, Token> tokens_;
  int32_t size_ = 0;
  size_t longest_token_bytes_ = 0;
  size_t longest_piece_bytes_ = 1;  // of normalized text, that one id stands for
  Normalizer normalizer_;
  std::optional<Metaspace> metaspace_;
  PreTokenizer pre_tokenizer_;
  std::optional<MergeBreaks> breaks_;  // only of kText
  AddedTokenMatcher raw_matcher_;
  AddedTokenMatcher normalized_matcher_;
  Bpe bpe_;
  bool ignore_merges_;
  std::vector<int32_t> prefix_;
  std::vector<int32_t> suffix_;
  std::vector<AddedToken> added_tokens_;
};

}  // namespace moestro::text
