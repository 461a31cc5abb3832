// What is read from config.json in every family, and from tokenizer.json beside it.
#include <gtest/gtest.h>

#include "common/checkpoint/config.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using nlohmann::json;

TEST(ModelSpecParse, NullOr0IsNoRankBetweenHiddenStateAndQueries) {
  json config = TinyConfig();
  for (const json& none : {json(nullptr), json(0)}) {
    config["q_lora_rank"] = none;
    const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->q_lora_rank, 0);
  }
}

TEST(ModelSpecParse, RmsEpsilonDoesNotReachTheLowRankNorms) {
  json config = TinyConfig();
  config["rms_norm_eps"] = 1e-5;
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rms_norm_eps, 1e-5);
  EXPECT_EQ(spec->lora_norm_eps, 1e-6);
}

TEST(ModelSpecParse, OptionalFieldsHaveTheFamiliesDefaults) {
  json config = TinyConfig();
  config["n_shared_experts"] = nullptr;
  config["rope_scaling"] = nullptr;
  config["quantization_config"] = nullptr;
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->num_shared_experts, 0);
  EXPECT_EQ(spec->norm_topk_prob, 1);
  EXPECT_EQ(spec->yarn.enabled, 0);
  EXPECT_EQ(spec->yarn.factor, 1);
}

TEST(ModelSpecParse, BothSpellingsOfYarn) {
  const json yarn = {
      {"factor", 4}, {"original_max_position_embeddings", 128}, {"mscale", 0.5}, {"attention_factor", 1.25}};
  json old_type = TinyConfig(), new_type = TinyConfig(), merged = TinyConfig();
  old_type["rope_scaling"] = yarn;
  old_type["rope_scaling"]["type"] = "yarn";
  old_type["torch_dtype"] = "bfloat16";
  new_type["rope_scaling"] = yarn;
  new_type["rope_scaling"]["rope_type"] = "yarn";
  merged.erase("rope_theta");
  merged["dtype"] = "bfloat16";
  merged["rope_parameters"] = yarn;
  merged["rope_parameters"].update({{"rope_type", "yarn"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 1.0}});
  for (const json& config : {old_type, new_type, merged}) {
    const auto spec = Parse(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->rope_theta, 10000);
    EXPECT_EQ(spec->yarn.enabled, 1);
    EXPECT_EQ(spec->yarn.factor, 4);
    EXPECT_EQ(spec->yarn.beta_fast, 32);
    EXPECT_EQ(spec->yarn.beta_slow, 1);
    EXPECT_EQ(spec->yarn.mscale, 0.5);
    EXPECT_EQ(spec->yarn.mscale_all_dim, 0);
    EXPECT_EQ(spec->yarn.attention_factor, 1.25);
    EXPECT_EQ(spec->yarn.original_max_position_embeddings, 128);
  }
}

TEST(ModelSpecParse, MergedRopeWithoutScaling) {
  json config = TinyConfig();
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 50000.0}};
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rope_theta, 50000);
  EXPECT_EQ(spec->yarn.enabled, 0);
}

TEST(ModelSpecParse, OriginalLengthMayLieBesideTheRopeSettings) {
  json config = TinyConfig();
  config["original_max_position_embeddings"] = 64;
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 2}};
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->yarn.original_max_position_embeddings, 64);
}

// The extreme shape within the bounds: the count must not overflow (the sanitizer build would stop here).
TEST(ModelSpecParse, TheLargestAllowedModelDoesNotOverflow) {
  json config = TinyConfig();
  config.update({{"hidden_size", 1 << 17},
                 {"num_hidden_layers", 64},
                 {"num_attention_heads", 4096},
                 {"n_routed_experts", 4096},
                 {"n_shared_experts", 64},
                 {"moe_intermediate_size", 1 << 18},
                 {"intermediate_size", 1 << 18},
                 {"kv_lora_rank", 1 << 17},
                 {"qk_nope_head_dim", 1024},
                 {"v_head_dim", 1024},
                 {"vocab_size", 1 << 24}});
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_GT(model::ParameterCount(*spec), int64_t{1} << 54);
  EXPECT_LT(model::ParameterCount(*spec), int64_t{1} << 60);
}

TEST(TokenCount, HighestIdOfVocabularyAndAddedTokens) {
  const std::string vocab = R"({"model":{"vocab":{"a":0,"b":7}}})";
  const std::string added = R"({"added_tokens":[{"id":30,"content":"<s>"}],"model":{"vocab":{"a":0,"b":7}}})";
  EXPECT_EQ(Parse(TinyConfig())->token_count, 40);
  EXPECT_EQ(Parse(TinyConfig(), vocab)->token_count, 8);
  EXPECT_EQ(Parse(TinyConfig(), added)->token_count, 31);
}

}  // namespace
}  // namespace moestro::testing
