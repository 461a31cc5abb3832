// What published settings mean, against transformers: tests/golden/generation_configs/make_cases.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/checkpoint/config.h"
#include "common/checkpoint/gguf/gguf_texts.h"
#include "tests/common/checkpoint/gguf/metadata_json.h"
#include "tests/common/text/golden.h"

namespace moestro::testing {
namespace {

using checkpoint::CheckpointDocuments;
using checkpoint::GenerationDefaults;
using checkpoint::ParseGenerationDefaults;
using nlohmann::json;

constexpr int64_t kRows = 100;

CheckpointDocuments DocumentsOf(const json& test) {
  CheckpointDocuments documents{.config_json = "{}"};
  if (test.contains("document")) {
    documents.generation_config_json = test["document"].dump();
    return documents;
  }
  // The tokenizer lies beside the file.
  documents.tokenizer_json = "{}";
  documents.tokenizer_config_json = "{}";
  json metadata = json::object();
  for (const auto& [key, value] : test["sampling"].items()) metadata["general.sampling." + key] = value;
  EXPECT_TRUE(checkpoint::AddGgufTexts(MetadataFromJson(metadata), kRows, &documents).ok());
  return documents;
}

TEST(SamplingDefaults, MeanWhatTransformersReads) {
  const json cases = json::parse(std::ifstream("tests/golden/generation_configs/cases.json"));
  ASSERT_GE(cases.size(), 40);
  for (const json& test : cases) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const json& means = test["means"];
    const absl::StatusOr<GenerationDefaults> defaults = ParseGenerationDefaults(DocumentsOf(test), kRows);
    ASSERT_TRUE(defaults.ok()) << defaults.status();
    EXPECT_EQ(defaults->temperature, means["temperature"]);
    EXPECT_EQ(defaults->top_p, means["top_p"]);
    EXPECT_EQ(defaults->top_k, means["top_k"]);
    EXPECT_EQ(defaults->min_p, means["min_p"]);
    EXPECT_EQ(defaults->repetition_penalty, means["repetition_penalty"]);
    EXPECT_EQ(defaults->max_new_tokens, means["max_new_tokens"]);
    const char* file = test.contains("document") ? "generation_config.json" : "GGUF";
    EXPECT_EQ(defaults->sampling_source, means["publishes"].get<bool>() ? file : "nothing is published");
  }
}

// Greedy answers of models that think repeat themselves without end. Where nobody says how to sample, they get what
// DeepSeek-R1 and Qwen3 publish.
TEST(SamplingDefaults, FollowTheTemplateWhereNothingIsPublished) {
  const auto with_template = [](const std::string& name, const char* generation_config) {
    CheckpointDocuments documents{.config_json = "{}", .generation_config_json = generation_config};
    documents.chat_template_jinja = text::ReadGolden("templates/" + name + ".jinja");
    EXPECT_FALSE(documents.chat_template_jinja.empty()) << name;
    return ParseGenerationDefaults(documents, kRows).value();
  };
  for (const char* thinks : {"deepseek_r1", "minimax_m2"}) {
    for (const char* silent : {"{}", R"({"do_sample":true,"eos_token_id":1})"}) {
      const GenerationDefaults defaults = with_template(thinks, silent);
      EXPECT_EQ(defaults.temperature, 0.6) << thinks;
      EXPECT_EQ(defaults.top_p, 0.95) << thinks;
      EXPECT_EQ(defaults.sampling_source, "the template thinks") << thinks;
    }
    EXPECT_EQ(with_template(thinks, R"({"top_k":20})").temperature, 1) << thinks;
    EXPECT_EQ(with_template(thinks, R"({"do_sample":false})").temperature, 0) << thinks;
  }
  const GenerationDefaults plain = with_template("mixtral", "{}");
  EXPECT_EQ(plain.temperature, 1);
  EXPECT_EQ(plain.sampling_source, "nothing is published");
}

}  // namespace
}  // namespace moestro::testing
