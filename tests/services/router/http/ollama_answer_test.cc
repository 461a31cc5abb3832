#include "services/router/http/ollama_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "tests/services/router/http/answer_fixture.h"

namespace moestro::router {
namespace {

class OllamaAnswerTest : public AnswerFixture {
 protected:
  // The lines of a stream, or the document.
  std::vector<OrderedJson> Answered(OllamaForm form, bool stream, const std::vector<std::string>& pieces = kPieces) {
    const OllamaRequest request{.chat = request_, .stream = stream};
    Run(*NewOllamaAnswer(form, request, model_, "1", response_), pieces);
    std::string all;
    for (const std::string& piece : response_.Take().pieces) all += piece;
    std::vector<OrderedJson> lines;
    for (const auto& line : absl::StrSplit(all, '\n', absl::SkipEmpty()))
      lines.push_back(OrderedJson::parse(std::string(line)));
    return lines;
  }
};

TEST_F(OllamaAnswerTest, ADocumentHasThinkingContentAndCalls) {
  const auto lines = Answered(OllamaForm::kChat, /*stream=*/false);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["message"].dump(), R"({"role":"assistant","content":"Yes.","thinking":"hm","tool_calls":[{"id":)" +
                                            lines[0]["message"]["tool_calls"][0]["id"].dump() +
                                            R"(,"function":{"index":0,"name":"f","arguments":{"x":1}}}]})");
  EXPECT_EQ(lines[0]["model"], "tiny");
  EXPECT_EQ(lines[0]["done"], true);
  EXPECT_EQ(lines[0]["done_reason"], "stop");
  EXPECT_EQ(lines[0]["prompt_eval_count"], 7);
}

TEST_F(OllamaAnswerTest, LinesJoinToTheSameAndACallComesWhole) {
  const auto lines = Answered(OllamaForm::kChat, /*stream=*/true);
  std::string content, thinking;
  int calls = 0;
  for (const OrderedJson& line : lines) {
    content += line["message"]["content"];
    thinking += line["message"].value("thinking", "");
    if (!line["message"].contains("tool_calls")) continue;
    ++calls;
    EXPECT_EQ(line["message"]["tool_calls"][0]["function"]["arguments"].dump(), R"({"x":1})");
    EXPECT_EQ(line["done"], false);
  }
  EXPECT_EQ(content, "Yes.");
  EXPECT_EQ(thinking, "hm");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(lines.back()["done"], true);
  EXPECT_EQ(lines.back()["message"]["content"], "");
}

TEST_F(OllamaAnswerTest, ATextHasItsWordsBesideTheModel) {
  const auto lines = Answered(OllamaForm::kGenerate, /*stream=*/false, {"<think>", "hm", "</think>", "Yes."});
  EXPECT_EQ(lines.at(0)["response"], "Yes.");
  EXPECT_EQ(lines[0]["thinking"], "hm");
  EXPECT_FALSE(lines[0].contains("message"));
}

TEST_F(OllamaAnswerTest, ACallThatTheEndCutIsNotLost) {
  const auto lines =
      Answered(OllamaForm::kChat, /*stream=*/false, {"<tool_call>", R"({"name": "f", "arguments": {"x": )"});
  EXPECT_EQ(lines.at(0)["message"]["tool_calls"][0]["function"]["arguments"].dump(), R"({"partial_json":"{\"x\":"})");
}

TEST_F(OllamaAnswerTest, NumbersOfACallKeepTheirDigits) {
  const std::vector<std::string> pieces = {"<tool_call>",
                                           "{\"name\": \"f\", \"arguments\": {\"x\":\n18446744073709551616}}"};
  for (const bool stream : {false, true}) {
    const OllamaRequest request{.chat = request_, .stream = stream};
    Response response(
        clients_, [] {}, [] {});
    Run(*NewOllamaAnswer(OllamaForm::kChat, request, model_, "1", response), pieces);
    std::string all;
    for (const std::string& piece : response.Take().pieces) all += piece;
    EXPECT_THAT(all, ::testing::HasSubstr(R"("arguments":{"x":18446744073709551616})"));
  }
}

}  // namespace
}  // namespace moestro::router
