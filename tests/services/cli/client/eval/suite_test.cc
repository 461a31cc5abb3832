#include "services/cli/client/eval/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;

const ChoiceQuestion kQuestion = {
    .subject = "math", .question = "1 + 1?", .options = {"2", "3"}, .answer = 'A', .reasoning = ""};

std::vector<ChoiceQuestion> Examples(int count) {
  std::vector<ChoiceQuestion> examples;
  for (int i = 0; i < count; ++i) {
    examples.push_back({.subject = "math",
                        .question = std::to_string(i) + "?",
                        .options = {"x", "y"},
                        .answer = 'B',
                        .reasoning = "A: Let's think step by step. The answer is (B)."});
  }
  return examples;
}

TEST(Suite, MmluProShowsFiveExamplesOfTheSubject) {
  const auto asked = SuiteQuestions(Suite::kMmluPro, {kQuestion}, Examples(7), /*chat=*/false);
  ASSERT_TRUE(asked.ok()) << asked.status();
  ASSERT_EQ(asked->size(), 1u);
  EXPECT_EQ((*asked)[0].task, "math");
  EXPECT_EQ((*asked)[0].answer, "A");
  std::string expected =
      "The following are multiple choice questions (with answers) about math. Think step by step and then finish your "
      "answer with \"the answer is (X)\" where X is the correct letter choice.\n\n\n";
  for (int i = 0; i < 5; ++i) {
    expected += "Question:\n" + std::to_string(i) +
                "?\nOptions:\nA. x\nB. y\nAnswer: Let's think step by step. The answer is (B).\n\n";
  }
  expected += "Question:\n1 + 1?\nOptions:\nA. 2\nB. 3\nAnswer: Let's think step by step.";
  EXPECT_EQ((*asked)[0].request.prompt(), expected);
  ASSERT_EQ((*asked)[0].request.stop_size(), 1);
  EXPECT_EQ((*asked)[0].request.stop(0), "Question:");

  EXPECT_THAT(std::string(SuiteQuestions(Suite::kMmluPro, {kQuestion}, Examples(4), true).status().message()),
              HasSubstr("subject 'math' has 4 examples"));
}

TEST(Suite, MmluReduxAsksForJson) {
  const auto asked = SuiteQuestions(Suite::kMmluRedux, {kQuestion}, {}, /*chat=*/true);
  ASSERT_TRUE(asked.ok()) << asked.status();
  ASSERT_EQ((*asked)[0].request.chat().messages_size(), 1);
  EXPECT_EQ((*asked)[0].request.chat().messages(0).role(), "user");
  EXPECT_EQ((*asked)[0].request.chat().messages(0).content(),
            "\n## Question: \n\n1 + 1?\n\n## Choices:\n\n- (A) 2\n- (B) 3\n\n\n## Instruction \n\n"
            "Please answer this question by first reasoning and then selecting the correct choice. \n"
            "Present your reasoning and solution in the following json format. \n"
            "Please show your choice in the `answer` field with only the choice letter, e.g.,`\"answer\": \"C\"`.\n\n"
            "```json\n{\n    \"reasoning\": \"___\",\n    \"answer\": \"___\"\n}\n```\n");
  EXPECT_EQ((*asked)[0].request.stop_size(), 0);
}

// What its three regular expressions find.
TEST(Suite, MmluProAnswersChooseALetter) {
  const auto chosen = [](std::string_view answer) { return ChosenLetter(Suite::kMmluPro, answer).value_or('-'); };
  EXPECT_EQ(chosen("Let me see. The answer is (C)."), 'C');
  EXPECT_EQ(chosen("so the answer is D"), 'D');
  EXPECT_EQ(chosen("the answer is (B). No, the answer is (E)."), 'B') << "the first";
  EXPECT_EQ(chosen("The answer is **(F)**"), 'F');
  EXPECT_EQ(chosen("the answer is unclear, but the answer is G"), 'G');
  EXPECT_EQ(chosen("A or B?\nAnswer: H"), 'H');
  EXPECT_EQ(chosen("answer: A, no, answer: C\nanswer: D"), 'C') << "the last of the first line";
  EXPECT_EQ(chosen("Final Answer:\n I"), 'I');
  EXPECT_EQ(chosen("It must be B, not A; yes, B"), 'B') << "the last that stands alone";
  EXPECT_EQ(chosen("(J)"), 'J');
  EXPECT_EQ(chosen("Because BAD is DAB_"), '-');
  EXPECT_EQ(chosen("K"), '-');
  EXPECT_EQ(chosen(""), '-');
}

TEST(Suite, MmluReduxAnswersChooseTheirLastAnswer) {
  const auto chosen = [](std::string_view answer) { return ChosenLetter(Suite::kMmluRedux, answer).value_or('-'); };
  EXPECT_EQ(chosen(R"({"reasoning": "because", "answer": "C"})"), 'C');
  EXPECT_EQ(chosen("```json\n{\n  \"answer\" : \"(B)\"\n}\n```"), 'B');
  EXPECT_EQ(chosen(R"(As asked, "answer": "___". {"answer": "D"})"), 'D');
  EXPECT_EQ(chosen(R"({"answer": C})"), '-');
  EXPECT_EQ(chosen("The answer is (C)."), '-');
  EXPECT_EQ(chosen("{\"answer\""), '-');
}

}  // namespace
}  // namespace moestro::cli
