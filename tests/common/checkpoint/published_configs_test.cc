// The config.json files that are compiled in, and what their publishers say of the models.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/model_location.h"
#include "common/model/schema.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using nlohmann::json;

json Config(std::string_view model) { return json::parse(checkpoint::FindPublishedConfig(model).value()); }

// Of weights that can be loaded, or not.
weights::ModelSpec Spec(std::string_view model) {
  json config = Config(model);
  config.erase("quantization_config");
  return Parse(config).value();
}

TEST(PublishedConfigs, EveryRepositoryHasOneThatIsRead) {
  const std::vector<std::string> repositories = checkpoint::PublishedRepositories();
  EXPECT_GE(repositories.size(), 48u);
  for (const std::string& repository : repositories) {
    SCOPED_TRACE(repository);
    EXPECT_TRUE(checkpoint::IsRepositoryName(repository));
    const std::optional<std::string> config = checkpoint::FindPublishedConfig(repository);
    ASSERT_TRUE(config.has_value());
    const absl::Status status = checkpoint::ParseModelSpec(*config, "").status();
    if (!status.ok()) ExpectError(status, kUnimplemented, {"quantization_config: quant_method"});
    EXPECT_GT(Spec(repository).num_layers, 0);
  }
  for (const std::string& name : checkpoint::PublishedModels()) {
    EXPECT_FALSE(checkpoint::IsRepositoryName(name)) << name;
    EXPECT_EQ(checkpoint::FindPublishedConfig(name), checkpoint::PublishedConfig(name));
  }
  for (const char* name : {"deepseek-ai/DeepSeek-V9", "deepseek-ai/deepseek-v3", "DeepSeek-V3", ""}) {
    EXPECT_FALSE(checkpoint::FindPublishedConfig(name).has_value()) << name;
  }
}

TEST(PublishedConfigs, WhatDiffersWithinAnArchitecture) {
  struct Case {
    const char* model;
    const char* field;
    json value;
  };
  const std::vector<Case> cases = {
      {"deepseek-ai/DeepSeek-V3-0324", "/quantization_config/scale_fmt", nullptr},
      {"deepseek-ai/DeepSeek-V3.1", "/quantization_config/scale_fmt", "ue8m0"},
      {"deepseek-ai/DeepSeek-V3.1", "/quantization_config/quant_method", "fp8"},
      {"Qwen/Qwen2-57B-A14B-Instruct", "/max_position_embeddings", 32768},
      {"Qwen/Qwen3-235B-A22B", "/rope_theta", 1000000.0},
      {"Qwen/Qwen3-235B-A22B-Instruct-2507", "/rope_theta", 5000000},
      {"Qwen/Qwen3-235B-A22B-Thinking-2507", "/max_position_embeddings", 262144},
      {"Qwen/Qwen3-30B-A3B", "/max_position_embeddings", 40960},
      {"Qwen/Qwen3-30B-A3B-Base", "/max_position_embeddings", 32768},
      {"Qwen/Qwen3-30B-A3B-Instruct-2507", "/rope_theta", 10000000},
      {"Qwen/Qwen3-Coder-30B-A3B-Instruct", "/max_position_embeddings", 262144},
      {"mistralai/Mixtral-8x22B-v0.1", "/vocab_size", 32000},
      {"mistralai/Mixtral-8x22B-Instruct-v0.1", "/vocab_size", 32768},
      {"moonshotai/Kimi-K2-Instruct", "/rope_scaling/factor", 32.0},
      {"moonshotai/Kimi-K2-Instruct-0905", "/rope_scaling/factor", 64.0},
      {"moonshotai/Kimi-K2-Instruct-0905", "/rope_scaling/beta_fast", 1.0},
      {"moonshotai/Kimi-K2-Instruct-0905", "/quantization_config/quant_method", "fp8"},
      {"moonshotai/Kimi-K2-Thinking", "/max_position_embeddings", 262144},
      {"moonshotai/Kimi-K2-Thinking", "/rms_norm_eps", 1e-6},
      {"moonshotai/Kimi-K2-Thinking", "/quantization_config/quant_method", "compressed-tensors"},
      {"moonshotai/Kimi-K2-Thinking", "/quantization_config/config_groups/group_0/weights/group_size", 32},
      {"moonshotai/Kimi-K2-Thinking", "/quantization_config/weight_block_size", nullptr},
      {"moonshotai/Kimi-K2.5", "/rms_norm_eps", 1e-5},
      {"moonshotai/Kimi-K2.5", "/rope_scaling/beta_fast", 32.0},
      {"moonshotai/Kimi-K2.5", "/rope_scaling/factor", 64.0},
      {"moonshotai/Kimi-K2.5", "/quantization_config/config_groups/group_0/weights/num_bits", 4},
  };
  for (const Case& test : cases) {
    const json config = Config(test.model);
    const json::json_pointer field(test.field);
    EXPECT_EQ(config.contains(field) ? config[field] : json(), test.value) << test.model << " " << test.field;
  }
}

// All that a publisher counts in a total.
enum class Total { kServed, kWithPredictionWithoutTables };  // the tables: embedding and head

struct Figures {
  const char* model;
  double total;         // billions, as the publisher tells them
  double total_digit;   // one in its last digit
  double active;        // billions
  double active_digit;  // one in its last digit
  Total counts = Total::kServed;
  bool active_counts_embedding = false;
};
constexpr Figures kFigures[] = {
    {"deepseek-ai/DeepSeek-V3", 671, 1, 37, 1},
    {"deepseek-ai/DeepSeek-R1", 671, 1, 37, 1},
    {"moonshotai/Kimi-K2-Instruct", 1000, 100, 32, 1},
    {"moonshotai/Kimi-K2.5", 1000, 100, 32, 1},
    {"deepseek-ai/DeepSeek-V2", 236, 1, 21, 1},
    {"deepseek-ai/DeepSeek-V2-Lite", 15.7, 0.1, 2.4, 0.1},
    {"mistralai/Mixtral-8x7B-v0.1", 46.7, 0.1, 12.9, 0.1, Total::kServed, /*active_counts_embedding=*/true},
    {"mistralai/Mixtral-8x22B-v0.1", 141, 1, 39, 1},
    {"databricks/dbrx-base", 132, 1, 36, 1},
    {"Qwen/Qwen2-57B-A14B", 57.4, 0.1, 14, 1},
    {"Qwen/Qwen3-235B-A22B", 235, 1, 22, 1},
    {"Qwen/Qwen3-30B-A3B", 30.5, 0.1, 3.3, 0.1, Total::kServed, /*active_counts_embedding=*/true},
    {"zai-org/GLM-4.5", 355, 1, 32, 1, Total::kWithPredictionWithoutTables},
    {"zai-org/GLM-4.5-Air", 106, 1, 12, 1},
    {"zai-org/GLM-4.6", 355, 1, 32, 1, Total::kWithPredictionWithoutTables},
    {"MiniMaxAI/MiniMax-M2", 230, 10, 10, 1},
    {"deepseek-ai/DeepSeek-R1-Distill-Llama-70B", 70.6, 0.1, 70.6, 0.1, Total::kServed,
     /*active_counts_embedding=*/true},
    {"openai/gpt-oss-20b", 20.91, 0.01, 3.61, 0.01},
    {"openai/gpt-oss-120b", 116.83, 0.01, 5.13, 0.01},
    {"meta-llama/Llama-3.2-3B", 3.21, 0.01, 3.21, 0.01},
};

// 0.5 %, or one in the last digit: some publishers round, others cut off.
double Tolerance(double figure, double digit) { return std::max(0.005 * figure, digit); }

TEST(PublishedConfigs, ParametersAreThoseThatPublishersTell) {
  std::set<int64_t> compared;
  for (const Figures& figures : kFigures) {
    SCOPED_TRACE(figures.model);
    const weights::ModelSpec spec = Spec(figures.model);
    const int64_t table = spec.vocab_size * spec.hidden_size;
    int64_t total = model::ParameterCount(spec), active = model::ActiveParameterCount(spec);
    compared.insert(total);
    if (figures.counts == Total::kWithPredictionWithoutTables) {
      total += model::PredictionLayerParameterCount(spec) - 4 * table;
    }
    if (figures.active_counts_embedding) active += table;
    EXPECT_NEAR(static_cast<double>(total) / 1e9, figures.total, Tolerance(figures.total, figures.total_digit));
    EXPECT_NEAR(static_cast<double>(active) / 1e9, figures.active, Tolerance(figures.active, figures.active_digit));
  }
  for (const std::string& name : checkpoint::PublishedModels()) {
    EXPECT_TRUE(compared.contains(model::ParameterCount(Spec(name)))) << name << " lacks its publisher's figures";
  }
}

// The elements of the published files that are no scales: BF16, FP8, and the routers' biases in F32.
TEST(PublishedConfigs, ParametersOnDiskOfDeepSeekV3) {
  const weights::ModelSpec spec = Spec("deepseek-ai/DeepSeek-V3");
  EXPECT_EQ(checkpoint::PredictionLayers(Config("deepseek-ai/DeepSeek-V3").dump()).value(), 1);
  EXPECT_EQ(model::ParameterCount(spec) + model::PredictionLayerParameterCount(spec),
            3'918'786'560 + 680'571'043'840 + 59 * 256);
}

TEST(PublishedConfigs, ParametersOnDiskOfGlm) {
  for (const auto& [model, billions] : {std::pair("zai-org/GLM-4.5", 358.0), std::pair("zai-org/GLM-4.5-Air", 110.0)}) {
    const weights::ModelSpec spec = Spec(model);
    EXPECT_EQ(checkpoint::PredictionLayers(Config(model).dump()).value(), 1);
    const int64_t on_disk = model::ParameterCount(spec) + model::PredictionLayerParameterCount(spec);
    EXPECT_NEAR(static_cast<double>(on_disk) / 1e9, billions, 0.005 * billions) << model;
  }
}

TEST(PredictionLayers, AreReadFromTheConfig) {
  const auto layers = [](const json& config) { return checkpoint::PredictionLayers(config.dump()); };
  EXPECT_EQ(layers(json::object()).value(), 0);
  EXPECT_EQ(layers({{"num_nextn_predict_layers", nullptr}}).value(), 0);
  EXPECT_EQ(layers({{"num_nextn_predict_layers", 3}}).value(), 3);
  EXPECT_EQ(layers({{"text_config", {{"num_nextn_predict_layers", 2}}}}).value(), 2);
  ExpectError(layers({{"num_nextn_predict_layers", -1}}).status(), kInvalid,
              {"config.json: num_nextn_predict_layers", "-1 is out of range"});
  ExpectError(layers({{"num_nextn_predict_layers", "1"}}).status(), kInvalid, {"\"1\" is not an integer"});
  ExpectError(checkpoint::PredictionLayers("{").status(), kInvalid, {"config.json"});
}

}  // namespace
}  // namespace moestro::testing
