#include "services/router/text/chat_encoder.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "common/text/utf8.h"

namespace moestro::router {
namespace {

constexpr std::string_view kReasoningMarks[] = {"<think>", "</think>"};

// The two private planes, the last of Unicode. Their last two code points are noncharacters.
constexpr char32_t kPrivatePlanes[] = {0xF0000, 0x100000};
constexpr char32_t kPrivatePlaneSize = 0xFFFE;
using PrivateCharacters = std::bitset<0x20000>;  // by distance from the first

// A token of one character cannot be guarded. It stays plain text everywhere.
std::vector<text::AddedToken> GuardableTokens(const text::Tokenizer& tokenizer) {
  std::vector<text::AddedToken> tokens = tokenizer.added_tokens();
  std::erase_if(tokens, [](const text::AddedToken& t) {
    return static_cast<int>(t.content.size()) <= text::Utf8Length(t.content[0]);
  });
  return tokens;
}

void MarkPrivateCharacters(std::string_view text, PrivateCharacters* used) {
  for (size_t i = 0; i < text.size();) {
    const text::Utf8Step step = text::ReadUtf8(text, i);
    const bool is_private = step.kind == text::Utf8Step::Kind::kCodePoint && step.code_point >= kPrivatePlanes[0];
    if (is_private) used->set(step.code_point - kPrivatePlanes[0]);
    i += step.length;
  }
}

// A code point of a private plane that none of the texts contains, as UTF-8.
absl::StatusOr<std::string> UnusedCharacter(std::span<const text::ChatMessage> messages,
                                            const text::ChatTemplate::Options& options) {
  PrivateCharacters used;
  MarkPrivateCharacters(options.bos_token, &used);
  MarkPrivateCharacters(options.eos_token, &used);
  for (const text::ChatMessage& message : messages) MarkPrivateCharacters(message.content, &used);
  for (const char32_t plane : kPrivatePlanes) {
    for (char32_t code_point = plane; code_point < plane + kPrivatePlaneSize; ++code_point) {
      if (used[code_point - kPrivatePlanes[0]]) continue;
      std::string character;
      text::AppendUtf8(code_point, &character);
      return character;
    }
  }
  return absl::InvalidArgumentError("chat.messages: must leave one code point of the private planes unused");
}

absl::Status CheckRoles(std::span<const text::ChatMessage> messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      return absl::InvalidArgumentError(absl::StrCat("chat.messages[", i, "].role: must be system, user or assistant"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

ChatEncoder::ChatEncoder(const text::Tokenizer& tokenizer, std::vector<text::AddedToken> added,
                         std::unique_ptr<const text::ChatTemplate> chat_template, text::ChatTemplate::Options options)
    : tokenizer_(tokenizer), matcher_(added), template_(std::move(chat_template)), options_(std::move(options)) {
  for (const text::AddedToken& token : added) {
    // Runs of white space are not control tokens, and guards among them would keep templates from trimming.
    if (absl::ascii_isspace(static_cast<unsigned char>(token.content[0]))) continue;
    first_characters_.push_back(token.content.substr(0, text::Utf8Length(token.content[0])));
  }
  std::ranges::sort(first_characters_);
  first_characters_.erase(std::unique(first_characters_.begin(), first_characters_.end()), first_characters_.end());
}

absl::StatusOr<std::unique_ptr<const ChatEncoder>> ChatEncoder::Create(const text::Tokenizer& tokenizer,
                                                                       const std::string& chat_template,
                                                                       const std::string& bos_token,
                                                                       const std::string& eos_token) {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<const text::ChatTemplate> parsed, text::ChatTemplate::Parse(chat_template));
  text::ChatTemplate::Options options;
  options.bos_token = bos_token;
  options.eos_token = eos_token;
  return std::unique_ptr<const ChatEncoder>(
      new ChatEncoder(tokenizer, GuardableTokens(tokenizer), std::move(parsed), std::move(options)));
}

std::string ChatEncoder::Guard(const text::ChatMessage& message, std::string_view guard) const {
  const std::string_view content = message.content;
  std::string guarded;
  for (size_t i = 0; i < content.size();) {
    const std::string_view rest = content.substr(i);
    const auto* mark = std::ranges::find_if(kReasoningMarks, [&](std::string_view m) { return rest.starts_with(m); });
    if (message.role == "assistant" && mark != std::end(kReasoningMarks)) {
      guarded += *mark;
      i += mark->size();
      continue;
    }
    const std::string_view character = rest.substr(0, text::Utf8Length(rest[0]));
    guarded += character;
    if (std::ranges::binary_search(first_characters_, character)) guarded += guard;
    i += character.size();
  }
  return guarded;
}

absl::StatusOr<std::vector<int32_t>> ChatEncoder::Encode(std::span<const text::ChatMessage> messages,
                                                         const text::EncodeLimits& limits) const {
  MOE_RETURN_IF_ERROR(CheckRoles(messages));
  MOE_ASSIGN_OR_RETURN(const std::string guard, UnusedCharacter(messages, options_));
  std::vector<text::ChatMessage> guarded;
  guarded.reserve(messages.size());
  for (const text::ChatMessage& message : messages) guarded.push_back({message.role, Guard(message, guard)});
  if (limits.check) MOE_RETURN_IF_ERROR(limits.check());
  MOE_ASSIGN_OR_RETURN(const std::string rendered, template_->Render(guarded, options_));
  if (limits.check) MOE_RETURN_IF_ERROR(limits.check());
  return Tokenize(rendered, guard, limits);
}

absl::StatusOr<std::vector<int32_t>> ChatEncoder::Tokenize(const std::string& rendered, const std::string& guard,
                                                           const text::EncodeLimits& limits) const {
  std::vector<text::AddedTokenMatcher::Segment> segments;
  matcher_.Split(rendered, &segments);
  std::vector<int32_t> ids;
  for (const text::AddedTokenMatcher::Segment& segment : segments) {
    if (ids.size() >= limits.max_tokens) return absl::OutOfRangeError("the chat has too many tokens");
    if (segment.id != text::AddedTokenMatcher::kPlainText) {
      ids.push_back(segment.id);
      continue;
    }
    const std::string plain = absl::StrReplaceAll(std::string(segment.text), {{guard, ""}});
    text::EncodeLimits rest = limits;
    rest.max_tokens -= ids.size();
    MOE_ASSIGN_OR_RETURN(const std::vector<int32_t> piece,
                         tokenizer_.Encode(plain,
                                           {.add_special_tokens = false,
                                            .parse_special_tokens = false,
                                            .at_start = segment.text.data() == rendered.data()},
                                           rest));
    ids.insert(ids.end(), piece.begin(), piece.end());
  }
  return ids;
}

}  // namespace moestro::router
