#include "services/router/http/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "services/router/access/retry_after.h"
#include "services/router/request/request_bounds.h"

namespace moestro::router {
namespace {

nlohmann::json ErrorOf(const absl::Status& status) {
  const nlohmann::json body = nlohmann::json::parse(OpenAiError(status).body);
  EXPECT_EQ(body.at("type"), "error");  // Anthropic's clients look there
  return body.at("error");
}

TEST(HttpErrorsTest, NamesTheField) {
  const nlohmann::json error = ErrorOf(absl::InvalidArgumentError("max_tokens: 5 prompt tokens: and more"));
  EXPECT_EQ(error["param"], "max_tokens");
  EXPECT_EQ(error["message"], "max_tokens: 5 prompt tokens: and more");
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(ErrorOf(absl::InvalidArgumentError("the body: not valid JSON"))["param"], nullptr);
  EXPECT_EQ(ErrorOf(absl::InvalidArgumentError("no field"))["param"], nullptr);
}

TEST(HttpErrorsTest, MessagesOfAChatHaveOpenAisPath) {
  const nlohmann::json error = ErrorOf(absl::InvalidArgumentError("chat.messages[3].role: must be user"));
  EXPECT_EQ(error["param"], "messages[3].role");
  EXPECT_EQ(error["message"], "messages[3].role: must be user");
}

// Programs look for these words, and read the numbers in them.
TEST(HttpErrorsTest, APromptThatIsTooLongHasTheWordsOfEachApi) {
  const absl::Status over = OverContextError("chat.messages", {.tokens = 24013, .context = 2048});
  const nlohmann::json error = ErrorOf(over);
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["param"], "messages");
  EXPECT_EQ(error["message"],
            "This model's maximum context length is 2048 tokens. However, your messages resulted in 24013 tokens. "
            "Input tokens exceed the configured limit: shorten the messages.");
  EXPECT_EQ(AnthropicMessage(over), "prompt is too long: 24013 tokens > 2048 maximum");

  const absl::Status full = OverContextError("input", {.tokens = 512, .context = 512, .is_of_key = true});
  EXPECT_EQ(ErrorOf(full)["message"],
            "This model's maximum context length is 512 tokens for this API key. However, your messages resulted in "
            "512 tokens, and an answer needs one more. Input tokens exceed the configured limit: shorten the "
            "messages.");
  EXPECT_EQ(AnthropicMessage(full), "prompt is too long: 512 tokens > 511 maximum");

  const absl::Status uncounted = OverContextError("prompt", {.tokens = 9000, .is_exact = false, .context = 2048});
  EXPECT_EQ(AnthropicMessage(uncounted), "prompt is too long: at least 9000 tokens > 2048 maximum");
  EXPECT_EQ(AnthropicMessage(absl::InvalidArgumentError("chat.tools: x")), "tools: x");
}

TEST(HttpErrorsTest, EachPathHasTheFormOfItsApi) {
  const absl::Status status = absl::InvalidArgumentError("top_p: must be 0 to 1");
  const auto body = [&](const char* path) { return nlohmann::json::parse(ErrorAt(path, status, "req_1").body); };
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches/*"}) {
    EXPECT_EQ(body(path), nlohmann::json::parse(R"({"type": "error", "request_id": "req_1", "error": {
        "type": "invalid_request_error", "message": "top_p: must be 0 to 1"}})"))
        << path;
  }
  EXPECT_EQ(body("/api/chat"), nlohmann::json::parse(R"({"error": "top_p: must be 0 to 1"})"));
  for (const char* path : {"/v1/chat/completions", "/tokenize", ""}) {
    EXPECT_EQ(body(path)["error"]["param"], "top_p") << path;
    EXPECT_EQ(body(path)["error"]["type"], "invalid_request_error") << path;
  }
}

TEST(HttpErrorsTest, AnthropicHasTypesOfItsOwn) {
  const auto type = [](const HttpError& error) { return nlohmann::json::parse(error.body)["error"]["type"]; };
  for (const auto& [status, word] : {std::pair(400, "invalid_request_error"),
                                     {401, "authentication_error"},
                                     {403, "permission_error"},
                                     {404, "not_found_error"},
                                     {405, "invalid_request_error"},
                                     {413, "request_too_large"},
                                     {429, "rate_limit_error"},
                                     {500, "api_error"},
                                     {503, "overloaded_error"},
                                     {504, "timeout_error"}}) {
    EXPECT_EQ(type(ErrorAt("/v1/messages", status, "x")), word) << status;
  }
  EXPECT_EQ(type(ErrorAt("/v1/messages", absl::DeadlineExceededError("x"))), "timeout_error");
  // A word after which clients send the whole conversation.
  const HttpError thread = ErrorAt("/v1/messages", absl::UnimplementedError("thread: is not supported"));
  EXPECT_EQ(nlohmann::json::parse(thread.body)["error"]["details"]["error_code"], "thread_unsupported_request");
}

TEST(HttpErrorsTest, EachApiHasNamesOfItsOwn) {
  const auto words = [](Api api, const char* message) {
    return std::string(InWordsOf(api, absl::InvalidArgumentError(message)).message());
  };
  EXPECT_EQ(words(Api::kResponses, "messages: is empty"), "input: is empty");
  EXPECT_EQ(words(Api::kResponses, "chat.messages[3].tool_calls: x"), "input: x");
  EXPECT_EQ(words(Api::kResponses, "input[3].type: x"), "input[3].type: x");
  EXPECT_EQ(words(Api::kChat, "chat.messages[3].role: x"), "messages[3].role: x");
  EXPECT_EQ(words(Api::kChat, "chat: x"), "messages: x");
  EXPECT_EQ(words(Api::kChat, "chat.template_flags: x"), "chat_template_kwargs: x");
  EXPECT_EQ(words(Api::kCompletions, "token_ids.ids: x"), "prompt: x");
  EXPECT_EQ(words(Api::kMessages, "stop: a text is empty"), "stop_sequences: a text is empty");
  EXPECT_EQ(words(Api::kMessages, "stop_token_ids: x"), "stop_token_ids: x");
  EXPECT_EQ(words(Api::kChat, "cache_scope: x"), "cache_salt: x");
  EXPECT_EQ(words(Api::kMessages, "no field"), "no field");
  const absl::Status over = InWordsOf(Api::kCompletions, OverContextError("input", {.tokens = 9, .context = 8}));
  EXPECT_EQ(ErrorOf(over)["code"], "context_length_exceeded");
  EXPECT_EQ(ErrorOf(over)["param"], "prompt");
}

TEST(HttpErrorsTest, StatusCodes) {
  EXPECT_EQ(OpenAiError(absl::UnauthenticatedError("")).status, 401);
  EXPECT_EQ(OpenAiError(absl::NotFoundError("")).status, 404);
  EXPECT_EQ(OpenAiError(absl::CancelledError("")).status, 499);
  EXPECT_EQ(OpenAiError(absl::UnimplementedError("")).status, 501);
  EXPECT_EQ(OpenAiError(absl::DeadlineExceededError("")).status, 504);
  EXPECT_EQ(OpenAiError(absl::InternalError("")).status, 500);
  EXPECT_FALSE(OpenAiError(absl::InternalError("")).retry_after);
  EXPECT_EQ(OpenAiError(absl::ResourceExhaustedError("")).retry_after, 1);
  EXPECT_EQ(OpenAiError(WithRetryAfter(absl::ResourceExhaustedError(""), std::chrono::seconds(7))).retry_after, 7);
  EXPECT_EQ(ErrorOf(absl::ResourceExhaustedError("full"))["code"], "rate_limit_exceeded");
  EXPECT_EQ(OpenAiError(absl::UnavailableError("")).retry_after, 1);
}

TEST(HttpErrorsTest, AFieldThatIsNotSupportedIsTheClientsError) {
  const absl::Status status = absl::UnimplementedError("store: true is not supported");
  EXPECT_EQ(OpenAiError(status).status, 400);
  EXPECT_EQ(ErrorOf(status)["param"], "store");
  EXPECT_EQ(ErrorOf(status)["code"], "unsupported_parameter");
  EXPECT_EQ(ErrorOf(absl::UnimplementedError("embeddings are not here"))["code"], "not_supported");
}

TEST(HttpErrorsTest, WhatIsNotUtf8IsRepaired) {
  EXPECT_EQ(ErrorOf(absl::InvalidArgumentError("a\xff"))["message"], "a\xEF\xBF\xBD");
}

// Both clients try again after any other 5xx.
TEST(HttpErrorsTest, WhatIsNotSupportedNeedsNoSecondTry) {
  EXPECT_EQ(HeadersOf(OpenAiError(absl::UnimplementedError(""))).at("X-Should-Retry"), "false");
  EXPECT_FALSE(HeadersOf(OpenAiError(absl::UnavailableError(""))).contains("X-Should-Retry"));
  EXPECT_TRUE(HeadersOf(OpenAiError(absl::UnavailableError(""))).contains("Retry-After"));
}

}  // namespace
}  // namespace moestro::router
