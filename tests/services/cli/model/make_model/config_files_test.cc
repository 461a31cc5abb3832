#include "services/cli/model/make_model/config_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/checkpoint/quantization.h"
#include "common/tensor/dtype.h"
#include "nlohmann/json.hpp"
#include "services/cli/model/make_model/tokenizer_files.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kBosToken[] = "<｜begin▁of▁sentence｜>";
constexpr char kEosToken[] = "<｜end▁of▁sentence｜>";

TEST(MadeModelTest, TinyHasEdgeBlocks) {
  const auto model = ResolveModel({});
  ASSERT_TRUE(model.ok());
  EXPECT_NE(model->spec.q_lora_rank % kScaleBlock, 0);
  EXPECT_NE(model->spec.moe_intermediate_size % kScaleBlock, 0);
  EXPECT_NE((model->spec.kv_lora_rank + model->spec.qk_rope_head_dim) % kScaleBlock, 0);
  EXPECT_EQ(model->mtp_layers, 1);
}

TEST(MadeModelTest, LayerIsTheRealGeometry) {
  const auto model = ResolveModel({.preset = "layer"});
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->spec.hidden_size, 7168);
  EXPECT_EQ(model->spec.num_experts, 256);
  EXPECT_EQ(model->spec.num_expert_groups, 8);
  EXPECT_EQ(model->spec.vocab_size, 129280);
}

TEST(MadeModelTest, TinyQwen3HasWideHeadsAndNoDenseLayer) {
  const auto model = ResolveModel({.preset = "tiny-qwen3"});
  ASSERT_TRUE(model.ok());
  EXPECT_GT(model->spec.num_heads * model->spec.v_head_dim, model->spec.hidden_size);
  EXPECT_EQ(model->spec.num_heads % model->spec.num_kv_heads, 0);
  EXPECT_EQ(model->spec.first_dense_layers, 0);
  EXPECT_EQ(model->mtp_layers, 0);
}

TEST(MadeModelTest, OverridesReplaceThePreset) {
  const auto model = ResolveModel({.layers = 7, .vocab_rows = 4096, .shard_bytes = 123, .weights = "bf16"});
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->spec.num_layers, 7);
  EXPECT_EQ(model->spec.vocab_size, 4096);
  EXPECT_EQ(model->shard_bytes, 123);
  EXPECT_FALSE(model->fp8());
}

TEST(MadeModelTest, RoutingStaysValidForEveryNumberOfExperts) {
  for (const char* preset :
       {"tiny", "tiny-dbrx", "tiny-deepseek-v2", "tiny-deepseek-v2-lite", "tiny-glm", "tiny-gpt-oss", "tiny-kimi-k2",
        "tiny-minimax", "tiny-mixtral", "tiny-qwen2", "tiny-qwen3", "layer"}) {
    for (int experts = 2; experts <= 300; ++experts) {
      const auto model = ResolveModel({.preset = preset, .experts = experts});
      ASSERT_TRUE(model.ok());
      EXPECT_EQ(model->spec.num_experts, experts);
      ASSERT_EQ(model->spec.num_experts % model->spec.num_expert_groups, 0);
      EXPECT_GE(model->spec.num_experts / model->spec.num_expert_groups, 2);
      EXPECT_GE(model->spec.experts_topk_groups, 1);
      EXPECT_LE(model->spec.experts_topk_groups, model->spec.num_expert_groups);
      EXPECT_GE(model->spec.experts_topk_groups * (model->spec.num_experts / model->spec.num_expert_groups),
                model->spec.experts_per_token)
          << experts;
    }
  }
}

TEST(MadeModelTest, DenseModelsHaveNoNumberOfExperts) {
  const auto llama = ResolveModel({.preset = "tiny-llama"});
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->spec.num_moe_layers(), 0);
  EXPECT_EQ(llama->spec.num_experts, 0);
  EXPECT_EQ(llama->config["rope_scaling"]["factor"], 32.0);
  EXPECT_EQ(llama->config["rope_scaling"]["original_max_position_embeddings"], 64);
  const absl::Status refused = ResolveModel({.preset = "tiny-llama", .experts = 6}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), "--experts 6: a model of --preset tiny-llama has no experts; omit --experts");
}

TEST(MadeModelTest, ThePresetsOwnNumberOfExpertsChangesNothing) {
  const auto model = ResolveModel({.preset = "layer", .experts = 256});
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->spec.num_expert_groups, 8);
  EXPECT_EQ(model->spec.experts_topk_groups, 4);
  EXPECT_EQ(model->spec.experts_per_token, 8);
}

TEST(MadeModelTest, ErrorsNameTheFlag) {
  EXPECT_THAT(ResolveModel({.preset = "huge"}).status().message(), HasSubstr("--preset \"huge\""));
  EXPECT_THAT(ResolveModel({.weights = "int3"}).status().message(),
              HasSubstr("--weights \"int3\" is unknown; use fp8 or bf16 or int4 or mxfp4"));
  EXPECT_THAT(ResolveModel({.layers = -1}).status().message(), HasSubstr("--layers is -1"));
  EXPECT_THAT(ResolveModel({.experts = 1}).status().message(), HasSubstr("--experts is 1"));
  EXPECT_THAT(ResolveModel({.vocab_rows = -5}).status().message(), HasSubstr("--vocab-rows is -5"));
  EXPECT_THAT(ResolveModel({.shard_bytes = -1}).status().message(), HasSubstr("--shard-bytes is -1"));
}

TEST(ConfigFilesTest, RealGeometryHasThePublishedValues) {
  const json config = json::parse(ConfigJson(*ResolveModel({.preset = "layer", .layers = 61})));
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
  const json config = json::parse(ConfigJson(*ResolveModel({.preset = "tiny-qwen3"})));
  EXPECT_THAT(config["architectures"], ElementsAre("Qwen3MoeForCausalLM"));
  EXPECT_EQ(config["model_type"], "qwen3_moe");
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["head_dim"], 64);
  EXPECT_EQ(config["num_experts"], 16);
  EXPECT_EQ(config["quantization_config"]["quant_method"], "fp8");
  EXPECT_FALSE(config.contains("kv_lora_rank"));
}

TEST(ConfigFilesTest, ZeroPointsAreThoseOfTheirMethods) {
  for (const auto& [weights, method] :
       {std::pair("int4_asym", "compressed-tensors"), std::pair("awq", "awq"), std::pair("gptq", "gptq")}) {
    const auto model = ResolveModel({.preset = "tiny-kimi-k2", .weights = weights});
    ASSERT_TRUE(model.ok()) << model.status();
    const auto quantization = checkpoint::ParseQuantization(ConfigJson(*model));
    ASSERT_TRUE(quantization.ok()) << quantization.status();
    EXPECT_EQ(quantization->int4, (std::vector<checkpoint::Int4Groups>{{32, true}}));
    EXPECT_EQ(quantization->experts(), DType::kI4Z32);
    EXPECT_EQ(json::parse(ConfigJson(*model))["quantization_config"]["quant_method"], method);
  }
}

// As the published ones: the reader takes it, and knows the form of the weights.
TEST(ConfigFilesTest, FourBitsAreThoseOfCompressedTensors) {
  for (const auto& [weights, dtype] : {std::pair("int4", DType::kI4G32), std::pair("mxfp4", DType::kMXFP4)}) {
    const auto model = ResolveModel({.preset = "tiny-kimi-k2", .weights = weights});
    ASSERT_TRUE(model.ok()) << model.status();
    const auto quantization = checkpoint::ParseQuantization(ConfigJson(*model));
    ASSERT_TRUE(quantization.ok()) << quantization.status();
    EXPECT_EQ(quantization->experts(), dtype);
    const json config = json::parse(ConfigJson(*model))["quantization_config"];
    EXPECT_EQ(config["quant_method"], "compressed-tensors");
    EXPECT_EQ(config["ignore"][0], "lm_head");
  }
}

TEST(MadeModelTest, FourBitsNeedExpertsInTensorsOfTheirOwn) {
  EXPECT_THAT(ResolveModel({.preset = "tiny-llama", .weights = "int4"}).status().message(),
              HasSubstr("--weights int4: a model of --preset tiny-llama has no routed experts; use bf16"));
  EXPECT_THAT(ResolveModel({.preset = "tiny-dbrx", .weights = "mxfp4"}).status().message(),
              HasSubstr("--weights mxfp4: a model of --preset tiny-dbrx has all experts in one tensor; use bf16"));
}

TEST(ConfigFilesTest, MixtralIsBf16UnlessFp8IsWanted) {
  const json config = json::parse(ConfigJson(*ResolveModel({.preset = "tiny-mixtral", .experts = 6})));
  EXPECT_THAT(config["architectures"], ElementsAre("MixtralForCausalLM"));
  EXPECT_EQ(config["model_type"], "mixtral");
  EXPECT_EQ(config["num_local_experts"], 6);
  EXPECT_EQ(config["num_experts_per_tok"], 2);
  EXPECT_EQ(config["sliding_window"], nullptr);
  EXPECT_EQ(config["head_dim"], 128);
  EXPECT_FALSE(config.contains("quantization_config"));
  EXPECT_TRUE(ResolveModel({.preset = "tiny-mixtral", .weights = "fp8"})->fp8());
}

TEST(ConfigFilesTest, DeepSeekV2IsBf16AndKeepsItsRouters) {
  const json v2 = json::parse(ConfigJson(*ResolveModel({.preset = "tiny-deepseek-v2", .experts = 16})));
  EXPECT_THAT(v2["architectures"], ElementsAre("DeepseekV2ForCausalLM"));
  EXPECT_EQ(v2["topk_method"], "group_limited_greedy");
  EXPECT_EQ(v2["n_group"], 8);
  EXPECT_EQ(v2["topk_group"], 3);
  EXPECT_EQ(v2["q_lora_rank"], 192);
  EXPECT_FALSE(v2.contains("quantization_config"));
  const json lite = json::parse(ConfigJson(*ResolveModel({.preset = "tiny-deepseek-v2-lite"})));
  EXPECT_EQ(lite["topk_method"], "greedy");
  EXPECT_EQ(lite["q_lora_rank"], nullptr);
  EXPECT_EQ(lite["rope_scaling"]["mscale_all_dim"], 0.707);
}

TEST(ConfigFilesTest, KimiK2IsFp8OfOneGroup) {
  const json config = json::parse(ConfigJson(*ResolveModel({.preset = "tiny-kimi-k2"})));
  EXPECT_EQ(config["model_type"], "kimi_k2");
  EXPECT_EQ(config["n_group"], 1);
  EXPECT_EQ(config["rope_scaling"]["beta_fast"], 1.0);
  EXPECT_EQ(config["routed_scaling_factor"], 2.827);
  EXPECT_TRUE(config.contains("quantization_config"));
}

TEST(ConfigFilesTest, GlmKeepsItsAttentionAndPredictionLayer) {
  const json config = json::parse(ConfigJson(*ResolveModel({.preset = "tiny-glm", .experts = 6})));
  EXPECT_EQ(config["model_type"], "glm4_moe");
  EXPECT_EQ(config["n_routed_experts"], 6);
  EXPECT_EQ(config["n_group"], 1);
  EXPECT_EQ(config["attention_bias"], true);
  EXPECT_EQ(config["partial_rotary_factor"], 0.5);
  EXPECT_EQ(config["num_nextn_predict_layers"], 1);
}

TEST(ConfigFilesTest, DequantisedCheckpointsAnnounceNoQuantisation) {
  EXPECT_FALSE(json::parse(ConfigJson(*ResolveModel({.weights = "bf16"}))).contains("quantization_config"));
  EXPECT_EQ(json::parse(ConfigJson(*ResolveModel({})))["num_nextn_predict_layers"], 1);
}

TEST(ConfigFilesTest, GenerationDefaults) {
  const json config = json::parse(GenerationConfigJson());
  EXPECT_EQ(config["eos_token_id"], 1);
  EXPECT_EQ(config["temperature"], 0.6);
  EXPECT_EQ(config["top_p"], 0.95);
}

std::string FileOfTheTree(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TokenizerFilesTest, AreInTheBinaryByteByByte) {
  EXPECT_EQ(kTokenizerJson, FileOfTheTree("services/cli/model/make_model/tokenizer/tokenizer.json"));
  EXPECT_EQ(kTokenizerConfigJson, FileOfTheTree("services/cli/model/make_model/tokenizer/tokenizer_config.json"));
}

TEST(TokenizerFilesTest, IdsAreDenseAndLeavePaddingRows) {
  const json tokenizer = json::parse(kTokenizerJson);
  std::vector<bool> used(kTokenCount);
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) used.at(id.get<size_t>()) = true;
  for (const json& token : tokenizer["added_tokens"]) used.at(token["id"].get<size_t>()) = true;
  EXPECT_EQ(std::count(used.begin(), used.end(), false), 0);
  EXPECT_LT(kTokenCount, ResolveModel({})->spec.vocab_size);
}

TEST(TokenizerFilesTest, MergesJoinKnownTokens) {
  const json model = json::parse(kTokenizerJson)["model"];
  EXPECT_EQ(model["merges"].size(), 1200u);
  for (const json& merge : model["merges"]) {
    const std::string text = merge.get<std::string>();
    const size_t space = text.find(' ');
    ASSERT_NE(space, std::string::npos) << text;
    ASSERT_TRUE(model["vocab"].contains(text.substr(0, space) + text.substr(space + 1))) << text;
  }
}

TEST(TokenizerFilesTest, BosIsAddedByThePostProcessor) {
  const json tokenizer = json::parse(kTokenizerJson);
  EXPECT_EQ(tokenizer["post_processor"]["type"], "TemplateProcessing");
  EXPECT_EQ(tokenizer["post_processor"]["single"][0]["SpecialToken"]["id"], kBosToken);
  EXPECT_THAT(tokenizer["post_processor"]["special_tokens"][kBosToken]["ids"], ElementsAre(kBosId));
  EXPECT_EQ(tokenizer["model"]["vocab"][kEosToken], kEosId);
}

TEST(TokenizerFilesTest, SplitsTextAsDeepSeekV3) {
  const json golden = json::parse(FileOfTheTree("tests/golden/text/split.json"));
  const auto reference = std::ranges::find_if(golden["sets"], [](const json& s) { return s["name"] == "deepseek_v3"; });
  ASSERT_NE(reference, golden["sets"].end());
  const json steps = json::parse(kTokenizerJson)["pre_tokenizer"]["pretokenizers"];
  ASSERT_EQ(steps.size(), (*reference)["patterns"].size() + 1);  // the last is ByteLevel
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    EXPECT_EQ(steps[i]["pattern"]["Regex"], (*reference)["patterns"][i]);
  }
}

TEST(TokenizerFilesTest, ChatTemplateUsesTheModelsTokens) {
  const json config = json::parse(kTokenizerConfigJson);
  EXPECT_EQ(config["bos_token"]["content"], kBosToken);
  EXPECT_EQ(config["eos_token"]["content"], kEosToken);
  EXPECT_THAT(config["chat_template"].get<std::string>(), HasSubstr("<｜User｜>"));
  EXPECT_THAT(config["chat_template"].get<std::string>(), HasSubstr("<｜Assistant｜>"));
}

}  // namespace
}  // namespace moestro::cli
