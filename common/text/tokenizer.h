// Text to token ids and back, as the model's own tokenizer.json prescribes.
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
#include "common/text/pre_tokenizer.h"
#include "common/text/tokenizer_spec.h"

namespace moestro {

// What encoding a text may cost.
struct EncodeLimits {
  size_t max_tokens = SIZE_MAX;
  // Of a word, or a run of white space or punctuation, that is merged as a whole, in some thirty times its memory.
  size_t max_piece_bytes = SIZE_MAX;
  // Asked now and then; its error ends the encoding. Empty: never.
  std::function<absl::Status()> check = nullptr;
};

// The part of tokenizer_config.json that decides how text becomes a prompt.
struct TokenizerConfig {
  std::string bos_token;       // literal text; empty: none
  std::string eos_token;       // literal text; empty: none
  bool add_bos_token = false;  // encoding with special tokens starts with bos_token
  bool add_eos_token = false;  // encoding with special tokens ends with eos_token
};

// A byte-level BPE tokenizer. Immutable after creation and thread-safe.
class Tokenizer {
 public:
  // Bytes of tokenizer.json in the Hugging Face format. Some checkpoints say only in tokenizer_config.json that a BOS
  // or EOS token is added; the fields of `config` that do are applied on top of the file's post-processor.
  // INVALID_ARGUMENT for a malformed file, UNIMPLEMENTED for a kind of tokenizer that is not supported; both name the
  // field.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> FromJson(std::string_view tokenizer_json,
                                                                   const TokenizerConfig& config = {});

  struct EncodeOptions {
    // Run the post-processor (BOS, EOS). Off for text from a chat template, which writes them itself.
    bool add_special_tokens = true;
    // Find added tokens in the text. Off for untrusted text: then no added token is found, flagged special or not
    // (the turn markers of DeepSeek are not), and text that spells a control token stays ordinary text.
    bool parse_special_tokens = true;
  };
  // INVALID_ARGUMENT with the byte offset for text that is not UTF-8, and for a byte that the vocabulary lacks.
  // RESOURCE_EXHAUSTED if the pre-tokenizer reaches its limits on hostile text. OUT_OF_RANGE as soon as the text is
  // found to have more than `limits.max_tokens`: what it costs to find out does not grow with the text's number of
  // tokens. INVALID_ARGUMENT for a piece of more than `limits.max_piece_bytes`.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view utf8, const EncodeOptions& options,
                                              const EncodeLimits& limits = {}) const;

  // The bytes of one token, which may be part of a UTF-8 sequence; added tokens are their literal text. Empty for an
  // id without a token, such as a padding row of the embedding.
  std::string DecodeBytes(int32_t id) const;

  // The text of all tokens, each ill-formed UTF-8 sequence as U+FFFD. `skip_special` leaves special tokens out.
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const;

  bool IsSpecial(int32_t id) const;

  // Highest id + 1. Ids below it need not all have a token.
  int32_t size() const { return size_; }

  // Of DecodeBytes. Text in which no added token is found has at most so many bytes for each of its ids: nothing
  // normalizes it, and its tokens are pieces of it.
  size_t longest_token_bytes() const { return longest_token_bytes_; }

  // In the order of tokenizer.json.
  const std::vector<AddedToken>& added_tokens() const { return added_tokens_; }

  // The token with this content: literal text of an added token, byte-level spelling of any other.
  std::optional<int32_t> TokenId(std::string_view content) const;

 private:
  struct Token {
    std::string bytes;
    bool special = false;
  };

  Tokenizer(TokenizerSpec spec, PreTokenizer pre_tokenizer);
  absl::Status ApplyConfig(const TokenizerConfig& config);
  absl::StatusOr<int32_t> ConfiguredToken(const std::string& content, const char* field) const;
  std::vector<AddedTokenMatcher::Segment> FindAddedTokens(std::string_view text) const;
  absl::Status EncodePlain(std::string_view text, const EncodeLimits& limits, std::vector<int32_t>* ids) const;

  absl::flat_hash_map<std::string, int32_t> vocabulary_;  // by byte-level spelling
  absl::flat_hash_map<std::string, int32_t> added_;       // by literal text
  absl::flat_hash_map<int32_t, Token> tokens_;
  int32_t size_ = 0;
  size_t longest_token_bytes_ = 0;
  PreTokenizer pre_tokenizer_;
  AddedTokenMatcher raw_matcher_;
  AddedTokenMatcher normalized_matcher_;
  Bpe bpe_;
  bool ignore_merges_;
  std::vector<int32_t> prefix_;
  std::vector<int32_t> suffix_;
  std::vector<AddedToken> added_tokens_;
};

}  // namespace moestro
