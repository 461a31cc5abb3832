#include "services/router/http/errors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/text/concat.h"
#include "services/router/access/retry_after.h"
#include "services/router/request/request_bounds.h"

namespace moestro::router {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kChatPrefix[] = "chat.";

// The field with which a message begins ("messages[3].role: must be ..."); empty: none.
std::string_view FieldOf(std::string_view message) {
  const size_t end = message.find(": ");
  if (end == std::string_view::npos) return {};
  const std::string_view field = message.substr(0, end);
  for (const char c : field) {
    const bool part =
        absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '[' || c == ']';
    if (!part) return {};
  }
  return field;
}

const char* TypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

const char* CodeOf(int status) {
  switch (status) {
    case 401:
      return "invalid_api_key";
    case 404:
      return "not_found";
    case 405:
      return "method_not_allowed";
    case 413:
      return "request_too_large";
    case 415:
      return "unsupported_media_type";
    case 429:
      return "rate_limit_exceeded";
    case 501:
      return "not_supported";
    case 503:
      return "unavailable";
    case 504:
      return "deadline_exceeded";
    default:
      return nullptr;
  }
}

// As Anthropic's documentation has them. 503 is what clients treat as its 529.
const char* AnthropicType(int status) {
  switch (status) {
    case 413:
      return "request_too_large";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? TypeOf(status) : "api_error";
  }
}

std::string OwnMessage(const absl::Status& status) {
  return std::string(absl::StripPrefix(status.message(), kChatPrefix));
}

// Anthropic's clients then send the whole conversation themselves.
bool IsAboutThread(const absl::Status& status) {
  return absl::IsUnimplemented(status) && absl::StartsWith(status.message(), "thread: ");
}

// What an error says, whichever form it has.
struct Said {
  int status = 500;
  std::string message = {};
  std::string_view param = {};
  const char* code = nullptr;
};

Json OpenAiForm(const Said& said) {
  Json error = {{"message", said.message}, {"type", TypeOf(said.status)}, {"param", nullptr}, {"code", nullptr}};
  if (!said.param.empty()) error["param"] = said.param;
  if (said.code != nullptr) error["code"] = said.code;
  return {{"type", "error"}, {"error", std::move(error)}};
}

Json AnthropicForm(const Said& said, const std::string& request_id) {
  Json error{{"type", AnthropicType(said.status)}, {"message", said.message}};
  if (said.code != nullptr) error["details"] = {{"error_code", said.code}};
  Json form{{"type", "error"}, {"error", std::move(error)}};
  if (!request_id.empty()) form["request_id"] = request_id;
  return form;
}

enum class Form { kOpenAi, kAnthropic, kOllama };

Form FormAt(std::string_view path) {
  if (path.starts_with("/v1/messages")) return Form::kAnthropic;
  return path.starts_with("/api/") ? Form::kOllama : Form::kOpenAi;
}

HttpError Error(Form form, const Said& said, const std::string& request_id) {
  const Json body = form == Form::kAnthropic ? AnthropicForm(said, request_id)
                    : form == Form::kOllama  ? Json{{"error", said.message}}
                                             : OpenAiForm(said);
  return {.status = said.status,
          .body = body.dump(-1, ' ', false, Json::error_handler_t::replace),
          .retry_after = said.status == 429 || said.status == 503 ? std::optional<int64_t>(1) : std::nullopt};
}

}  // namespace

absl::Status InWordsOf(Api api, const absl::Status& status) {
  struct Name {
    Api api;
    std::string_view own;
    std::string_view theirs;
  };
  // The first that fits. Items are no messages one by one, so their index would mislead.
  constexpr Name kNames[] = {
      {Api::kChat, "chat.template_flags", "chat_template_kwargs"},
      {Api::kChat, "chat.messages", "messages"},
      {Api::kChat, "chat.tools", "tools"},
      {Api::kChat, "chat", "messages"},
      {Api::kChat, "token_ids", "messages"},
      {Api::kChat, "input", "messages"},
      {Api::kChat, "cache_scope", "cache_salt"},
      {Api::kCompletions, "token_ids", "prompt"},
      {Api::kCompletions, "input", "prompt"},
      {Api::kCompletions, "text", "prompt"},
      {Api::kCompletions, "cache_scope", "cache_salt"},
      {Api::kResponses, "chat.template_flags", "reasoning"},
      {Api::kResponses, "chat.tools", "tools"},
      {Api::kResponses, "chat", "input"},
      {Api::kResponses, "messages", "input"},
      {Api::kResponses, "token_ids", "input"},
      {Api::kResponses, "cache_scope", "cache_salt"},
      {Api::kMessages, "chat.template_flags", "thinking"},
      {Api::kMessages, "chat.messages", "messages"},
      {Api::kMessages, "chat.tools", "tools"},
      {Api::kMessages, "chat", "messages"},
      {Api::kMessages, "token_ids", "messages"},
      {Api::kMessages, "input", "messages"},
      {Api::kMessages, "stop", "stop_sequences"},
      {Api::kMessages, "cache_scope", "cache_salt"},
  };
  const std::string_view message(status.message().data(), status.message().size());
  const std::string_view field = FieldOf(message);
  for (const Name& name : kNames) {
    if (name.api != api || !field.starts_with(name.own)) continue;
    const std::string_view behind = field.substr(name.own.size());
    if (!behind.empty() && behind[0] != '.' && behind[0] != '[') continue;
    const bool keeps_path = name.own.ends_with(name.theirs);
    absl::Status renamed(status.code(), text::Concat(name.theirs, keeps_path ? behind : std::string_view(),
                                                     message.substr(field.size())));
    status.ForEachPayload([&](auto type, const absl::Cord& payload) { renamed.SetPayload(type, payload); });
    return renamed;
  }
  return status;
}

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return FieldOf(OwnMessage(status)).empty() ? 501 : 400;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string ErrorMessage(const absl::Status& status) {
  const std::optional<OverContext> over = OverContextOf(status);
  if (!over) return OwnMessage(status);
  return absl::StrCat("This model's maximum context length is ", over->context, " tokens",
                      over->is_of_key ? " for this API key" : "", ". However, your messages resulted in ",
                      over->is_exact ? "" : "at least ", over->tokens, " tokens",
                      over->tokens == over->context ? ", and an answer needs one more" : "",
                      ". Input tokens exceed the configured limit: shorten the messages.");
}

std::string AnthropicMessage(const absl::Status& status) {
  const std::optional<OverContext> over = OverContextOf(status);
  if (!over) return OwnMessage(status);
  // A prompt that fills the context leaves no token for the answer.
  return absl::StrCat("prompt is too long: ", over->is_exact ? "" : "at least ", over->tokens, " tokens > ",
                      std::min(over->context, over->tokens - 1), " maximum");
}

const char* ErrorCode(const absl::Status& status) {
  if (OverContextOf(status)) return "context_length_exceeded";
  const int code = HttpStatusOf(status);
  return code == 400 && absl::IsUnimplemented(status) ? "unsupported_parameter" : CodeOf(code);
}

HttpError ErrorAt(std::string_view path, const absl::Status& status, const std::string& request_id) {
  const Form form = FormAt(path);
  const bool is_anthropic = form == Form::kAnthropic;
  const std::string own = OwnMessage(status);
  HttpError error =
      Error(form,
            {.status = HttpStatusOf(status),
             .message = is_anthropic ? AnthropicMessage(status) : ErrorMessage(status),
             .param = FieldOf(own),
             .code = is_anthropic && IsAboutThread(status) ? "thread_unsupported_request" : ErrorCode(status)},
            request_id);
  if (const auto seconds = RetryAfterSeconds(status)) error.retry_after = seconds;
  return error;
}

HttpError ErrorAt(std::string_view path, int status, const std::string& message, const std::string& request_id) {
  return Error(FormAt(path), {.status = status, .message = message, .code = CodeOf(status)}, request_id);
}

HttpHeaders HeadersOf(const HttpError& error) {
  HttpHeaders headers{{"Content-Type", "application/json"}};
  if (error.retry_after) headers["Retry-After"] = absl::StrCat(*error.retry_after);
  if (error.status == 401) headers["WWW-Authenticate"] = "Bearer";
  // Else OpenAI's and Anthropic's clients try again.
  if (error.status == 501) headers["X-Should-Retry"] = "false";
  return headers;
}

const char* ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Internal Server Error";
  }
}

}  // namespace moestro::router
