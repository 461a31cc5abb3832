#include "services/router/http/chat_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "tests/services/router/http/answer_fixture.h"

namespace moestro::router {
namespace {

using ::testing::ElementsAre;

class ChatAnswerTest : public AnswerFixture {
 protected:
  std::vector<OrderedJson> Frames() {
    std::string all;
    for (const std::string& piece : response_.Take().pieces) all += piece;
    EXPECT_TRUE(all.ends_with(kSseDone));
    std::vector<OrderedJson> frames;
    for (const auto& frame : absl::StrSplit(all, "\n\n", absl::SkipEmpty())) {
      const std::string text(frame);
      if (text != "data: [DONE]") frames.push_back(OrderedJson::parse(text.substr(6)));
    }
    return frames;
  }
};

TEST_F(ChatAnswerTest, ADocumentHasReasoningContentAndCalls) {
  Run(*NewChatDocument(request_, model_, "1", response_), kPieces);
  const OrderedJson document = OrderedJson::parse(response_.Take().pieces.at(0));
  EXPECT_EQ(document["id"], "1");
  EXPECT_EQ(document["choices"][0]["finish_reason"], "tool_calls");
  const OrderedJson& message = document["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_EQ(message["content"], "Yes.");
  ASSERT_EQ(message["tool_calls"].size(), 1u);
  EXPECT_EQ(message["tool_calls"][0]["type"], "function");
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"x": 1})");
  EXPECT_EQ(document["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(document["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(document["usage"]["completion_tokens"], 8);
  EXPECT_EQ(document["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
}

TEST_F(ChatAnswerTest, ReasoningThatNobodyWantsIsCountedOnly) {
  request_.shows_reasoning = false;
  Run(*NewChatDocument(request_, model_, "1", response_), kPieces);
  const OrderedJson document = OrderedJson::parse(response_.Take().pieces.at(0));
  EXPECT_FALSE(document["choices"][0]["message"].contains("reasoning_content"));
  EXPECT_EQ(document["choices"][0]["message"]["content"], "Yes.");
  EXPECT_EQ(document["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
}

TEST_F(ChatAnswerTest, FramesJoinToTheSame) {
  request_.stream = {.stream = true, .include_usage = true};
  Run(*NewChatStream(request_, model_, "1", std::chrono::seconds(10), response_), kPieces);
  const std::vector<OrderedJson> frames = Frames();
  EXPECT_EQ(frames.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(frames.back()["choices"].empty());
  EXPECT_EQ(frames.back()["usage"]["completion_tokens"], 8);
  std::string content, reasoning, name, arguments;
  std::vector<std::string> reasons;
  for (const OrderedJson& frame : frames) {
    if (frame["choices"].empty()) continue;
    const OrderedJson& choice = frame["choices"][0];
    const OrderedJson& delta = choice["delta"];
    content += delta.value("content", "");
    reasoning += delta.value("reasoning_content", "");
    for (const OrderedJson& call : delta.value("tool_calls", OrderedJson::array())) {
      EXPECT_EQ(call["index"], 0);
      name += call["function"].value("name", "");
      arguments += call["function"].value("arguments", "");
    }
    if (!choice["finish_reason"].is_null()) reasons.push_back(choice["finish_reason"]);
  }
  EXPECT_EQ(content, "Yes.");
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(name, "f");
  EXPECT_EQ(arguments, R"({"x": 1})");
  EXPECT_THAT(reasons, ElementsAre("tool_calls"));
}

TEST_F(ChatAnswerTest, TheTimingsTellOfRoundedInputs) {
  for (const bool rounds : {false, true}) {
    const OrderedJson timings = Timings({.path = PrefillPath::kSplit, .fp8_activations = rounds});
    EXPECT_EQ(timings["path"], "split");
    EXPECT_EQ(timings["prefill_activations"], rounds ? "fp8" : "bf16");
  }
}

TEST_F(ChatAnswerTest, ACallInTheFormBeforeTools) {
  request_.as_function_call = true;
  Run(*NewChatDocument(request_, model_, "1", response_), kPieces);
  const OrderedJson document = OrderedJson::parse(response_.Take().pieces.at(0));
  const OrderedJson& choice = document["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "function_call");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  EXPECT_EQ(choice["message"]["function_call"], OrderedJson({{"name", "f"}, {"arguments", R"({"x": 1})"}}));
}

TEST_F(ChatAnswerTest, ACallInTheFormBeforeToolsStreams) {
  request_.as_function_call = true;
  request_.stream = {.stream = true};
  Run(*NewChatStream(request_, model_, "1", std::chrono::seconds(10), response_), kPieces);
  std::string name, arguments, reason;
  for (const OrderedJson& frame : Frames()) {
    const OrderedJson& choice = frame["choices"][0];
    EXPECT_FALSE(choice["delta"].contains("tool_calls"));
    const OrderedJson call = choice["delta"].value("function_call", OrderedJson::object());
    name += call.value("name", "");
    arguments += call.value("arguments", "");
    if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"];
  }
  EXPECT_EQ(name, "f");
  EXPECT_EQ(arguments, R"({"x": 1})");
  EXPECT_EQ(reason, "function_call");
}

TEST_F(ChatAnswerTest, AStreamBeginsWhileTheRequestWaits) {
  request_.stream.stream = true;
  const auto answer = NewChatStream(request_, model_, "1", std::chrono::seconds(10), response_);
  EXPECT_FALSE(response_.begun());
  EXPECT_TRUE(answer->Waiting().ok());
  EXPECT_TRUE(response_.begun());
  EXPECT_EQ(response_.Take().pieces.size(), 1u);
  EXPECT_TRUE(answer->Waiting().ok());
  EXPECT_TRUE(answer->Started(0, 1, {}).ok());
  EXPECT_TRUE(response_.Take().pieces.empty());
}

TEST_F(ChatAnswerTest, ProgressIsToldOnRequest) {
  request_.stream = {.stream = true, .progress = true};
  const auto answer = NewChatStream(request_, model_, "1", std::chrono::seconds(10), response_);
  EXPECT_TRUE(answer->Started(0, 1, {}).ok());
  response_.Take();
  EXPECT_TRUE(answer->Prefill(0, {.done_tokens = 5, .total_tokens = 9}).ok());
  const std::string frame = response_.Take().pieces.at(0);
  EXPECT_THAT(frame, ::testing::HasSubstr(R"("prompt_progress":{"total":9,"processed":5})"));
}

}  // namespace
}  // namespace moestro::router
