// A model that thinks and calls, for tests of answers.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "services/router/http/chat_answer.h"
#include "tests/services/router/fake_node.h"
#include "tests/services/router/tiny_tokenizer.h"

namespace moestro::router {

class AnswerFixture : public ::testing::Test {
 protected:
  AnswerFixture() {
    auto model = std::make_shared<ServedModel>();
    model->name = "tiny";
    model->fingerprint = "0123456789abcdef";
    auto text = ModelText::Create({.tokenizer_json = testing::TinyTokenizerJson(),
                                   .family = "qwen3_moe",
                                   .chat_template = "<think></think><tool_call>"});
    EXPECT_TRUE(text.ok()) << text.status();
    model->text = *std::move(text);
    model_ = std::move(model);
    request_.choices.resize(1);
    request_.tools = R"([{"type": "function", "function": {"name": "f"}}])";
  }

  // A whole answer, cut into these pieces.
  void Run(ChatAnswer& answer, const std::vector<std::string>& pieces) {
    EXPECT_TRUE(answer.Started(0, 7, {.cached_tokens = 3, .path_reason = ""}).ok());
    for (const std::string& piece : pieces) EXPECT_TRUE(answer.Tokens(0, {Token{.id = 65}}, piece).ok());
    EXPECT_TRUE(answer.Finished(0, {.reason = FinishReason::kStop, .prompt_tokens = 7}).ok());
    EXPECT_TRUE(answer.Finish().ok());
  }

  testing::FakeRequestClock clock_;
  prometheus::Counter stalled_, behind_;
  SlowClients clients_{{}, clock_, stalled_, behind_};
  Response response_{clients_, [] {}, [] {}};
  ModelBoard::ModelPtr model_;
  ChatRequest request_;
};

// Reasoning, a text and a call.
inline const std::vector<std::string> kPieces = {
    "<think>", "hm", "</think>", "Yes.", "<tool_call>", R"({"name": "f", "arguments": {"x": )", "1}}", "</tool_call>"};

}  // namespace moestro::router
