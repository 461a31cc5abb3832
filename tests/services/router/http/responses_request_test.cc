#include "services/router/http/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace moestro::router {
namespace {

using ::testing::StartsWith;

absl::StatusOr<text::Chat> ReadResponses(const std::string& body) {
  ToolOrigins origins;
  return ReadResponsesChat(nlohmann::json::parse(body), body, origins);
}

std::string ResponsesError(const std::string& body) { return std::string(ReadResponses(body).status().message()); }

TEST(ResponsesRequestTest, ItemsBecomeMessages) {
  const auto chat = ReadResponses(R"({"instructions": "be brief", "input": [
    {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
    {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "3"},
    {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "4"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "3", "name": "f", "arguments": "{}"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto& messages = chat->messages;
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[0].content, "be brief");
  EXPECT_EQ(messages[1].content, "ab");
  EXPECT_EQ(messages[2].content, "I look.");
  EXPECT_EQ(messages[2].reasoning_content, "hm");
  ASSERT_EQ(messages[2].tool_calls.size(), 2u);
  EXPECT_EQ(messages[2].tool_calls[1].id, "2");
  EXPECT_EQ(messages[3].content, "3");
  EXPECT_EQ(messages[4].tool_call_id, "2");
  EXPECT_EQ(messages[4].content, "4");
  EXPECT_EQ(messages[5].reasoning_content, "so");
  EXPECT_EQ(messages[5].tool_calls[0].id, "3");
}

TEST(ResponsesRequestTest, CallsKeepTheOrderOfTheirKeys) {
  const auto chat = ReadResponses(R"({"input": [
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": {"z": 1, "a": {"y": 2, "b": 3}}},
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"z": 1, "a": 2}}}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->messages[0].tool_calls[0].arguments, R"({"z": 1, "a": {"y": 2, "b": 3}})");
  EXPECT_EQ(chat->messages[1].tool_calls[0].arguments, R"({"z": 1, "a": 2})");
}

TEST(ResponsesRequestTest, ThoughtsWithoutAnAnswerAreDropped) {
  const auto chat =
      ReadResponses(R"({"input": [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"role": "user", "content": "go on"}, {"role": "assistant", "content": "yes"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  ASSERT_EQ(chat->messages.size(), 2u);
  EXPECT_EQ(chat->messages[0].reasoning_content, "");
  EXPECT_EQ(chat->messages[1].reasoning_content, "");
}

TEST(ResponsesRequestTest, ToolsBecomeThoseOfChats) {
  const auto chat = ReadResponses(R"({"input": "x", "reasoning": {"effort": "low"}, "tools": [
    {"type": "function", "parameters": {"z": 1, "a": 2}, "name": "f", "output_schema": {}}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->tools, R"([{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}}])");
  EXPECT_EQ(chat->template_flags, R"({"reasoning_effort":"low"})");
}

TEST(ResponsesRequestTest, ToolsOfOthersStandBesideFunctions) {
  const auto chat = ReadResponses(R"({"input": "x", "tools": [
    {"type": "web_search"}, {"type": "local_shell"}, {"type": "new_kind"},
    {"type": "function", "name": "f"}, {"type": "function", "name": "g", "defer_loading": true}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->tools, R"([{"type": "function", "function": {"name": "f"}}])");
  const auto found = ReadResponses(R"({"input": [{"role": "user", "content": "x"},
    {"type": "tool_search_output", "tools": [{"type": "function", "name": "g"}]}], "tools": [
    {"type": "function", "name": "g", "defer_loading": true}]})");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->tools, R"([{"type": "function", "function": {"name": "g"}}])");
}

// As Codex offers its editor of files.
TEST(ResponsesRequestTest, ACustomToolIsAFunctionOfAText) {
  const std::string body = R"({"input": "x", "tools": [
    {"type": "custom", "name": "edit", "description": "Edits \"files\".",
     "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}},
    {"type": "custom", "name": "say", "format": {"type": "text"}},
    {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "say"}]}]})";
  ToolOrigins origins;
  const auto chat = ReadResponsesChat(nlohmann::json::parse(body), body, origins);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const nlohmann::json tools = nlohmann::json::parse(chat->tools);
  ASSERT_EQ(tools.size(), 3u);
  EXPECT_EQ(tools[0]["function"]["name"], "edit");
  EXPECT_EQ(tools[0]["function"]["description"], "Edits \"files\".\n\nThe input has this form (lark):\nstart: \"a\"");
  EXPECT_EQ(tools[1]["function"]["description"], "");
  for (const auto& tool : tools) {
    EXPECT_EQ(tool["type"], "function");
    EXPECT_EQ(tool["function"]["parameters"], nlohmann::json::parse(R"({"type": "object", "required": ["input"],
        "properties": {"input": {"type": "string"}}})"));
  }
  for (const char* name : {"edit", "say", "n__say"}) EXPECT_TRUE(origins.at(name).is_custom) << name;
  EXPECT_EQ(origins.at("say").space, "");
  EXPECT_EQ(origins.at("n__say").space, "n");
}

TEST(ResponsesRequestTest, ACustomToolMayBeChosen) {
  for (const char* choice :
       {R"({"type": "custom", "name": "edit"})",
        R"({"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "edit"}]})"}) {
    const nlohmann::json body{{"input", "x"}, {"tool_choice", nlohmann::json::parse(choice)}};
    EXPECT_TRUE(ReadResponses(body.dump()).ok()) << choice;
    absl::Status status;
    text::JsonFields fields(body, "", &status);
    const ToolChoice read = ReadToolChoice(fields);
    EXPECT_TRUE(read.forced) << choice;
    EXPECT_EQ(read.names, std::vector<std::string>{"edit"}) << choice;
  }
}

TEST(ResponsesRequestTest, FunctionsMayHaveTheFormOfAnthropic) {
  const auto chat = ReadResponses(R"({"input": "x", "tools": [{"name": "f", "input_schema": {"z": 1, "a": 2}}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->tools, R"([{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}}])");
}

TEST(ResponsesRequestTest, FunctionsMayHaveTheFormOfChats) {
  const auto chat = ReadResponses(R"({"input": "x", "tools": [
    {"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->tools, R"([{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}}])");
  EXPECT_THAT(ResponsesError(R"({"input": "x", "tools": [{"type": "function", "function": {}}]})"),
              StartsWith("tools[0].function.name: "));
}

TEST(ResponsesRequestTest, FunctionsOfANamespaceAreFunctions) {
  const std::string body =
      R"({"tools": [{"type": "function", "name": "f"}, {"type": "namespace", "name": "n", "tools": [
      {"type": "function", "name": "f", "parameters": {"b": 1, "a": 2}}, {"type": "mcp", "name": "c"},
      {"type": "function", "name": "g", "description": "d"}]}],
    "input": [{"role": "user", "content": "x"},
      {"type": "function_call", "call_id": "1", "namespace": "n", "name": "f", "arguments": "{}"},
      {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"}]})";
  ToolOrigins origins;
  const auto chat = ReadResponsesChat(nlohmann::json::parse(body), body, origins);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->tools, R"([{"type": "function", "function": {"name": "f"}}, )"
                         R"({"type": "function", "function": {"name": "n__f", "parameters": {"b": 1, "a": 2}}}, )"
                         R"({"type": "function", "function": {"name": "g", "description": "d"}}])");
  EXPECT_EQ(origins.size(), 2u);
  EXPECT_EQ(origins.at("n__f").name, "f");
  EXPECT_EQ(origins.at("g").space, "n");
  EXPECT_EQ(chat->messages[1].tool_calls[0].name, "n__f");
  EXPECT_EQ(chat->messages[1].tool_calls[1].name, "f");
}

TEST(ResponsesRequestTest, CallsOfOtherKindsAreCalls) {
  const auto chat =
      ReadResponses(R"({"input": [{"role": "user", "content": "x"}, {"type": "web_search_call", "id": "w"},
    {"type": "custom_tool_call", "call_id": "1", "name": "edit", "input": "+ a"},
    {"type": "custom_tool_call_output", "call_id": "1", "output": "done"},
    {"type": "shell_call", "call_id": "2", "action": {"commands": ["ls"]}},
    {"type": "shell_call_output", "call_id": "2", "output": [{"stdout": "a", "stderr": "b"}]},
    {"type": "mcp_call", "id": "3", "name": "m", "arguments": "{}", "output": "found"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto& messages = chat->messages;
  ASSERT_EQ(messages.size(), 7u);
  EXPECT_EQ(messages[1].tool_calls[0].name, "edit");
  EXPECT_EQ(messages[1].tool_calls[0].arguments, R"({"input":"+ a"})");
  EXPECT_EQ(messages[2].content, "done");
  EXPECT_EQ(messages[3].tool_calls[0].name, "shell");
  EXPECT_EQ(messages[3].tool_calls[0].arguments, R"({"commands": ["ls"]})");
  EXPECT_EQ(messages[4].content, "ab");
  EXPECT_EQ(messages[5].tool_calls[0].id, "3");
  EXPECT_EQ(messages[6].tool_call_id, "3");
  EXPECT_EQ(messages[6].content, "found");
}

TEST(ResponsesRequestTest, ItemsBringTools) {
  const auto chat = ReadResponses(R"({"tools": [{"type": "function", "name": "a"}], "input": [
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "namespace", "name": "n", "tools": [
      {"type": "web_search", "name": "exec"}, {"type": "function", "name": "wait", "parameters": {"z": 1}}]}]},
    {"type": "tool_search_output", "tools": [{"type": "function", "name": "found", "defer_loading": true}]},
    {"role": "user", "content": "x"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->tools, R"([{"type": "function", "function": {"name": "a"}}, )"
                         R"({"type": "function", "function": {"name": "wait", "parameters": {"z": 1}}}, )"
                         R"({"type": "function", "function": {"name": "found"}}])");
  EXPECT_EQ(chat->messages.size(), 1u);
}

TEST(ResponsesRequestTest, VariablesOfTheTemplate) {
  EXPECT_EQ(ReadResponses(R"({"input": "x", "reasoning": {"effort": "none"}, "chat_template_kwargs": {"z": 1}})")
                ->template_flags,
            R"({"z": 1, "reasoning_effort":"none", "enable_thinking":false, "thinking":false})");
}

TEST(ResponsesRequestTest, ErrorsBeginWithThePath) {
  for (const auto& [body, field] :
       {std::pair("{}", "input: "),
        {R"({"input": 5})", "input: "},
        {R"({"input": ["x"]})", "input[0]: "},
        {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input[0].type: "},
        {R"({"input": [{"type": "compaction", "encrypted_content": "x"}]})", "input[0].type: "},
        {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})", "input[0].content[0].type: "},
        {R"({"input": [{"type": "function_call_output", "output": [{"type": "input_file"}]}]})",
         "input[0].output[0].file_data: "},
        {R"({"input": "x", "tools": [{"type": "namespace", "tools": []}]})", "tools[0].name: "},
        {R"({"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]})",
         "tools[0].tools[0].name: "},
        {R"({"input": "x", "tool_choice": {"type": "web_search"}})", "tool_choice.type: "},
        {R"({"input": "x", "tools": [{"type": "function"}]})", "tools[0].name: "},
        {R"({"input": "x", "tools": [{"type": "custom", "description": "d"}]})", "tools[0].name: "},
        {R"({"input": "x", "tools": [{"type": "custom", "name": "c", "format": {"type": "x"}}]})",
         "tools[0].format.type: "},
        {R"({"input": "x", "conversation": "c"})", "conversation: "}}) {
    EXPECT_THAT(ResponsesError(body), StartsWith(field)) << body;
  }
}

}  // namespace
}  // namespace moestro::router
