#include "services/router/http/ollama_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace moestro::router {
namespace {

using ::testing::StartsWith;

constexpr size_t kMostValues = 1000;

OllamaBody Translate(OllamaForm form, const std::string& body) {
  auto translated = TranslateOllama(form, body, kMostValues);
  EXPECT_TRUE(translated.ok()) << translated.status();
  return translated.value_or(OllamaBody{});
}

TEST(OllamaRequestTest, AChatBecomesOneOfOpenAi) {
  const OllamaBody chat = Translate(OllamaForm::kChat, R"({"model": "m:latest", "messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": "", "thinking": "hm",
       "tool_calls": [{"function": {"name": "f", "arguments": {"z": 1, "a": [2]}}}]},
      {"role": "tool", "content": "3", "tool_name": "f"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}}],
    "options": {"num_ctx": 8192, "temperature": 0.5, "num_predict": 7, "stop": ["x"], "seed": 3},
    "format": "json", "think": false, "keep_alive": "5m"})");
  EXPECT_EQ(chat.model, "m:latest");
  EXPECT_TRUE(chat.stream);
  EXPECT_FALSE(chat.loads_only || chat.raw);
  EXPECT_EQ(chat.chat,
            R"({"temperature":0.5,"seed":3,"stop":["x"],"max_tokens":7,"response_format":{"type":"json_object"},)"
            R"("chat_template_kwargs":{"enable_thinking":false,"thinking":false},)"
            R"("tools":[{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2}}}],)"
            R"("messages":[{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[{"type":"function",)"
            R"("function":{"name":"f","arguments":"{\"z\":1,\"a\":[2]}"}}]},)"
            R"({"role":"tool","content":"3","name":"f"}]})");
}

TEST(OllamaRequestTest, ATextBecomesAChat) {
  const OllamaBody body =
      Translate(OllamaForm::kGenerate, R"({"model": "m", "prompt": "p", "system": "s", "stream": false,
    "think": "low", "options": {"num_predict": -2}, "format": {"type": "object", "properties": {"z": {}, "a": {}}}})");
  EXPECT_FALSE(body.stream);
  EXPECT_EQ(body.chat, R"({"response_format":{"type":"json_schema","json_schema":{"name":"format",)"
                       R"("schema":{"type":"object","properties":{"z":{},"a":{}}}}},"reasoning_effort":"low",)"
                       R"("messages":[{"role":"system","content":"s"},{"role":"user","content":"p"}]})");
  const OllamaBody raw = Translate(OllamaForm::kGenerate, R"({"model": "m", "prompt": "p", "raw": true, "suffix": "",
    "images": [], "context": []})");
  EXPECT_TRUE(raw.raw);
  EXPECT_EQ(raw.prompt, "p");
}

TEST(OllamaRequestTest, WithoutAMessageTheModelIsOnlyLoaded) {
  EXPECT_TRUE(Translate(OllamaForm::kChat, R"({"model": "m"})").loads_only);
  EXPECT_TRUE(Translate(OllamaForm::kChat, R"({"model": "m", "messages": [], "keep_alive": 0})").loads_only);
  EXPECT_TRUE(Translate(OllamaForm::kGenerate, R"({"model": "m", "system": "s"})").loads_only);
}

TEST(OllamaRequestTest, IdsOfCallsAreHandedOn) {
  EXPECT_EQ(Translate(OllamaForm::kChat, R"({"messages": [
      {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
      {"role": "tool", "content": "3", "tool_call_id": "1"}]})")
                .chat,
            R"({"messages":[{"role":"assistant","content":"","tool_calls":[{"type":"function","id":"1",)"
            R"("function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"3","tool_call_id":"1"}]})");
}

TEST(OllamaRequestTest, NamesMayHaveTheTagOfTheLatest) {
  ServedModel model;
  model.name = "m";
  model.names = {.aliases = {"a"}, .strict = true};
  for (const char* served : {"m", "m:latest", "a", "a:latest"}) {
    EXPECT_TRUE(CheckOllamaName(served, model).ok()) << served;
  }
  for (const char* other : {"m:7b", "m:latest:latest", ":latest", "M"}) {
    EXPECT_TRUE(absl::IsNotFound(CheckOllamaName(other, model))) << other;
  }
  model.names.strict = false;
  EXPECT_TRUE(CheckOllamaName("llama3:8b", model).ok());
}

TEST(OllamaRequestTest, ErrorsBeginWithThePath) {
  for (const auto& [body, field] :
       {std::pair(R"({"messages": 5})", "messages: "),
        {R"({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]})", "messages[0].images: "},
        {R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})", "messages[0].tool_calls[0].function: "},
        {R"({"think": "much"})", "think: "},
        {R"({"format": "yaml"})", "format: "},
        {R"({"options": {"num_predict": "x"}})", "options.num_predict: "},
        {R"({"logprobs": true})", "logprobs: "},
        {R"({"top_logprobs": 3})", "logprobs: "},
        {R"({"stream": 1})", "stream: "}}) {
    EXPECT_THAT(std::string(TranslateOllama(OllamaForm::kChat, body, kMostValues).status().message()),
                StartsWith(field))
        << body;
  }
  for (const auto& [body, field] : {std::pair(R"({"suffix": "x"})", "suffix: "),
                                    {R"({"truncate": "no"})", "truncate: "},
                                    {R"({"template": "{{ .Prompt }}"})", "template: "},
                                    {R"({"context": [1]})", "context: "},
                                    {R"({"images": ["aGk="]})", "images: "}}) {
    EXPECT_THAT(std::string(TranslateOllama(OllamaForm::kGenerate, body, kMostValues).status().message()),
                StartsWith(field))
        << body;
  }
  EXPECT_FALSE(TranslateOllama(OllamaForm::kChat, R"({"messages": [1, 2, 3]})", 2).ok());
}

}  // namespace
}  // namespace moestro::router
