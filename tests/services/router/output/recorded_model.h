// A model's format and tools, of a file in cases/.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "services/router/output/output_parser.h"

namespace moestro::router {

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct RecordedModel {
  explicit RecordedModel(const std::string& name)
      : file(nlohmann::json::parse(ReadText("tests/services/router/output/cases/" + name))) {
    std::string chat_template = file["template"];
    if (chat_template.ends_with(".jinja")) chat_template = ReadText("tests/golden/text/templates/" + chat_template);
    format = FindOutputFormat(file["family"].get<std::string>(), chat_template, file["special_tokens"]);
    tools = file["tools"].dump();
  }

  std::unique_ptr<OutputParser> NewParser(const nlohmann::json& test) const {
    return router::NewParser(format, {.reasoning_open = test.value("reasoning_open", false),
                                      .parse_tools = test.value("parse_tools", true),
                                      .tools = tools,
                                      .id_seed = 7});
  }

  nlohmann::json file;
  OutputFormat format;
  std::string tools;
};

inline constexpr const char* kRecordedModels[] = {
    "dbrx.json",    "deepseek_r1.json",      "deepseek_v3_1.json", "glm4.json",       "gpt_oss.json",
    "kimi_k2.json", "kimi_k2_thinking.json", "llama3.json",        "minimax_m2.json", "mistral.json",
    "qwen3.json",   "qwen3_coder.json"};

}  // namespace moestro::router
