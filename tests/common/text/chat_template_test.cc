#include "common/text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/text/golden.h"

namespace moestro::text {
namespace {

using nlohmann::json;

const std::vector<ChatMessage> kMessages = {{"system", "S"}, {"user", "u1"}, {"assistant", "a1"}, {"user", "u2"}};

// 2024-07-26 15:04:05 local time, of which templates print the date.
std::time_t GoldenTime() {
  std::tm local{};
  local.tm_year = 124;
  local.tm_mon = 6;
  local.tm_mday = 26;
  local.tm_hour = 15;
  local.tm_min = 4;
  local.tm_sec = 5;
  local.tm_isdst = -1;
  return std::mktime(&local);
}

Chat SnippetChat() { return {.messages = kMessages, .template_flags = R"({"flag": false})"}; }
ChatTemplate::Options SnippetOptions() { return {.bos_token = "<s>", .eos_token = "</s>", .clock = GoldenTime}; }

absl::StatusOr<std::string> Render(const std::string& source, const Chat& chat, const ChatTemplate::Options& options) {
  const auto chat_template = ChatTemplate::Parse(source);
  if (!chat_template.ok()) return chat_template.status();
  return (*chat_template)->Render(chat, options);
}

std::string Field(const json& object, const char* key) { return object.value(key, std::string()); }

Chat ReadChat(const json& golden) {
  Chat chat{.tools = Field(golden, "tools"), .template_flags = Field(golden, "flags")};
  for (const json& message : golden["messages"]) {
    ChatMessage& read = chat.messages.emplace_back();
    read = {.role = Field(message, "role"),
            .content = Field(message, "content"),
            .tool_call_id = Field(message, "tool_call_id"),
            .name = Field(message, "name"),
            .reasoning_content = Field(message, "reasoning_content")};
    for (const json& call : message.value("tool_calls", json::array())) {
      read.tool_calls.push_back(
          {.id = Field(call, "id"), .name = Field(call, "name"), .arguments = Field(call, "arguments")});
    }
  }
  return chat;
}

bool Contains(const json& list, const json& item) { return std::find(list.begin(), list.end(), item) != list.end(); }

TEST(ChatTemplateTest, RendersConversationsAsTheReference) {
  const json golden = ReadGoldenJson("chat.json");
  std::map<std::string, const json*> chats;
  for (const json& chat : golden["chats"]) chats[Field(chat, "name")] = &chat;
  int rendered = 0;
  int refused = 0;
  for (const json& expectation : golden["cases"]) {
    const std::string name = Field(expectation, "template");
    const json& chat = *chats.at(Field(expectation, "chat"));
    const ChatTemplate::Options options{.add_generation_prompt = chat["add_generation_prompt"].get<bool>(),
                                        .bos_token = "<｜begin▁of▁sentence｜>",
                                        .eos_token = "<｜end▁of▁sentence｜>",
                                        .form = {.arguments_as_text = Contains(golden["arguments_as_text"], name),
                                                 .content_is_none = Contains(golden["content_is_none"], name)},
                                        .clock = GoldenTime};
    const auto text = Render(ReadGolden("templates/" + name), ReadChat(chat), options);
    if (expectation.contains("expected")) {
      ++rendered;
      ASSERT_TRUE(text.ok()) << expectation << text.status();
      EXPECT_EQ(*text, Field(expectation, "expected")) << name << " " << Field(expectation, "chat");
    } else {
      ++refused;
      EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << expectation;
    }
  }
  EXPECT_GT(rendered, 200);
  EXPECT_GT(refused, 15);
}

// The templates with tools need their own form; the first form does for all others.
TEST(ChatTemplateTest, FindsTheFormOfToolCalls) {
  const json golden = ReadGoldenJson("chat.json");
  for (const char* name : {"qwen3_tools.jinja", "glm4_tools.jinja", "kimi_k2_tools.jinja", "deepseek_v3_1_tools.jinja",
                           "deepseek_r1_tools.jinja", "minimax_m2.jinja", "gpt_oss.jinja", "mistral_tools.jinja",
                           "llama3_tools.jinja", "mixtral.jinja", "dbrx.jinja"}) {
    const auto chat_template = ChatTemplate::Parse(ReadGolden(std::string("templates/") + name));
    ASSERT_TRUE(chat_template.ok()) << name << chat_template.status();
    const MessageForm form = (*chat_template)->FindMessageForm({.bos_token = "<s>", .eos_token = "</s>"});
    EXPECT_EQ(form.arguments_as_text, Contains(golden["arguments_as_text"], name)) << name;
    EXPECT_EQ(form.content_is_none, Contains(golden["content_is_none"], name)) << name;
    EXPECT_EQ((*chat_template)->takes_tools(),
              name != std::string("mixtral.jinja") && name != std::string("dbrx.jinja"));
  }
}

TEST(ChatTemplateTest, RendersTheLanguageAsTheReference) {
  int rejected = 0;
  for (const json& golden : ReadGoldenJson("snippets.json")) {
    const auto source = golden["template"].get<std::string>();
    const auto text = Render(source, SnippetChat(), SnippetOptions());
    if (golden.contains("expected")) {
      ASSERT_TRUE(text.ok()) << source << "\n" << text.status();
      EXPECT_EQ(*text, golden["expected"].get<std::string>()) << source;
    } else {
      ++rejected;
      EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << source;
      EXPECT_THAT(std::string(text.status().message()), testing::HasSubstr("template line 1: ")) << source;
    }
  }
  EXPECT_GT(rejected, 20);
}

// Python's integers have no end.
TEST(ChatTemplateTest, LongIntegersKeepTheirDigits) {
  const std::string digits = "123456789012345678901234567890";
  const Chat chat{.messages = {{"user", "u"},
                               {.role = "assistant",
                                .content = "",
                                .tool_calls = {{.id = "c", .name = "f", .arguments = "{\"id\": -" + digits + "}"}}}},
                  .tools = R"([{"type": "function", "function": {"name": "f", "maximum": 18446744073709551615}}])",
                  .template_flags = "{\"big\": " + digits + ", \"limit\": 9223372036854775808}"};
  const auto render = [&](const std::string& expression) { return *Render("{{ " + expression + " }}", chat, {}); };
  EXPECT_EQ(render("messages[1].tool_calls[0].function.arguments | tojson"), "{\"id\": -" + digits + "}");
  EXPECT_EQ(render("messages[1].tool_calls[0].function.arguments"), "{'id': -" + digits + "}");
  EXPECT_EQ(render("tools[0].function | tojson"), R"({"name": "f", "maximum": 18446744073709551615})");
  EXPECT_EQ(render("big ~ '|' ~ limit"), digits + "|9223372036854775808");
  EXPECT_EQ(render("big is number and big is integer and big is not string and big is not float"), "True");
  EXPECT_EQ(render("[big == big, big == limit, big != 1, big > limit, limit < 1, 1 < limit, big | int == big]"),
            "[True, False, True, True, False, True, True]");
  EXPECT_EQ(render("'yes' if big else 'no'"), "yes");
  EXPECT_THAT(std::string(Render("{{ big + 1 }}", chat, {}).status().message()), ::testing::HasSubstr("overflow"));
}

struct PartsCase {
  const char* source;
  const char* text;
};

TEST(ChatTemplateTest, ContentsArePartsWhereTheTemplateReadsParts) {
  const std::vector<PartsCase> cases = {
      {"{% for m in messages %}{{ m.role }}:{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% endif %}"
       "{% endfor %};{% endfor %}",
       "system:S;user:u1;assistant:a1;user:u2;"},
      {"{% for m in messages %}{{ m.content[0]['text'] }};{% endfor %}", "S;u1;a1;u2;"},
      // Of some roles only, as templates of models with images have it.
      {"{% for m in messages %}{% if m.role == 'user' %}{{ m.content | map(attribute='text') | join }}{% else %}"
       "{{ m.content + '!' }}{% endif %};{% endfor %}",
       "S!;u1;a1!;u2;"},
      {"{% for m in messages %}{% if m.role == 'system' %}{{ m.content[0].text }}{% else %}{{ m.content }}{% endif %};"
       "{% endfor %}",
       "S;u1;a1;u2;"},
      // Both are read: it is the text.
      {"{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}?{% endif %}"
       "{% endfor %}",
       "Su1a1u2"},
      // Only a part of the text comes out.
      {"{% for m in messages %}{{ m.content[:1] }}{% endfor %}", "Suau"},
      {"{% for m in messages %}{{ m.content[:1] | tojson }}{% endfor %}", R"("S""u""a""u")"},
      // Neither comes out.
      {"{% for m in messages %}{{ m.content is string }}{% endfor %}", "TrueTrueTrueTrue"},
      {"{% if messages[0].role != 'system' %}{{ raise_exception('none') }}{% endif %}{% for m in messages %}"
       "{{ m.content }}{% endfor %}",
       "Su1a1u2"}};
  for (const PartsCase& test : cases) {
    const auto chat_template = ChatTemplate::Parse(test.source);
    ASSERT_TRUE(chat_template.ok()) << chat_template.status();
    ChatTemplate::Options options;
    options.form = (*chat_template)->FindMessageForm(options);
    const absl::StatusOr<std::string> text = (*chat_template)->Render({.messages = kMessages}, options);
    ASSERT_TRUE(text.ok()) << text.status() << test.source;
    EXPECT_EQ(*text, test.text) << test.source;
  }
  const auto tools = ChatTemplate::Parse(
      "{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls[0].function.name ~ "
      "m.tool_calls[0].function.arguments }}"
      "{% elif m.role == 'tool' %}{{ m.content[0].text }}{% else %}{{ m.content }}{% endif %}{% endfor %}");
  EXPECT_EQ((*tools)->FindMessageForm({}).roles_of_parts, std::vector<std::string>{"tool"});
}

TEST(ChatTemplateTest, PromptsThatOpenReasoning) {
  EXPECT_TRUE(PromptOpensReasoning("<｜Assistant｜><think>\n"));
  EXPECT_TRUE(PromptOpensReasoning("<think>"));
  EXPECT_FALSE(PromptOpensReasoning("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(PromptOpensReasoning("What is <think>?<｜Assistant｜>"));
  EXPECT_FALSE(PromptOpensReasoning(""));
}

TEST(ChatTemplateTest, OneTemplateServesManyThreads) {
  const auto chat_template = ChatTemplate::Parse(ReadGolden("templates/qwen3.jinja"));
  ASSERT_TRUE(chat_template.ok());
  const std::string expected = (*chat_template)->Render(SnippetChat(), SnippetOptions()).value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        EXPECT_EQ((*chat_template)->Render(SnippetChat(), SnippetOptions()).value(), expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace moestro::text
