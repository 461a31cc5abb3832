#include "services/router/http/anthropic_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace moestro::router {
namespace {

using ::testing::StartsWith;

absl::StatusOr<text::Chat> ReadAnthropic(const std::string& body) {
  return ReadAnthropicChat(nlohmann::json::parse(body), body);
}

ToolChoice AnthropicChoice(const std::string& choice) {
  const nlohmann::json body = nlohmann::json::parse("{\"tool_choice\": " + choice + "}");
  absl::Status status;
  text::JsonFields fields(body, "", &status);
  const ToolChoice read = ReadAnthropicToolChoice(fields);
  EXPECT_TRUE(status.ok()) << status;
  return read;
}

std::string AnthropicError(const std::string& body) { return std::string(ReadAnthropic(body).status().message()); }

TEST(AnthropicFieldsTest, ReadsEveryKindOfBlock) {
  const auto chat = ReadAnthropic(R"({"system": [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}],
    "messages": [
      {"role": "user", "content": "hi"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "redacted_thinking", "data": "y"}, {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": [1]}}]},
      {"role": "user", "content": [{"type": "text", "text": "so?"},
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "3"}], "is_error": true}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto& messages = chat->messages;
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[0].content, "be\nbrief");
  EXPECT_EQ(messages[1].content, "hi");
  EXPECT_EQ(messages[2].content, "I look.");
  EXPECT_EQ(messages[2].reasoning_content, "hm");
  ASSERT_EQ(messages[2].tool_calls.size(), 1u);
  EXPECT_EQ(messages[2].tool_calls[0].id, "a");
  EXPECT_EQ(messages[2].tool_calls[0].name, "f");
  EXPECT_EQ(messages[2].tool_calls[0].arguments, R"({"x": [1]})");
  EXPECT_EQ(messages[3].role, "tool");
  EXPECT_EQ(messages[3].tool_call_id, "a");
  EXPECT_EQ(messages[3].content, "3");
  EXPECT_EQ(messages[4].role, "user");
  EXPECT_EQ(messages[4].content, "so?");
}

TEST(AnthropicFieldsTest, TheSystemMaySpeakInBetween) {
  const auto chat = ReadAnthropic(R"({"messages": [{"role": "user", "content": "x"},
    {"role": "system", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  ASSERT_EQ(chat->messages.size(), 2u);
  EXPECT_EQ(chat->messages[1].role, "system");
  EXPECT_EQ(chat->messages[1].content, "be\nbrief");
}

TEST(AnthropicFieldsTest, ToolsBecomeFunctionsAndKeepTheOrderOfTheirKeys) {
  const std::string tools = R"("tools": [{"name": "f", "input_schema": {"z": 1, "a": 2}, "description": "d"}])";
  const std::string head = R"({"messages": [{"role": "user", "content": "x"}], )";
  const auto chat = ReadAnthropic(head + tools + "}");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->tools,
            R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"z": 1, "a": 2}}}])");
  EXPECT_EQ(ReadAnthropic(head + tools + R"(, "tool_choice": {"type": "none"}})")->tools, "");
  EXPECT_EQ(ReadAnthropic(head + tools + R"(, "tool_choice": {"type": "any"}})")->tools,
            ReadAnthropic(head + tools + "}")->tools);
}

TEST(AnthropicFieldsTest, ToolsMayHaveTheFormOfOpenAi) {
  const std::string head = R"({"messages": [{"role": "user", "content": "x"}], "tools": [)";
  for (const char* tool :
       {R"({"type": "function", "function": {"name": "f", "description": "d", "parameters": {"z": 1, "a": 2}}})",
        R"({"type": "function", "name": "f", "description": "d", "parameters": {"z": 1, "a": 2}})"}) {
    const auto chat = ReadAnthropic(head + tool + "]}");
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_EQ(
        chat->tools,
        R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"z": 1, "a": 2}}}])")
        << tool;
  }
  const auto bare = ReadAnthropic(head + R"({"type": "function", "function": {"name": "f"}}]})");
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_EQ(bare->tools, R"([{"type": "function", "function": {"name": "f", "description": ""}}])");
  EXPECT_THAT(AnthropicError(head + R"({"type": "function", "function": {"parameters": {}}}]})"),
              StartsWith("tools[0].function.name: "));
  EXPECT_THAT(AnthropicError(head + R"({"type": "custom", "name": "f"}]})"), StartsWith("tools[0].input_schema: "));
}

TEST(AnthropicFieldsTest, CallsKeepTheOrderOfTheirKeys) {
  const auto chat = ReadAnthropic(R"({"messages": [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": [{"type": "text", "text": "I write."},
      {"type": "tool_use", "id": "a", "name": "f", "input": {"path": "p", "content": {"z": 1, "a": 2}, "append": false}},
      {"type": "tool_use", "id": "b", "name": "g", "\u0069nput": {"z": 18446744073709551616, "a": 1}},
      {"type": "tool_use", "id": "c", "name": "h", "input": {}}, {"type": "tool_use", "id": "d", "name": "h"}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto& calls = chat->messages[1].tool_calls;
  ASSERT_EQ(calls.size(), 4u);
  EXPECT_EQ(calls[0].arguments, R"({"path": "p", "content": {"z": 1, "a": 2}, "append": false})");
  EXPECT_EQ(calls[1].arguments, R"({"z": 18446744073709551616, "a": 1})");
  EXPECT_EQ(calls[2].arguments, "");
  EXPECT_EQ(calls[3].arguments, "");
}

// Blocks that are left out stand before, between and behind.
TEST(AnthropicFieldsTest, EachCallKeepsItsOwnArguments) {
  const auto chat = ReadAnthropic(R"({"messages": [{"role": "assistant", "content": [
      {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "z"}},
      {"type": "tool_use", "id": "1", "name": "f", "input": {"path": "a"}},
      {"type": "fallback"},
      {"type": "tool_use", "id": "2", "name": "g", "input": {"path": "b"}}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto& calls = chat->messages.at(0).tool_calls;
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].arguments, R"({"path": "a"})");
  EXPECT_EQ(calls[1].arguments, R"({"path": "b"})");
}

TEST(AnthropicFieldsTest, ThinkingIsOffUnlessAskedFor) {
  const std::string head = R"({"messages": [{"role": "user", "content": "x"}])";
  const auto plain = ReadAnthropic(head + "}");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->template_flags, R"({"enable_thinking":false, "thinking":false})");
  const auto thinks = ReadAnthropic(head + R"(, "thinking": {"type": "enabled", "budget_tokens": 1024}})");
  ASSERT_TRUE(thinks.ok()) << thinks.status();
  EXPECT_EQ(thinks->template_flags, R"({"enable_thinking":true, "thinking":true})");
}

TEST(AnthropicFieldsTest, ErrorsBeginWithThePath) {
  EXPECT_THAT(AnthropicError("{}"), StartsWith("messages: "));
  EXPECT_THAT(AnthropicError(R"({"messages": []})"), StartsWith("messages: "));
  EXPECT_THAT(AnthropicError(R"({"messages": [5]})"), StartsWith("messages[0]: "));
  EXPECT_THAT(AnthropicError(R"({"messages": [{"role": "user"}]})"), StartsWith("messages[0].content: "));
  EXPECT_THAT(AnthropicError(R"({"messages": [{"role": "tool", "content": "x"}]})"), StartsWith("messages[0].role: "));
  EXPECT_THAT(AnthropicError(R"({"messages": [{"role": "user", "content": [{"type": "tool_use", "name": "f"}]}]})"),
              StartsWith("messages[0].content[0].type: "));
  EXPECT_THAT(AnthropicError(R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"input_schema": {}}]})"),
              StartsWith("tools[0].name: "));
  EXPECT_THAT(AnthropicError(R"({"messages": [{"role": "user", "content": [{"data": "x"}]}]})"),
              StartsWith("messages[0].content[0].type: "));
  EXPECT_THAT(AnthropicError(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]})"),
              StartsWith("messages[0].content[0].text: "));
  EXPECT_THAT(AnthropicError(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
              StartsWith("messages[0].content[0].type: "));
  EXPECT_THAT(AnthropicError(R"({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]})"),
              StartsWith("messages[0].content[0].tool_use_id: "));
  EXPECT_THAT(AnthropicError(R"({"messages": [{"role": "user", "content": "x"}], "system": [{"type": "image"}]})"),
              StartsWith("system[0].type: "));
}

TEST(AnthropicFieldsTest, BlocksThatHoldTextAreRead) {
  const std::string text = R"({"type": "text", "text": "hello"})";
  for (const auto& [block, words] : {
           std::pair(std::string(R"({"type": "document", "title": "t", "context": "c", "source": {"type": "text",
               "media_type": "text/plain", "data": "hello"}})"),
                     "t\nc\nhello"),
           {R"({"type": "document", "source": {"type": "content", "content": [)" + text + "]}}", "hello"},
           {R"({"type": "document", "source": {"type": "content", "content": "hello"}})", "hello"},
           {R"({"type": "document", "source": {"type": "base64", "data": "aGVsbG8="}})", "hello"},
           {R"({"type": "search_result", "source": "s", "title": "t", "content": [)" + text + "]}", "t\ns\nhello"},
           {R"({"text": "hello"})", "hello"},
       }) {
    const auto user = ReadAnthropic(R"({"messages": [{"role": "user", "content": [)" + block + "]}]}");
    ASSERT_TRUE(user.ok()) << user.status();
    EXPECT_EQ(user->messages[0].content, words) << block;
    const auto result = ReadAnthropic(
        R"({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [)" +
        block + "]}]}]}");
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->messages[0].content, words) << block;
  }
  for (const auto& [block, field] : {
           std::pair(R"({"type": "document", "source": {"type": "base64", "data": "JVBERi0xLjc="}})", "source: "),
           {R"({"type": "document", "source": {"type": "url", "url": "x"}})", "source.type: "},
           {R"({"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}})",
            "source.content[0].type: "},
           {R"({"type": "document"})", "source: "},
           {R"({"type": "image"})", "type: "},
       }) {
    EXPECT_THAT(AnthropicError(std::string(R"({"messages": [{"role": "user", "content": [)") + block + "]}]}"),
                StartsWith(std::string("messages[0].content[0].") + field))
        << block;
  }
}

TEST(AnthropicFieldsTest, WhatTheServersToolsLeftIsNotRead) {
  const auto chat = ReadAnthropic(R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [
      {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
      {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
      {"type": "mcp_tool_use", "id": "m", "name": "f", "server_name": "n", "input": {}},
      {"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "3"}]},
      {"type": "text", "text": "It is 3."}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  ASSERT_EQ(chat->messages.size(), 4u);
  EXPECT_EQ(chat->messages[1].tool_calls[0].name, "f");
  EXPECT_EQ(chat->messages[2].role, "tool");
  EXPECT_EQ(chat->messages[2].content, "3");
  EXPECT_EQ(chat->messages[3].content, "It is 3.");
}

std::string AnthropicTools(const std::string& tools, const std::string& more = "") {
  const auto chat = ReadAnthropic(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]})" +
                                  more + R"(], "tools": [)" + tools + "]}");
  EXPECT_TRUE(chat.ok()) << chat.status();
  std::string names;
  if (chat->tools.empty()) return names;
  for (const auto& tool : nlohmann::json::parse(chat->tools)) names += tool["function"]["name"].get<std::string>();
  return names;
}

TEST(AnthropicFieldsTest, DeferredToolsWaitUntilSomethingRefersToThem) {
  const std::string tools =
      R"({"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}, "defer_loading": true},
      {"type": "bash_20250124", "name": "s"}, {"name": "c", "input_schema": {}, "defer_loading": true})";
  const std::string reference = R"({"type": "tool_reference", "tool_name": "c"})";
  EXPECT_EQ(AnthropicTools(tools), "a");
  EXPECT_EQ(AnthropicTools(tools, R"(, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
      "content": [)" + reference + "]}]}"),
            "ac");
  EXPECT_EQ(AnthropicTools(tools, R"(, {"role": "assistant", "content": [{"type": "tool_search_tool_result",
      "content": {"tool_references": [)" +
                                      reference + "]}}]}"),
            "ac");
  // Nobody here runs the search, so nobody would ever refer to one.
  EXPECT_EQ(AnthropicTools(tools + R"(, {"type": "tool_search_tool_regex_20251119", "name": "r"})"), "abc");
  const auto chosen = ReadAnthropic(R"({"messages": [{"role": "user", "content": "x"}], "tools": [)" + tools +
                                    R"(], "tool_choice": {"type": "tool", "name": "b"}})");
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_THAT(chosen->tools, ::testing::HasSubstr(R"("b")"));
}

TEST(AnthropicFieldsTest, EffortIsAVariableOfTheTemplate) {
  const auto chat =
      ReadAnthropic(R"({"messages": [{"role": "user", "content": "x"}], "output_config": {"effort": "low"}})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->template_flags, R"({"reasoning_effort":"low", "enable_thinking":false, "thinking":false})");
}

TEST(AnthropicFieldsTest, OnlyThoughtsMayBeCleared) {
  const std::string head = R"({"messages": [{"role": "user", "content": "x"}], "context_management": )";
  for (const char* fine : {"null", "{}", R"({"edits": []})", R"({"edits": [{"type": "clear_thinking_20251015"}]})"}) {
    EXPECT_TRUE(ReadAnthropic(head + fine + "}").ok()) << fine;
  }
  for (const auto& [refused, field] : {std::pair(R"({"edits": [{"type": "clear_tool_uses_20250919"}]})", "[0].type: "),
                                       {R"({"edits": [1]})", "[0]: "},
                                       {R"({"edits": "all"})", ": "}}) {
    EXPECT_THAT(AnthropicError(head + refused + "}"), StartsWith(std::string("context_management.edits") + field))
        << refused;
  }
  EXPECT_THAT(AnthropicError(R"({"messages": [], "mcp_servers": [{"url": "x"}]})"), StartsWith("mcp_servers: "));
}

TEST(AnthropicFieldsTest, ChoosesTools) {
  EXPECT_FALSE(AnthropicChoice("null").forced);
  EXPECT_FALSE(AnthropicChoice(R"({"type": "auto"})").forced);
  EXPECT_TRUE(AnthropicChoice(R"({"type": "none"})").none);
  EXPECT_TRUE(AnthropicChoice(R"({"type": "any"})").several);
  EXPECT_TRUE(AnthropicChoice(R"({"type": "any"})").forced);
  EXPECT_TRUE(AnthropicChoice(R"("none")").none);
  EXPECT_TRUE(AnthropicChoice(R"("any")").forced);
  const ToolChoice one = AnthropicChoice(R"({"type": "tool", "name": "f"})");
  EXPECT_TRUE(one.forced && !one.several);
  EXPECT_EQ(one.names, std::vector<std::string>{"f"});
  const std::string head = R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": )";
  EXPECT_THAT(AnthropicError(head + R"({"type": "tool"}})"), StartsWith("tool_choice.name: "));
  EXPECT_THAT(AnthropicError(head + R"({"type": "some"}})"), StartsWith("tool_choice.type: "));
}

}  // namespace
}  // namespace moestro::router
