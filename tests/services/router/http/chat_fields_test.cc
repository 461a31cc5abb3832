#include "services/router/http/chat_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace moestro::router {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<text::Chat> ReadBody(const std::string& body) { return ReadChat(nlohmann::json::parse(body), body); }

std::string BodyError(const std::string& body) { return std::string(ReadBody(body).status().message()); }

TEST(ChatFieldsTest, ReadsEveryKindOfMessage) {
  const auto chat = ReadBody(R"({"messages": [
    {"role": "developer", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "me"},
    {"role": "assistant", "content": null, "reasoning_content": "hm",
     "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
                    {"id": "2", "type": "function", "function": {"name": "g", "arguments": {"y": 2}}}]},
    {"role": "tool", "tool_call_id": "1", "content": "3", "unknown": [1]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  ASSERT_EQ(chat->messages.size(), 4u);
  EXPECT_EQ(chat->messages[0].role, "system");
  EXPECT_EQ(chat->messages[1].content, "ab");
  EXPECT_EQ(chat->messages[1].name, "me");
  EXPECT_EQ(chat->messages[2].reasoning_content, "hm");
  ASSERT_EQ(chat->messages[2].tool_calls.size(), 2u);
  EXPECT_EQ(chat->messages[2].tool_calls[0].arguments, R"({"x": 1})");
  EXPECT_EQ(chat->messages[2].tool_calls[1].arguments, R"({"y": 2})");
  EXPECT_EQ(chat->messages[3].tool_call_id, "1");
}

TEST(ChatFieldsTest, ToolsKeepTheOrderOfTheirKeys) {
  const auto chat =
      ReadBody(R"({"messages": [], "tools": [{"type": "function", "function": {"z": 1, "name": "f", "a": "]}\"" }}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->tools, R"([{"type": "function", "function": {"z": 1, "name": "f", "a": "]}\"" }}])");
  const auto none = ReadBody(R"({"messages": [], "tools": [{"function": {"name": "f"}}], "tool_choice": "none"})");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->tools, "");
}

TEST(ChatFieldsTest, ObjectsOfClientsKeepTheOrderOfTheirKeys) {
  const auto chat = ReadBody(R"({"chat_template_kwargs": {"z": {"y": 1, "x": 12345678901234567890123}, "a": 1},
    "reasoning_effort": "none", "messages": [
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}},
                                         {"function": {"name": "f", "arguments": {"z": 1, "a": {"y": 2, "b": 3}}}}]},
    {"role": "assistant", "function_call": {"\u0061rguments": {"path": "p", "content": "c"}, "name": "f"}},
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}, {"function": {"name": "f"}}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->messages[0].tool_calls[1].arguments, R"({"z": 1, "a": {"y": 2, "b": 3}})");
  EXPECT_EQ(chat->messages[1].tool_calls[0].arguments, R"({"path": "p", "content": "c"})");
  EXPECT_EQ(chat->messages[2].tool_calls[0].arguments, "{}");
  EXPECT_EQ(chat->messages[2].tool_calls[1].arguments, "");
  EXPECT_EQ(chat->template_flags, R"({"z": {"y": 1, "x": 12345678901234567890123}, "a": 1, )"
                                  R"("reasoning_effort":"none", "enable_thinking":false, "thinking":false})");
}

ToolChoice ToolChoiceOf(const std::string& text) {
  const nlohmann::json body = nlohmann::json::parse(text);
  absl::Status status;
  text::JsonFields fields(body, "", &status);
  const ToolChoice read = ReadToolChoice(fields);
  EXPECT_TRUE(status.ok()) << status;
  return read;
}

TEST(ChatFieldsTest, ChoosesTools) {
  for (const char* text : {"{}", R"({"tool_choice": null})", R"({"tool_choice": "auto"})"}) {
    EXPECT_FALSE(ToolChoiceOf(text).forced || ToolChoiceOf(text).none);
    EXPECT_TRUE(ToolChoiceOf(text).several);
  }
  EXPECT_TRUE(ToolChoiceOf(R"({"tool_choice": "none"})").none);
  const ToolChoice required = ToolChoiceOf(R"({"tool_choice": "required", "parallel_tool_calls": false})");
  EXPECT_TRUE(required.forced && !required.several);
  EXPECT_TRUE(required.names.empty());
  for (const char* function : {R"("function": {"name": "f"})", R"("name": "f")"}) {
    const ToolChoice named = ToolChoiceOf(std::string(R"({"tool_choice": {"type": "function", )") + function + "}}");
    EXPECT_TRUE(named.forced && !named.several);
    EXPECT_EQ(named.names, std::vector<std::string>{"f"});
  }
  EXPECT_THAT(BodyError(R"({"messages": [], "tools": [], "tool_choice": "always"})"), StartsWith("tool_choice: "));
  EXPECT_THAT(BodyError(R"({"messages": [], "tools": [], "tool_choice": {"type": "function"}})"),
              StartsWith("tool_choice.name: "));
  EXPECT_TRUE(absl::IsUnimplemented(
      ReadBody(R"({"messages": [], "tools": [], "tool_choice": {"type": "custom", "name": "f"}})").status()));
}

// What SDKs of other APIs write, and what joining the deltas of a stream leaves.
TEST(ChatFieldsTest, ReadsFormsOfOtherClients) {
  for (const char* choice : {R"("")", R"({"type": "auto"})", R"({"type": ""})", "{}"}) {
    const ToolChoice read = ToolChoiceOf(std::string(R"({"tool_choice": )") + choice + "}");
    EXPECT_FALSE(read.forced || read.none) << choice;
  }
  EXPECT_TRUE(ToolChoiceOf(R"({"tool_choice": {"type": "none"}})").none);
  for (const char* choice : {R"("any")", R"({"type": "any"})", R"({"type": "required"})"}) {
    const ToolChoice read = ToolChoiceOf(std::string(R"({"tool_choice": )") + choice + "}");
    EXPECT_TRUE(read.forced && read.several && read.names.empty()) << choice;
  }
  for (const char* choice : {R"({"type": "tool", "name": "f"})", R"({"type": "", "function": {"name": "f"}})"}) {
    const ToolChoice read = ToolChoiceOf(std::string(R"({"tool_choice": )") + choice + "}");
    EXPECT_TRUE(read.forced && !read.several) << choice;
    EXPECT_EQ(read.names, std::vector<std::string>{"f"}) << choice;
  }
  const auto chat = ReadBody(R"({"tools": [{"type": "", "function": {"name": "f"}}], "messages": [
    {"role": "user", "content": [{"type": "", "text": "a"}]},
    {"role": "assistant", "tool_calls": [{"id": "1", "type": "", "function": {"name": "", "arguments": ""}},
      {"id": "2", "type": "custom", "custom": {"name": "edit", "input": "+ a"}}, {"id": "3", "function": {"name": null}}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->messages[0].content, "a");
  EXPECT_EQ(chat->messages[1].tool_calls[0].name, "");
  EXPECT_EQ(chat->messages[1].tool_calls[1].arguments, R"({"input":"+ a"})");
  EXPECT_THAT(chat->tools, HasSubstr(R"("name": "f")"));
}

TEST(ChatFieldsTest, ToolsOfOthersStandBesideFunctions) {
  const std::string others = R"({"type": "custom", "custom": {"name": "c"}}, {"type": "web_search"})";
  const auto chat = ReadBody(R"({"messages": [], "tools": [)" + others +
                             R"(, {"type": "function", "function": {"z": 1, "name": "f"}}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->tools, R"([{"type": "function", "function": {"z": 1, "name": "f"}}])");
  const auto none = ReadBody(R"({"messages": [], "tools": [)" + others + "]}");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->tools, "");
  const ToolChoice some = ToolChoiceOf(R"({"tool_choice": {"type": "allowed_tools", "mode": "auto",
      "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}]}})");
  EXPECT_EQ(some.names, std::vector<std::string>{"f"});
  EXPECT_TRUE(ToolChoiceOf(R"({"tool_choice": {"type": "allowed_tools", "mode": "auto",
      "tools": [{"type": "web_search"}]}})")
                  .none);
  EXPECT_THAT(BodyError(R"({"messages": [], "tool_choice": {"type": "allowed_tools", "mode": "required",
      "tools": [{"type": "mcp"}]}})"),
              StartsWith("tool_choice.tools: "));
}

TEST(ChatFieldsTest, FunctionsMayHaveTheFormOfAnthropic) {
  for (const char* tool :
       {R"({"name": "f", "description": "d", "input_schema": {"z": 1, "a": 2}})",
        R"({"type": "custom", "name": "f", "description": "d", "input_schema": {"z": 1, "a": 2}})",
        R"({"type": "function", "function": {"name": "f", "description": "d", "input_schema": {"z": 1, "a": 2}}})"}) {
    const auto chat = ReadBody(std::string(R"({"messages": [], "tools": [)") + tool + "]}");
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_EQ(
        chat->tools,
        R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"z": 1, "a": 2}}}])")
        << tool;
  }
  EXPECT_THAT(BodyError(R"({"messages": [], "tools": [{"name": "f", "input_schema": 5}]})"),
              StartsWith("tools[0].input_schema: "));
}

TEST(ChatFieldsTest, PartsMayHoldWhatTheAssistantThought) {
  for (const char* part : {R"({"type": "thinking", "thinking": "hm", "signature": "x"})",
                           R"({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]})",
                           R"({"type": "reasoning", "reasoning": "hm"})", R"({"type": "reasoning", "text": "hm"})",
                           R"({"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]})",
                           R"({"type": "redacted_thinking", "data": "x"}, {"type": "thinking", "thinking": "hm"})"}) {
    const std::string content = std::string(R"("content": [)") + part + R"(, {"type": "text", "text": "yes"}])";
    const auto chat = ReadBody(R"({"messages": [{"role": "assistant", )" + content + "}]}");
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_EQ(chat->messages[0].content, "yes") << part;
    EXPECT_EQ(chat->messages[0].reasoning_content, "hm") << part;
    EXPECT_THAT(BodyError(R"({"messages": [{"role": "user", )" + content + "}]}"),
                StartsWith("messages[0].content[0].type: "));
  }
  const auto apart = ReadBody(R"({"messages": [{"role": "assistant", "content": "yes",
      "thinking_blocks": [{"type": "thinking", "thinking": "hm"}, {"type": "redacted_thinking", "data": "x"}]}]})");
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_EQ(apart->messages[0].content, "yes");
  EXPECT_EQ(apart->messages[0].reasoning_content, "hm");
  const auto both = ReadBody(R"({"messages": [{"role": "assistant", "reasoning_content": "told",
      "content": [{"type": "thinking", "thinking": "hm"}]}]})");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->messages[0].reasoning_content, "told");
}

TEST(ChatFieldsTest, AnAnswerBeginsBehindItsOpening) {
  EXPECT_THAT(BodyError(R"({"messages": [], "add_generation_prompt": false})"), StartsWith("add_generation_prompt: "));
  EXPECT_TRUE(ReadBody(R"({"messages": [], "add_generation_prompt": true})").ok());
  EXPECT_TRUE(ReadBody(R"({"messages": [], "add_generation_prompt": false, "continue_final_message": true})").ok());
}

TEST(ChatFieldsTest, FunctionsMayHaveTheFormOfResponses) {
  const auto chat =
      ReadBody(R"({"messages": [], "tools": [{"type": "function", "name": "f", "parameters": {"z": 1}}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->tools,
            R"([{"type": "function", "function": {"type": "function", "name": "f", "parameters": {"z": 1}}}])");
}

TEST(ChatFieldsTest, FilesThatHoldTextAreRead) {
  const auto read = [](const std::string& file) {
    return ReadBody(R"({"messages": [{"role": "user", "content": [{"type": "file", "file": )" + file + "}]}]}");
  };
  for (const char* data : {"data:text/plain;base64,aGVsbG8=", "data:application/json;base64,aGVsbG8=", "aGVsbG8="}) {
    const auto chat = read(std::string(R"({"filename": "a.txt", "file_data": ")") + data + "\"}");
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_EQ(chat->messages[0].content, "a.txt\nhello") << data;
  }
  for (const auto& [file, field] : {std::pair(R"({"file_data": "JVBERi0xLjc="})", "file_data: "),  // %PDF-1.7
                                    {R"({"file_data": "data:text/plain;base64,/w=="})", "file_data: "},
                                    {R"({"file_data": "data:text/plain;base64,AA=="})", "file_data: "},
                                    {R"({"file_data": "?"})", "file_data: "},
                                    {R"({"file_id": "file-1"})", "file_id: "}}) {
    const absl::Status status = read(file).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << file;
    EXPECT_THAT(std::string(status.message()), StartsWith(std::string("messages[0].content[0].file.") + field));
  }
}

TEST(ChatFieldsTest, AllowsSomeOfTheTools) {
  const std::vector<std::string> names{"f", "g"};
  const ToolChoice chat =
      ToolChoiceOf(R"({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required",
      "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}]}}})");
  EXPECT_TRUE(chat.forced);
  EXPECT_EQ(chat.names, names);
  const ToolChoice responses = ToolChoiceOf(R"({"tool_choice": {"type": "allowed_tools", "mode": "auto",
      "tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}]}})");
  EXPECT_FALSE(responses.forced || responses.none);
  EXPECT_EQ(responses.names, names);
  for (const auto& [bad, field] : {std::pair(R"("mode": "always", "tools": [{"name": "f"}])", "mode: "),
                                   {R"("mode": "auto", "tools": [])", "tools: "},
                                   {R"("mode": "auto", "tools": ["f"])", "tools[0]: "},
                                   {R"("mode": "auto", "tools": [{"name": "f"}, {"name": 1}])", "tools[1].name: "},
                                   {R"("mode": "auto")", "tools: "},
                                   {R"("mode": 1, "tools": [{"name": "f"}])", "mode: "}}) {
    EXPECT_THAT(BodyError(std::string(R"({"messages": [], "tools": [], "tool_choice": {"type": "allowed_tools", )") +
                          bad + "}}"),
                StartsWith(std::string("tool_choice.") + field))
        << bad;
  }
}

TEST(ChatFieldsTest, FlagsOfTheTemplate) {
  const auto chat = ReadBody(R"({"messages": [], "chat_template_kwargs": {"a": true}, "reasoning_effort": "none"})");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->template_flags,
            R"({"a": true, "reasoning_effort":"none", "enable_thinking":false, "thinking":false})");
  for (const char* off : {R"("enable_thinking": false)", R"("thinking": {"type": "disabled"})"}) {
    EXPECT_EQ(ReadBody(absl::StrCat(R"({"messages": [], )", off, "}"))->template_flags,
              R"({"enable_thinking":false, "thinking":false})");
  }
  EXPECT_EQ(ReadBody(R"({"messages": [], "thinking": {"type": "enabled"}, "chat_template_kwargs": {"thinking": 1}})")
                ->template_flags,
            R"({"thinking": 1, "enable_thinking":true})");
  EXPECT_EQ(ReadBody(R"({"messages": []})")->template_flags, "");
}

TEST(ChatFieldsTest, ErrorsBeginWithThePath) {
  EXPECT_THAT(BodyError("{}"), StartsWith("messages: "));
  EXPECT_THAT(BodyError(R"({"messages": "hi"})"), StartsWith("messages: "));
  EXPECT_THAT(BodyError(R"({"messages": ["hi"]})"), StartsWith("messages[0]: "));
  EXPECT_THAT(BodyError(R"({"messages": [{"content": "a"}]})"), StartsWith("messages[0].role: "));
  EXPECT_THAT(BodyError(R"({"messages": [{"role": 5}]})"), StartsWith("messages[0].role: "));
  EXPECT_THAT(BodyError(R"({"messages": [{"role": "user", "content": 5}]})"), StartsWith("messages[0].content: "));
  EXPECT_THAT(BodyError(R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]})"),
              StartsWith("messages[0].tool_calls[0].function.name: "));
  EXPECT_THAT(BodyError(R"({"messages": [{"role": "user", "content": [{"text": "a"}, {"text": 5}]}]})"),
              StartsWith("messages[0].content[1].text: "));
  EXPECT_THAT(BodyError(R"({"messages": [], "tools": {}})"), StartsWith("tools: "));
  EXPECT_THAT(BodyError(R"({"messages": [], "tools": [{"function": {"name": "f", "parameters": 5}}]})"),
              StartsWith("tools[0].function.parameters: "));
  EXPECT_THAT(BodyError(R"({"messages": [], "chat_template_kwargs": 1})"), StartsWith("chat_template_kwargs: "));
}

TEST(ChatFieldsTest, FunctionsAreTheOlderFormOfTools) {
  const auto chat = ReadBody(R"({"functions": [{"name": "f", "z": 1, "a": 2}, {"name": "g"}], "messages": [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "function", "name": "f", "content": "3"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->tools, R"([{"type": "function", "function": {"name": "f", "z": 1, "a": 2}}, )"
                         R"({"type": "function", "function": {"name": "g"}}])");
  ASSERT_EQ(chat->messages[1].tool_calls.size(), 1u);
  EXPECT_EQ(chat->messages[1].tool_calls[0].name, "f");
  EXPECT_EQ(chat->messages[2].role, "tool");
  EXPECT_EQ(ReadBody(R"({"messages": [], "functions": [{"name": "f"}], "function_call": "none"})")->tools, "");
  for (const auto& [wrong, field] : {std::pair(R"("functions": {})", "functions: "),
                                     {R"("functions": [1])", "functions[0]: "},
                                     {R"("functions": [], "tools": [])", "functions: "},
                                     {R"("functions": [], "tool_choice": "auto")", "functions: "}}) {
    EXPECT_THAT(BodyError(std::string(R"({"messages": [], )") + wrong + "}"), StartsWith(field));
  }
  for (const auto& [wrong, field] :
       {std::pair(R"("required")", "function_call: "), {"{}", "function_call.name: "}, {"5", "function_call: "}}) {
    EXPECT_THAT(BodyError(std::string(R"({"messages": [], "functions": [], "function_call": )") + wrong + "}"),
                StartsWith(field))
        << wrong;
  }
}

TEST(ChatFieldsTest, CallsWithoutIdsGetThoseThatKimiWrites) {
  const auto chat = ReadBody(R"({"messages": [
    {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "function", "name": "f", "content": "1"},
    {"role": "assistant", "tool_calls": [{"id": "mine", "function": {"name": "g"}}]},
    {"role": "tool", "tool_call_id": "mine", "content": "2"},
    {"role": "assistant", "function_call": {"name": "f"}},
    {"role": "function", "name": "f", "content": "3"},
    {"role": "function", "name": "g", "content": "4"},
    {"role": "function", "name": "h", "content": "5"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto& messages = chat->messages;
  EXPECT_EQ(messages[0].tool_calls[0].id, "functions.f:0");
  EXPECT_EQ(messages[1].tool_call_id, "functions.f:0");
  EXPECT_EQ(messages[2].tool_calls[0].id, "mine");
  EXPECT_EQ(messages[3].tool_call_id, "mine");
  EXPECT_EQ(messages[4].tool_calls[0].id, "functions.f:2");
  EXPECT_EQ(messages[5].tool_call_id, "functions.f:2");
  EXPECT_EQ(messages[6].tool_call_id, "mine");
  EXPECT_EQ(messages[7].tool_call_id, "");  // nobody called it
}

TEST(ChatFieldsTest, ResultsOfParallelCallsGoToThemInOrder) {
  const auto chat = ReadBody(R"({"messages": [
    {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "g"}}, {"function": {"name": "f"}}]},
    {"role": "tool", "name": "f", "content": "1"},
    {"role": "tool", "name": "f", "content": "2"},
    {"role": "tool", "content": "3"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->messages[1].tool_call_id, "functions.f:0");
  EXPECT_EQ(chat->messages[2].tool_call_id, "functions.f:2");
  EXPECT_EQ(chat->messages[3].tool_call_id, "functions.g:1");
}

TEST(ChatFieldsTest, ARefusalIsWhatTheAssistantSaid) {
  const auto chat = ReadBody(R"({"messages": [{"role": "assistant", "content": null, "refusal": "I will not."},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "Nor that."}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->messages[0].content, "I will not.");
  EXPECT_EQ(chat->messages[1].content, "Nor that.");
}

TEST(ChatFieldsTest, ChoosesAFunction) {
  const nlohmann::json body = {{"functions", nlohmann::json::array()}, {"function_call", {{"name", "f"}}}};
  absl::Status status;
  text::JsonFields fields(body, "", &status);
  const ToolChoice choice = ReadChatToolChoice(fields);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(choice.forced && choice.as_function_call && !choice.several);
  EXPECT_EQ(choice.names, std::vector<std::string>{"f"});
}

TEST(ChatFieldsTest, SpokenMessagesAreRefusedByName) {
  EXPECT_THAT(BodyError(R"({"messages": [{"role": "assistant", "audio": {"id": "a"}}]})"),
              StartsWith("messages[0].audio: "));
}

TEST(ChatFieldsTest, ImagesAreRefusedByName) {
  const auto chat =
      ReadBody(R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})");
  EXPECT_TRUE(absl::IsUnimplemented(chat.status()));
  EXPECT_THAT(std::string(chat.status().message()), HasSubstr("image_url"));
}

}  // namespace
}  // namespace moestro::router
