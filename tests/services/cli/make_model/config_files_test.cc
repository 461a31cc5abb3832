#include "services/cli/make_model/config_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "nlohmann/json.hpp"
#include "services/cli/make_model/special_tokens.h"
#include "services/cli/make_model/tokenizer_files.h"

namespace moestro {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ConfigFilesTest, RealGeometryHasThePublishedValues) {
  const json config = json::parse(ConfigJson(*ResolveGeometry({.preset = "layer", .layers = 61})));
  EXPECT_THAT(config["architectures"], ElementsAre("DeepseekV3ForCausalLM"));
  EXPECT_EQ(config["model_type"], "deepseek_v3");
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["num_hidden_layers"], 61);
  EXPECT_EQ(config["hidden_size"], 7168);
  EXPECT_EQ(config["num_attention_heads"], 128);
  EXPECT_EQ(config["num_key_value_heads"], 128);
  EXPECT_EQ(config["n_routed_experts"], 256);
  EXPECT_EQ(config["n_group"], 8);
  EXPECT_EQ(config["topk_group"], 4);
  EXPECT_EQ(config["routed_scaling_factor"], 2.5);
  EXPECT_EQ(config["topk_method"], "noaux_tc");
  EXPECT_EQ(config["rope_scaling"]["type"], "yarn");
  EXPECT_EQ(config["rope_scaling"]["factor"], 40);
  EXPECT_EQ(config["rope_scaling"]["mscale_all_dim"], 1.0);
  EXPECT_EQ(config["rope_scaling"]["original_max_position_embeddings"], 4096);
  EXPECT_EQ(config["max_position_embeddings"], 163840);
  EXPECT_EQ(config["quantization_config"]["quant_method"], "fp8");
  EXPECT_EQ(config["quantization_config"]["fmt"], "e4m3");
  EXPECT_THAT(config["quantization_config"]["weight_block_size"], ElementsAre(128, 128));
}

TEST(ConfigFilesTest, Qwen3) {
  const json config = json::parse(ConfigJson(*ResolveGeometry({.preset = "tiny-qwen3"})));
  EXPECT_THAT(config["architectures"], ElementsAre("Qwen3MoeForCausalLM"));
  EXPECT_EQ(config["model_type"], "qwen3_moe");
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["head_dim"], 64);
  EXPECT_EQ(config["num_experts"], 16);
  EXPECT_EQ(config["quantization_config"]["quant_method"], "fp8");
  EXPECT_FALSE(config.contains("kv_lora_rank"));
}

TEST(ConfigFilesTest, DequantisedCheckpointsAnnounceNoQuantisation) {
  EXPECT_FALSE(json::parse(ConfigJson(*ResolveGeometry({.weights = "bf16"}))).contains("quantization_config"));
  EXPECT_EQ(json::parse(ConfigJson(*ResolveGeometry({})))["num_nextn_predict_layers"], 1);
}

TEST(ConfigFilesTest, GenerationDefaults) {
  const json config = json::parse(GenerationConfigJson());
  EXPECT_EQ(config["eos_token_id"], 1);
  EXPECT_EQ(config["temperature"], 0.6);
  EXPECT_EQ(config["top_p"], 0.95);
}

TEST(TokenizerFilesTest, IdsAreDenseAndLeavePaddingRows) {
  const auto files = BuildTokenizerFiles();
  ASSERT_TRUE(files.ok()) << files.status();
  const json tokenizer = json::parse(files->tokenizer_json);
  std::vector<bool> used(files->token_count);
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) used.at(id.get<size_t>()) = true;
  for (const json& token : tokenizer["added_tokens"]) used.at(token["id"].get<size_t>()) = true;
  EXPECT_EQ(std::count(used.begin(), used.end(), false), 0);
  EXPECT_GT(files->token_count, 1200);
  EXPECT_LT(files->token_count, ResolveGeometry({})->vocab_rows);
}

TEST(TokenizerFilesTest, MergesJoinKnownTokens) {
  const json model = json::parse(BuildTokenizerFiles()->tokenizer_json)["model"];
  for (const json& merge : model["merges"]) {
    const std::string text = merge.get<std::string>();
    const size_t space = text.find(' ');
    ASSERT_NE(space, std::string::npos) << text;
    ASSERT_TRUE(model["vocab"].contains(text.substr(0, space) + text.substr(space + 1))) << text;
  }
}

TEST(TokenizerFilesTest, BosIsAddedByThePostProcessor) {
  const json tokenizer = json::parse(BuildTokenizerFiles()->tokenizer_json);
  EXPECT_EQ(tokenizer["post_processor"]["type"], "TemplateProcessing");
  EXPECT_EQ(tokenizer["post_processor"]["single"][0]["SpecialToken"]["id"], kBosToken);
  EXPECT_THAT(tokenizer["post_processor"]["special_tokens"][kBosToken]["ids"], ElementsAre(0));
  EXPECT_EQ(tokenizer["pre_tokenizer"]["pretokenizers"].size(), 4u);
  EXPECT_EQ(tokenizer["model"]["vocab"][kEosToken], 1);
}

TEST(TokenizerFilesTest, ChatTemplateUsesTheModelsTokens) {
  const json config = json::parse(BuildTokenizerFiles()->tokenizer_config_json);
  EXPECT_EQ(config["bos_token"]["content"], kBosToken);
  EXPECT_EQ(config["eos_token"]["content"], kEosToken);
  EXPECT_THAT(config["chat_template"].get<std::string>(), HasSubstr(kUserToken));
  EXPECT_THAT(config["chat_template"].get<std::string>(), HasSubstr(kAssistantToken));
}

}  // namespace
}  // namespace moestro
