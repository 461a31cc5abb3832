#include "services/cli/client/eval/suite_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SuiteFile, ReadsJsonLinesInTheSpellingsOfTheSuites) {
  const auto questions = ParseSuite(
      R"({"question": "q", "options": ["a", "b", "c"], "answer": "C", "answer_index": 2, "category": "law", "cot_content": "A: x"})"
      "\n\n"
      R"({"question": "r", "choices": ["a", "b"], "answer": 1, "subject": "art"})",
      SuiteFormat::kJsonLines);
  ASSERT_TRUE(questions.ok()) << questions.status();
  ASSERT_EQ(questions->size(), 2u);
  EXPECT_EQ((*questions)[0].subject, "law");
  EXPECT_THAT((*questions)[0].options, ElementsAre("a", "b", "c"));
  EXPECT_EQ((*questions)[0].answer, 'C');
  EXPECT_EQ((*questions)[0].reasoning, "A: x");
  EXPECT_EQ((*questions)[1].subject, "art");
  EXPECT_EQ((*questions)[1].answer, 'B');
}

TEST(SuiteFile, ReadsCsvWithQuotesAndLineEnds) {
  const auto questions = ParseSuite(
      "question,A,B,C,answer,subject\r\n"
      "\"What, then?\nSay \"\"it\"\".\",one,\"two, too\",,B,logic\r\n"
      "\n"
      "next,x,y,z,2,logic",
      SuiteFormat::kCsv);
  ASSERT_TRUE(questions.ok()) << questions.status();
  ASSERT_EQ(questions->size(), 2u);
  EXPECT_EQ((*questions)[0].question, "What, then?\nSay \"it\".");
  EXPECT_THAT((*questions)[0].options, ElementsAre("one", "two, too"));
  EXPECT_EQ((*questions)[0].answer, 'B');
  EXPECT_EQ((*questions)[1].answer, 'C');
}

TEST(SuiteFile, ErrorsNameLineAndField) {
  const auto lines = [](const std::string& text) {
    return std::string(ParseSuite(text, SuiteFormat::kJsonLines).status().message());
  };
  const std::string good = R"({"question": "q", "options": ["a", "b"], "answer": "A", "subject": "s"})";
  EXPECT_THAT(lines(good + "\n[1]"), HasSubstr("line 2: is not a JSON object"));
  EXPECT_THAT(lines(R"({"options": ["a", "b"], "answer": "A", "subject": "s"})"), HasSubstr("'question'"));
  EXPECT_THAT(lines(R"({"question": "q", "options": ["a", "b"], "answer": "A"})"), HasSubstr("'subject'"));
  EXPECT_THAT(lines(R"({"question": "q", "options": ["a"], "answer": "A", "subject": "s"})"), HasSubstr("'options'"));
  EXPECT_THAT(lines(R"({"question": "q", "options": "ab", "answer": "A", "subject": "s"})"), HasSubstr("'options'"));
  for (const char* answer : {"\"C\"", "2", "-1", "\"\"", "\"AB\"", "null", "1.5"}) {
    EXPECT_THAT(
        lines(R"({"question": "q", "options": ["a", "b"], "subject": "s", "answer": )" + std::string(answer) + "}"),
        HasSubstr("'answer'"))
        << answer;
  }
  EXPECT_THAT(lines("\n"), HasSubstr("no questions"));

  const auto csv = [](const std::string& text) {
    return std::string(ParseSuite(text, SuiteFormat::kCsv).status().message());
  };
  const std::string head = "question,A,B,answer,subject\n";
  EXPECT_THAT(csv("question,A,B,answer\nq,a,b,A"), HasSubstr("line 1 names no column 'subject'"));
  EXPECT_THAT(csv("a,b\n1,2"), HasSubstr("line 1 names no column"));
  EXPECT_THAT(csv(head + "q,a,b,A,s\nq,a,b,A"), HasSubstr("line 3 has 4 fields"));
  EXPECT_THAT(csv(head + "q,a,b,C,s"), HasSubstr("line 2: field 'answer'"));
  EXPECT_THAT(csv(head + "q,a,,A,s"), HasSubstr("line 2: field 'options'"));
  EXPECT_THAT(csv(head + "\"q,a,b,A,s"), HasSubstr("line 2: a quote does not end"));
  EXPECT_THAT(csv(head), HasSubstr("no questions"));
}

}  // namespace
}  // namespace moestro::cli
