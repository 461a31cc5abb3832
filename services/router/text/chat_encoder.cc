#include "services/router/text/chat_encoder.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

// A code unit of UTF-16 as JSON escapes it, "\ud83d": 0 if `text` does not begin with one.
char32_t EscapedUnit(std::string_view text) {
  if (text.size() < 6 || text[0] != '\\' || (text[1] | 0x20) != 'u') return 0;
  char32_t unit = 0;
  for (const char c : text.substr(2, 4)) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return 0;
    unit = unit * 16 +
           static_cast<char32_t>(absl::ascii_isdigit(static_cast<unsigned char>(c)) ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return unit;
}

// A code point above U+FFFF as JSON escapes it: 0 if `text` does not begin with one.
char32_t EscapedCharacter(std::string_view text) {
  const char32_t high = EscapedUnit(text);
  const char32_t low = EscapedUnit(text.substr(std::min<size_t>(6, text.size())));
  if (high < 0xD800 || high > 0xDBFF || low < 0xDC00 || low > 0xDFFF) return 0;
  return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

std::string Escaped(char32_t character) {
  const char32_t offset = character - 0x10000;
  return absl::StrFormat("\\u%04x\\u%04x", static_cast<unsigned>(0xD800 + (offset >> 10)),
                         static_cast<unsigned>(0xDC00 + (offset & 0x3FF)));
}

// Also those that a text escapes: JSON makes them of it, and a template may make that of them.
void MarkPrivateCharacters(std::string_view text, PrivateCharacters* used) {
  for (size_t i = 0; i < text.size();) {
    const text::Utf8Step step = text::ReadUtf8(text, i);
    const char32_t character = text[i] == '\\' ? EscapedCharacter(text.substr(i)) : step.code_point;
    const bool is_private = step.kind == text::Utf8Step::Kind::kCodePoint && character >= kPrivatePlanes[0];
    if (is_private) used->set(character - kPrivatePlanes[0]);
    i += step.length;
  }
}

void MarkPrivateCharacters(const text::ChatMessage& message, PrivateCharacters* used) {
  for (const std::string* text : {&message.content, &message.tool_call_id, &message.name, &message.reasoning_content}) {
    MarkPrivateCharacters(*text, used);
  }
  for (const text::ToolCall& call : message.tool_calls) {
    for (const std::string* text : {&call.id, &call.name, &call.arguments}) MarkPrivateCharacters(*text, used);
  }
}

// A code point of a private plane that none of the texts contains.
absl::StatusOr<char32_t> UnusedCharacter(const text::Chat& chat, const text::ChatTemplate::Options& options) {
  PrivateCharacters used;
  MarkPrivateCharacters(options.bos_token, &used);
  MarkPrivateCharacters(options.eos_token, &used);
  for (const text::ChatMessage& message : chat.messages) MarkPrivateCharacters(message, &used);
  MarkPrivateCharacters(chat.tools, &used);
  MarkPrivateCharacters(chat.template_flags, &used);
  for (const char32_t plane : kPrivatePlanes) {
    for (char32_t code_point = plane; code_point < plane + kPrivatePlaneSize; ++code_point) {
      if (!used[code_point - kPrivatePlanes[0]]) return code_point;
    }
  }
  return absl::InvalidArgumentError("chat.messages: must leave one code point of the private planes unused");
}

absl::Status CheckMessage(const text::ChatMessage& message, const text::ChatTemplate& chat_template) {
  const std::string& role = message.role;
  const bool by_assistant = role == "assistant";
  if (!by_assistant && role != "system" && role != "user" && role != "tool") {
    return absl::InvalidArgumentError("role: must be system, user, assistant or tool");
  }
  if (!by_assistant && !message.tool_calls.empty()) {
    return absl::InvalidArgumentError("tool_calls: only the assistant calls tools; set the role to assistant");
  }
  if (!by_assistant && !message.reasoning_content.empty()) {
    return absl::InvalidArgumentError("reasoning_content: only the assistant reasons; set the role to assistant");
  }
  if (role != "tool" && !message.tool_call_id.empty()) {
    return absl::InvalidArgumentError("tool_call_id: belongs to a tool's result; set the role to tool");
  }
  if (!message.tool_calls.empty() && !chat_template.takes_tool_calls()) {
    return absl::InvalidArgumentError("tool_calls: this model's chat template has no place for them; send none");
  }
  return absl::OkStatus();
}

absl::Status CheckMessages(const std::vector<text::ChatMessage>& messages, const text::ChatTemplate& chat_template) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const absl::Status status = CheckMessage(messages[i], chat_template);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("chat.messages[", i, "].", std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

bool IsWord(std::string_view text) {
  return std::ranges::all_of(text,
                             [](char c) { return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c)); });
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
  options.form = parsed->FindMessageForm(options);
  return std::unique_ptr<const ChatEncoder>(
      new ChatEncoder(tokenizer, GuardableTokens(tokenizer), std::move(parsed), std::move(options)));
}

// A guard after the first character of each whole token.
std::string ChatEncoder::GuardWord(std::string_view word, std::string_view guard) const {
  std::vector<text::AddedTokenMatcher::Segment> segments;
  matcher_.Split(word, &segments);
  std::string guarded;
  for (const text::AddedTokenMatcher::Segment& segment : segments) {
    const bool is_token = segment.id != text::AddedTokenMatcher::kPlainText;
    guarded += segment.text.substr(0, 1);
    if (is_token) guarded += guard;
    guarded += segment.text.substr(1);
  }
  return guarded;
}

std::string ChatEncoder::Guard(std::string_view text, text::ChatTemplate::Source source, std::string_view guard) const {
  using Source = text::ChatTemplate::Source;
  if (source == Source::kJson && IsWord(text)) return GuardWord(text, guard);
  std::string guarded;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const auto* mark = std::ranges::find_if(kReasoningMarks, [&](std::string_view m) { return rest.starts_with(m); });
    if (source == Source::kAssistantContent && mark != std::end(kReasoningMarks)) {
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

absl::StatusOr<std::vector<int32_t>> ChatEncoder::Encode(const text::Chat& chat,
                                                         const text::EncodeLimits& limits) const {
  MOE_RETURN_IF_ERROR(CheckMessages(chat.messages, *template_));
  if (!chat.tools.empty() && !template_->takes_tools()) {
    return absl::InvalidArgumentError("chat.tools: this model's chat template has no place for tools; send none");
  }
  MOE_ASSIGN_OR_RETURN(const char32_t character, UnusedCharacter(chat, options_));
  std::string guard;
  text::AppendUtf8(character, &guard);
  if (limits.check) MOE_RETURN_IF_ERROR(limits.check());
  text::ChatTemplate::Options options = options_;
  options.guard = [&](std::string_view text, text::ChatTemplate::Source source) { return Guard(text, source, guard); };
  options.max_json_values = static_cast<int64_t>(std::min<size_t>(limits.max_tokens, INT32_MAX));
  MOE_ASSIGN_OR_RETURN(const std::string rendered, template_->Render(chat, options));
  if (limits.check) MOE_RETURN_IF_ERROR(limits.check());
  return Tokenize(rendered, guard, Escaped(character), limits);
}

absl::StatusOr<std::vector<int32_t>> ChatEncoder::Tokenize(const std::string& rendered, const std::string& guard,
                                                           const std::string& escaped_guard,
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
    const std::string plain = absl::StrReplaceAll(std::string(segment.text), {{guard, ""}, {escaped_guard, ""}});
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
