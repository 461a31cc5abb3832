#include "services/cli/client/eval/scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace moestro::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr Scores::Expected kNone;

Scores Three(double sum_of_b) {
  Scores scores;
  scores.Add("b", true, {sum_of_b, 4});
  scores.Add("a", true, {-0.5, 2});
  scores.Add("a", false, {-2.5, 2});
  return scores;
}

TEST(ScoresTest, CountsByTaskAndInAll) {
  Scores scores;
  EXPECT_EQ(scores.ToJson()["share"], 0);
  scores.Add("b", true, kNone);
  scores.Add("a", true, kNone);
  scores.Add("a", false, kNone);
  const json printed = scores.ToJson();
  EXPECT_EQ(printed["right"], 2);
  EXPECT_EQ(printed["of"], 3);
  EXPECT_EQ(printed["tasks"]["a"]["share"], 0.5);
  EXPECT_EQ(printed["tasks"]["b"]["right"], 1);
  EXPECT_FALSE(printed.contains("perplexity"));
  EXPECT_FALSE(printed.contains("difference"));
  EXPECT_EQ(scores.ToText(), "a      50.0 %  1 of 2\nb     100.0 %  1 of 1\nall    66.7 %  2 of 3\n");
}

TEST(ScoresTest, PerplexityIsOfTokensNotOfAnswers) {
  const json printed = Three(-1).ToJson();
  EXPECT_EQ(printed["tokens"], 8);
  EXPECT_EQ(printed["sum_logprob"], -4);
  EXPECT_DOUBLE_EQ(printed["perplexity"], std::exp(0.5));
  EXPECT_DOUBLE_EQ(printed["tasks"]["a"]["perplexity"], std::exp(0.75));
  EXPECT_EQ(Three(-1).ToText(),
            "a      50.0 %  1 of 2, perplexity 2.11700\nb     100.0 %  1 of 1, perplexity 1.28403\n"
            "all    66.7 %  2 of 3, perplexity 1.64872\n");
}

TEST(ScoresTest, DifferenceToARunThatWasPrinted) {
  Scores now = Three(-2);
  now.Add("a", true, {0, 1});
  Scores then = Three(-1);
  then.Add("a", false, {0, 1});
  const absl::StatusOr<Scores> read = Scores::FromJson(now.ToJson(&then));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), now.ToJson()) << "differences are not read";
  ASSERT_TRUE(now.CheckComparable(then).ok());
  const json printed = now.ToJson(&then);
  EXPECT_EQ(printed["difference"]["right"], 1);
  EXPECT_DOUBLE_EQ(printed["difference"]["perplexity"], std::exp(5. / 9) - std::exp(4. / 9));
  EXPECT_EQ(printed["tasks"]["b"]["difference"], (json{{"right", 0}, {"perplexity", std::exp(.5) - std::exp(.25)}}));
  EXPECT_THAT(now.ToText(&then), HasSubstr("b     100.0 %  1 of 1 (+0), perplexity 1.64872 (+0.36470)\n"));
  EXPECT_THAT(then.ToText(&now), HasSubstr("a      33.3 %  1 of 3 (-1), perplexity 1.82212 (+0.00000)\n"));
}

TEST(ScoresTest, RunsOverOtherQuestionsAreNotCompared) {
  const auto difference = [](const Scores& now, const Scores& earlier) {
    return std::string(now.CheckComparable(earlier).message());
  };
  Scores more = Three(-1);
  more.Add("a", true, {-1, 1});
  EXPECT_EQ(difference(Three(-1), more), "has 3 questions of task 'a' and this run 2");
  Scores other = Three(-1);
  other.Add("c", true, kNone);
  EXPECT_EQ(difference(Three(-1), other), "has tasks that this run has not");
  EXPECT_EQ(difference(other, Three(-1)), "has 0 questions of task 'c' and this run 1");
  Scores plain;
  plain.Add("a", true, kNone);
  Scores scored;
  scored.Add("a", true, {-1, 3});
  EXPECT_THAT(difference(plain, scored), HasSubstr("has 3 scored tokens of task 'a' and this run 0"));
  EXPECT_THAT(difference(scored, plain), HasSubstr("--perplexity in both or neither"));
}

TEST(ScoresTest, BadFilesAreNamed) {
  const auto message = [](const char* text) {
    return std::string(Scores::FromJson(json::parse(text, nullptr, false)).status().message());
  };
  for (const char* text : {"", "[]", "{}", R"({"tasks": 1})"}) EXPECT_THAT(message(text), HasSubstr("'tasks'")) << text;
  EXPECT_THAT(message(R"({"tasks": {"a": 1}})"), HasSubstr("task 'a' has no number 'of'"));
  EXPECT_THAT(message(R"({"tasks": {"a": {"right": 1.5, "of": 2}}})"), HasSubstr("task 'a' has no number 'right'"));
  EXPECT_THAT(message(R"({"tasks": {"a": {"right": 1}}})"), HasSubstr("task 'a' has no number 'of'"));
  EXPECT_THAT(message(R"({"tasks": {"a": {"right": 1, "of": 2, "tokens": 3, "sum_logprob": null}}})"),
              HasSubstr("task 'a' has no number 'sum_logprob'"));
}

}  // namespace
}  // namespace moestro::cli
