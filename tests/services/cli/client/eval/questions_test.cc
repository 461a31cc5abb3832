#include "services/cli/client/eval/questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;

TEST(QuestionsTest, ReadsPromptsAndChats) {
  const auto questions = ParseQuestions(
      "{\"task\": \"add\", \"prompt\": \">>> 1 + 1\\n\", \"answer\": \"2\"}\n"
      "\n"
      "{\"task\": \"chat\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"answer\": \"Hello\"}");
  ASSERT_TRUE(questions.ok()) << questions.status();
  ASSERT_EQ(questions->size(), 2u);
  EXPECT_EQ((*questions)[0].task, "add");
  EXPECT_EQ((*questions)[0].request.prompt(), ">>> 1 + 1\n");
  EXPECT_EQ((*questions)[0].answer, "2");
  ASSERT_EQ((*questions)[1].request.chat().messages_size(), 1);
  EXPECT_EQ((*questions)[1].request.chat().messages(0).role(), "user");
  EXPECT_EQ((*questions)[1].request.chat().messages(0).content(), "Hi");
}

TEST(QuestionsTest, ErrorsNameLineAndField) {
  const auto message = [](const std::string& text) { return std::string(ParseQuestions(text).status().message()); };
  const std::string good = "{\"task\": \"a\", \"prompt\": \"p\", \"answer\": \"x\"}\n";
  EXPECT_THAT(message(good + "nonsense"), HasSubstr("line 2: is not a JSON object"));
  EXPECT_THAT(message("[1]"), HasSubstr("line 1: is not a JSON object"));
  EXPECT_THAT(message("{\"prompt\": \"p\", \"answer\": \"x\"}"), HasSubstr("'task'"));
  EXPECT_THAT(message("{\"task\": \"a\", \"prompt\": \"p\", \"answer\": 2}"), HasSubstr("'answer'"));
  EXPECT_THAT(message("{\"task\": \"a\", \"answer\": \"x\"}"), HasSubstr("'prompt'"));
  EXPECT_THAT(message("{\"task\": \"a\", \"answer\": \"x\", \"messages\": []}"), HasSubstr("'messages'"));
  EXPECT_THAT(message("{\"task\": \"a\", \"answer\": \"x\", \"messages\": [1]}"), HasSubstr("'messages'"));
  EXPECT_THAT(message("{\"task\": \"a\", \"answer\": \"x\", \"messages\": [{\"role\": \"user\"}]}"),
              HasSubstr("'content'"));
  EXPECT_THAT(message("\n \n"), HasSubstr("no questions"));
}

}  // namespace
}  // namespace moestro::cli
