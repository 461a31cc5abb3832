// Errors of requests as HTTP has them. The only place that maps absl::Status to HTTP.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/router/http/api_fields.h"
#include "services/router/http/response.h"

namespace moestro::router {

struct HttpError {
  int status = 500;
  std::string body;                                   // JSON
  std::optional<int64_t> retry_after = std::nullopt;  // seconds, for the header Retry-After
};

// 499 is what proxies write for a client that has left; it is in logs only.
// A field that asks for what is not here is the client's error, 400; 501 is for endpoints.
int HttpStatusOf(const absl::Status& status);

// The names that an API has for what the router calls by its own ("chat.messages", "token_ids").
absl::Status InWordsOf(Api api, const absl::Status& status);

// The text for people: clients of HTTP do not know that the API has the messages in a `chat`. A prompt that is too long
// has OpenAI's words, which programs look for.
std::string ErrorMessage(const absl::Status& status);
// The same in Anthropic's words.
std::string AnthropicMessage(const absl::Status& status);

// OpenAI's word for an error; null: it has none.
const char* ErrorCode(const absl::Status& status);

// An error in the form of the API that has `path`: Anthropic's at /v1/messages, Ollama's at /api, else OpenAI's.
// `request_id`: as in the headers of the answer; empty: it has none. 429 and 503 have a Retry-After: that of the status
// (access/retry_after.h), or a second.
HttpError ErrorAt(std::string_view path, const absl::Status& status, const std::string& request_id = {});
// The same for an HTTP status that no absl::Status has: 405, 408, 413, 431.
HttpError ErrorAt(std::string_view path, int status, const std::string& message, const std::string& request_id = {});

// {"error": {"message", "type", "param", "code"}}, as OpenAI's API has it, with {"type": "error"}, as Anthropic's has
// it: where the path is not known, nobody knows the client. `param` is the field with which the message of an
// INVALID_ARGUMENT begins.
inline HttpError OpenAiError(const absl::Status& status) { return ErrorAt("", status); }

// The headers of an answer that is an error.
HttpHeaders HeadersOf(const HttpError& error);

// The standard words for an HTTP status.
const char* ReasonPhrase(int status);

}  // namespace moestro::router
