// Encodes chats so that no content can forge a turn.
//
// The template is rendered with the real contents, because it may read and change them. The result is tokenized as a
// whole, as in training: a content and the plain text around it may share a token. But only text that the template
// wrote can contain control tokens. To tell the two apart, a guard follows every character of a content that could
// begin an added token. The guard is a private code point that the chat does not contain. Then no token that begins
// inside a content matches. The guards are removed from the plain text before it is tokenized.
//
// That holds for every text of a chat: contents, reasoning, names, ids, arguments, schemas of tools, and flags, whether
// the template writes them as they are, trims them or writes them as JSON. Exceptions:
// - <think> and </think> in the contents of the assistant's own turns. Templates search for them to drop old reasoning.
// - Strings and keys in JSON that are words, such as "function". Templates look them up and compare them, so only whole
//   tokens in them are guarded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/added_tokens.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"

namespace moestro::router {

class ChatEncoder {  // immutable, thread-safe
 public:
  // `tokenizer` must outlive the encoder. INVALID_ARGUMENT for a template that cannot be used.
  static absl::StatusOr<std::unique_ptr<const ChatEncoder>> Create(const text::Tokenizer& tokenizer,
                                                                   const std::string& chat_template,
                                                                   const std::string& bos_token,
                                                                   const std::string& eos_token);

  // The ids end with the start of the assistant's answer. INVALID_ARGUMENT names the wrong field, quotes the template's
  // objection, or says that the chat uses every private code point. It also refuses tools and calls for which the
  // template has no place. OUT_OF_RANGE as of the tokenizer. `limits.max_tokens` bounds the JSON values, too.
  absl::StatusOr<std::vector<int32_t>> Encode(const text::Chat& chat, const text::EncodeLimits& limits = {}) const;

 private:
  ChatEncoder(const text::Tokenizer& tokenizer, std::vector<text::AddedToken> added,
              std::unique_ptr<const text::ChatTemplate> chat_template, text::ChatTemplate::Options options);
  std::string Guard(std::string_view text, text::ChatTemplate::Source source, std::string_view guard) const;
  std::string GuardWord(std::string_view word, std::string_view guard) const;
  // The guard may stand in `rendered` as itself and as JSON writes it in ASCII.
  absl::StatusOr<std::vector<int32_t>> Tokenize(const std::string& rendered, const std::string& guard,
                                                const std::string& escaped_guard,
                                                const text::EncodeLimits& limits) const;

  const text::Tokenizer& tokenizer_;
  const text::AddedTokenMatcher matcher_;
  const std::unique_ptr<const text::ChatTemplate> template_;
  const text::ChatTemplate::Options options_;
  std::vector<std::string> first_characters_;  // of the added tokens, UTF-8, sorted
};

}  // namespace moestro::router
