#include "common/text/message_form.h"

#include <string>
#include <vector>

#include "common/text/chat_template.h"
#include "common/text/concat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/text/golden.h"

namespace moestro::text {
namespace {

using ::testing::ElementsAre;

using Systems = MessageForm::Systems;

std::vector<std::string> Lines(const std::vector<ArrangedMessage>& messages) {
  std::vector<std::string> lines;
  for (const auto& [index, message] : messages) {
    lines.push_back(Concat(index, " ", message.role, ": ", message.content));
  }
  return lines;
}

TEST(ArrangedMessagesTest, TheDefaultFormChangesNothing) {
  EXPECT_THAT(Lines(ArrangedMessages({{"system", "a"}, {"system", "b"}, {"user", "c"}, {"system", "d"}}, {})),
              ElementsAre("0 system: a", "1 system: b", "2 user: c", "3 system: d"));
}

TEST(ArrangedMessagesTest, SystemMessagesThatATemplateDropsAreTheUsers) {
  const std::vector<ChatMessage> messages = {{"system", "a"},    {"system", "b"}, {"user", "c"},
                                             {"assistant", "d"}, {"system", "e"}, {"user", "f"}};
  EXPECT_THAT(Lines(ArrangedMessages(messages, {.systems = Systems::kLeading})),
              ElementsAre("0 system: a", "1 system: b", "2 user: c", "3 assistant: d", "4 user: e", "5 user: f"));
  EXPECT_THAT(Lines(ArrangedMessages(messages, {.systems = Systems::kNone, .roles_alone = {"user"}})),
              ElementsAre("0 user: a\n\nb\n\nc", "3 assistant: d", "4 user: e\n\nf"));
}

TEST(ArrangedMessagesTest, NeighboursAreJoinedUnlessTheyHaveOtherFields) {
  MessageForm form{.roles_alone = {"user", "assistant"}, .shows_names = true};
  EXPECT_THAT(
      Lines(ArrangedMessages({{"user", "a"}, {"user", ""}, {"user", "b"}, {"system", "c"}, {"system", "d"}}, form)),
      ElementsAre("0 user: a\n\nb", "3 system: c", "4 system: d"));
  const ChatMessage named{.role = "user", .content = "b", .name = "n"};
  EXPECT_THAT(Lines(ArrangedMessages({{"user", "a"}, named, {"user", "c"}, {"user", "d"}}, form)),
              ElementsAre("0 user: a", "1 user: b", "2 user: c\n\nd"));
  form.shows_names = false;
  EXPECT_THAT(Lines(ArrangedMessages({{"user", "a"}, named, {"user", "c"}}, form)), ElementsAre("0 user: a\n\nb\n\nc"))
      << "nobody would see the name";
  const ChatMessage call{.role = "assistant", .content = "b", .tool_calls = {{.name = "f"}}};
  const ChatMessage thought{.role = "assistant", .content = "c", .reasoning_content = "r"};
  EXPECT_EQ(ArrangedMessages({{"assistant", "a"}, call, thought}, form).size(), 3);
}

struct Published {
  const char* name;
  Systems systems;
  std::vector<std::string> roles_alone;
};

// What a client says reaches the model, wherever it stands.
TEST(FindMessageFormTest, PublishedTemplatesShowEveryMessage) {
  const std::vector<Published> templates = {{"deepseek_v2.jinja", Systems::kAll, {}},
                                            {"deepseek_v3.jinja", Systems::kAll, {}},
                                            {"qwen3_tools.jinja", Systems::kAll, {}},
                                            {"glm4_tools.jinja", Systems::kAll, {}},
                                            {"kimi_k2_tools.jinja", Systems::kAll, {}},
                                            {"llama3_tools.jinja", Systems::kAll, {}},
                                            {"dbrx.jinja", Systems::kAll, {}},
                                            {"gpt_oss.jinja", Systems::kLeading, {"system"}},
                                            {"minimax_m2.jinja", Systems::kLeading, {"system"}},
                                            {"mistral_tools.jinja", Systems::kLeading, {"system"}},
                                            {"mixtral.jinja", Systems::kNone, {"user", "assistant"}}};
  const std::vector<std::vector<ChatMessage>> chats = {{{"system", "word0"}, {"system", "word1"}, {"user", "word2"}},
                                                       {{"system", "word0"}, {"user", "word1"}, {"system", "word2"}},
                                                       {{"system", "word0"},
                                                        {"system", "word1"},
                                                        {"user", "word2"},
                                                        {"assistant", "word3"},
                                                        {"system", "word4"},
                                                        {"user", "word5"}},
                                                       {{"user", "word0"},
                                                        {"user", "word1"},
                                                        {"assistant", "word2"},
                                                        {"assistant", "word3"},
                                                        {"user", "word4"},
                                                        {"system", "word5"}}};
  for (const Published& published : templates) {
    const auto chat_template = ChatTemplate::Parse(ReadGolden(std::string("templates/") + published.name));
    ASSERT_TRUE(chat_template.ok()) << published.name << chat_template.status();
    ChatTemplate::Options options{.bos_token = "<s>", .eos_token = "</s>"};
    options.form = (*chat_template)->FindMessageForm(options);
    EXPECT_EQ(options.form.systems, published.systems) << published.name;
    EXPECT_EQ(options.form.roles_alone, published.roles_alone) << published.name;
    for (const std::vector<ChatMessage>& chat : chats) {
      const absl::StatusOr<std::string> text = (*chat_template)->Render({.messages = chat}, options);
      ASSERT_TRUE(text.ok()) << published.name << text.status();
      for (const ChatMessage& message : chat) {
        EXPECT_NE(text->find(message.content), std::string::npos) << published.name << ": " << message.content << *text;
      }
    }
  }
}

// As the demo model's template, which knows questions only.
TEST(FindMessageFormTest, ATemplateThatReadsNoSystemMessageIsLeftAlone) {
  const auto chat_template =
      ChatTemplate::Parse("{% for m in messages %}{% if m.role != 'system' %}{{ m.content }};{% endif %}{% endfor %}");
  ChatTemplate::Options options;
  options.form = (*chat_template)->FindMessageForm(options);
  EXPECT_EQ((*chat_template)->Render({.messages = {{"system", "S"}, {"user", "u"}, {"system", "T"}}}, options).value(),
            "u;");
}

// Agents name who speaks, and published templates with turns do not show it.
TEST(FindMessageFormTest, NamesAreNoObstacleWhereTheyAreNotShown) {
  const auto rendered = [](const char* source) {
    const auto chat_template = ChatTemplate::Parse(source);
    ChatTemplate::Options options;
    options.form = (*chat_template)->FindMessageForm(options);
    const std::vector<ChatMessage> chat = {{.role = "user", .content = "a", .name = "bob"},
                                           {.role = "user", .content = "b", .name = "al"}};
    return (*chat_template)->Render({.messages = chat}, options);
  };
  const std::string turns =
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}"
      "{% endif %}";
  EXPECT_EQ(rendered((turns + "{{ m.role }}: {{ m.content }};{% endfor %}").c_str()).value(), "user: a\n\nb;");
  EXPECT_FALSE(rendered((turns + "{{ m.name }}: {{ m.content }};{% endfor %}").c_str()).ok());
}

// As templates of Gemma, and of Qwen's newest models.
TEST(FindMessageFormTest, TemplatesThatRefuseMessagesGetThemInAnotherRole) {
  const struct {
    const char* source;
    const char* text;
  } cases[] = {
      {"{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
       "{{ m.role }}:{{ m.content }};{% endfor %}",
       "user:S;user:T;user:u;assistant:a;user:V;user:w;"},
      {"{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must "
       "be "
       "at the beginning.') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}",
       "system:S\n\nT;user:u;assistant:a;user:V;user:w;"},
  };
  for (const auto& test : cases) {
    const auto chat_template = ChatTemplate::Parse(test.source);
    ASSERT_TRUE(chat_template.ok()) << chat_template.status();
    ChatTemplate::Options options;
    options.form = (*chat_template)->FindMessageForm(options);
    const std::vector<ChatMessage> chat = {{"system", "S"},    {"system", "T"}, {"user", "u"},
                                           {"assistant", "a"}, {"system", "V"}, {"user", "w"}};
    EXPECT_EQ((*chat_template)->Render({.messages = chat}, options).value(), test.text);
  }
}

// An error speaks of the client's message.
TEST(ArrangedMessagesTest, ErrorsCountTheClientsMessages) {
  const auto chat_template = ChatTemplate::Parse("{{ messages[0].content }}");
  const std::vector<ChatMessage> chat = {{"user", "a"}, {"user", "b"}, {"assistant", "\xff"}};
  const auto text = (*chat_template)->Render({.messages = chat}, {.form = {.roles_alone = {"user"}}});
  EXPECT_THAT(std::string(text.status().message()), ::testing::HasSubstr("chat.messages[2].content"));
}

}  // namespace
}  // namespace moestro::text
