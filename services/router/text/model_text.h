// Converts text to token ids and back for one model. Immutable, thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"
#include "services/router/output/output_format.h"

namespace moestro::router {

// The text of a growing token sequence, piece by piece. Used by one thread; must not outlive its ModelText.
class TextStream {
 public:
  virtual ~TextStream() = default;
  virtual std::string Push(int32_t id) = 0;  // what is complete now; may be empty
  virtual std::string Flush() = 0;           // the rest; incomplete characters become U+FFFD
};

class ModelText {
 public:
  struct Source {
    std::string tokenizer_json;  // empty = the model has the next two
    std::string tiktoken_ranks = {};
    std::string tokenizer_config_json = {};
    std::string family = {};             // model_type of config.json
    int32_t token_count = INT32_MAX;     // ids of the tokenizer end here
    std::string chat_template = {};      // empty = the model has none
    std::string tool_use_template = {};  // for chats with tools; empty = chat_template serves them too
    std::string bos_token = {};
    std::string eos_token = {};
    bool add_bos_token = false;  // plain text begins with bos_token
  };
  // INVALID_ARGUMENT or UNIMPLEMENTED name the field of the tokenizer. A chat template that cannot be used is not an
  // error here: only chats fail, with that reason.
  static absl::StatusOr<std::unique_ptr<const ModelText>> Create(const Source& source);
  ~ModelText();

  // `text` is data: nothing in it becomes a special token. Adds BOS where the model's tokenizer does, unless `plain`.
  // OUT_OF_RANGE for more tokens than `limits` allow.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool plain,
                                              const text::EncodeLimits& limits = {}) const;

  // A text that a client has rendered with the model's template: what spells a control token is that token. BOS as
  // above, unless the text begins with it.
  absl::StatusOr<std::vector<int32_t>> EncodeRendered(std::string_view text,
                                                      const text::EncodeLimits& limits = {}) const;

  // ChatEncoder::Encode; FAILED_PRECONDITION if the model has no (usable) template.
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const text::Chat& chat, const text::EncodeLimits& limits = {}) const;

  std::string Decode(std::span<const int32_t> ids, bool keep_special_tokens) const;
  std::string Piece(int32_t id) const;  // special tokens are spelled out
  std::string Bytes(int32_t id) const;  // the same, without repair of incomplete characters
  bool IsSpecial(int32_t id) const;
  std::unique_ptr<TextStream> NewStream(bool keep_special_tokens) const;

  bool has_chat_template() const;
  const OutputFormat& output_format() const;  // of texts with special tokens
  int32_t token_count() const;                // ids are 0 .. token_count - 1
  size_t longest_token_bytes() const;

 private:
  struct Impl;
  explicit ModelText(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::router
