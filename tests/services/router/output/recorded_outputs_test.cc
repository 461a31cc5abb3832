// Answers of each model, as recorded in cases/, must come out right, however they are cut.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "services/router/output/output_parser.h"
#include "tests/services/router/output/joined_output.h"

namespace moestro::router {
namespace {

using nlohmann::json;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Model {
  explicit Model(const std::string& name) : file(json::parse(ReadText("tests/services/router/output/cases/" + name))) {
    std::string chat_template = file["template"];
    if (chat_template.ends_with(".jinja")) chat_template = ReadText("tests/golden/text/templates/" + chat_template);
    format = FindOutputFormat(file["family"].get<std::string>(), chat_template, file["special_tokens"]);
    tools = file["tools"].dump();
  }

  std::unique_ptr<OutputParser> NewParser(const json& test) const {
    return router::NewParser(format, {.reasoning_open = test.value("reasoning_open", false),
                                      .parse_tools = test.value("parse_tools", true),
                                      .tools = tools,
                                      .id_seed = 7});
  }

  json file;
  OutputFormat format;
  std::string tools;
};

class RecordedOutputsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RecordedOutputsTest, ComeOutRight) {
  const Model model(GetParam());
  for (const json& test : model.file["cases"]) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const auto parser = model.NewParser(test);
    JoinedOutput output;
    output.Add(parser->Push(test["text"].get<std::string>()));
    output.Add(parser->Finish());
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
  const Model model(GetParam());
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

INSTANTIATE_TEST_SUITE_P(Models, RecordedOutputsTest,
                         ::testing::Values("dbrx.json", "deepseek_r1.json", "deepseek_v3_1.json", "glm4.json",
                                           "gpt_oss.json", "kimi_k2.json", "kimi_k2_thinking.json", "llama3.json",
                                           "minimax_m2.json", "mistral.json", "qwen3.json", "qwen3_coder.json"),
                         [](const auto& model) {
                           return std::string(model.param).substr(0, std::string(model.param).find('.'));
                         });

}  // namespace
}  // namespace moestro::router
