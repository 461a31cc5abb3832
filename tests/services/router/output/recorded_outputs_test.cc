// Answers of each model, as recorded in cases/, must come out right, however they are cut.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/router/output/output_parser.h"
#include "tests/services/router/output/joined_output.h"
#include "tests/services/router/output/recorded_model.h"

namespace moestro::router {
namespace {

using nlohmann::json;

class RecordedOutputsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RecordedOutputsTest, ComeOutRight) {
  const RecordedModel model(GetParam());
  for (const json& test : model.file["cases"]) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const auto parser = model.NewParser(test);
    JoinedOutput output;
    output.Add(parser->Push(test["text"].get<std::string>()));
    output.Add(parser->Finish(FinishReason::kStop));
    EXPECT_EQ(output.content, test.value("content", ""));
    EXPECT_EQ(output.reasoning, test.value("reasoning", ""));
    const json calls = test.value("calls", json::array());
    EXPECT_EQ(parser->saw_tool_calls(), !calls.empty());
    ASSERT_EQ(output.calls.size(), calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(output.calls[i].name, calls[i]["name"]);
      EXPECT_EQ(output.calls[i].arguments, calls[i]["arguments"]);
      EXPECT_EQ(output.calls[i].id, calls[i].value("id", output.calls[i].id));
      EXPECT_FALSE(output.calls[i].id.empty());
    }
  }
}

TEST_P(RecordedOutputsTest, AreTheSameHoweverTheyAreCut) {
  const RecordedModel model(GetParam());
  for (const json& test : model.file["cases"]) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const std::string text = test["text"];
    const JoinedOutput whole = Parse(*model.NewParser(test), {text});
    std::vector<std::string> bytes;
    for (const char byte : text) bytes.emplace_back(1, byte);
    EXPECT_EQ(Parse(*model.NewParser(test), bytes), whole);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(Parse(*model.NewParser(test), {text.substr(0, cut), text.substr(cut)}), whole) << "cut at " << cut;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecordedOutputsTest, ::testing::ValuesIn(kRecordedModels), [](const auto& model) {
  return std::string(model.param).substr(0, std::string(model.param).find('.'));
});

}  // namespace
}  // namespace moestro::router
