#include "common/text/chat_template.h"

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/text/golden.h"

namespace moestro::text {
namespace {

using nlohmann::json;

const std::vector<ChatMessage> kMessages = {{"system", "S"}, {"user", "u1"}, {"assistant", "a1"}, {"user", "u2"}};

ChatTemplate::Options SnippetOptions() { return {true, "<s>", "</s>", {{"flag", false}}}; }

absl::StatusOr<std::string> Render(const std::string& source, const std::vector<ChatMessage>& messages,
                                   const ChatTemplate::Options& options) {
  const auto chat_template = ChatTemplate::Parse(source);
  if (!chat_template.ok()) return chat_template.status();
  return (*chat_template)->Render(messages, options);
}

TEST(ChatTemplateTest, RendersConversationsAsTheReference) {
  for (const json& golden : ReadGoldenJson("chat.json")) {
    std::vector<ChatMessage> messages;
    for (const json& message : golden["messages"]) {
      messages.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
    }
    const ChatTemplate::Options options{golden["add_generation_prompt"].get<bool>(), "<｜begin▁of▁sentence｜>",
                                        "<｜end▁of▁sentence｜>", golden["flags"].get<std::map<std::string, bool>>()};
    const auto text = Render(ReadGolden("templates/" + golden["template"].get<std::string>()), messages, options);
    ASSERT_TRUE(text.ok()) << golden["template"] << text.status();
    EXPECT_EQ(*text, golden["expected"].get<std::string>()) << golden["template"] << " " << golden["name"];
  }
}

TEST(ChatTemplateTest, RendersTheLanguageAsTheReference) {
  int rejected = 0;
  for (const json& golden : ReadGoldenJson("snippets.json")) {
    const auto source = golden["template"].get<std::string>();
    const auto text = Render(source, kMessages, SnippetOptions());
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

TEST(ChatTemplateTest, OneTemplateServesManyThreads) {
  const auto chat_template = ChatTemplate::Parse(ReadGolden("templates/qwen3.jinja"));
  ASSERT_TRUE(chat_template.ok());
  const std::string expected = (*chat_template)->Render(kMessages, SnippetOptions()).value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        EXPECT_EQ((*chat_template)->Render(kMessages, SnippetOptions()).value(), expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace moestro::text
