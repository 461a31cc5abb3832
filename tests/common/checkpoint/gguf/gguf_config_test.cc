#include "common/checkpoint/gguf/gguf_config.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "common/checkpoint/config.h"
#include "common/checkpoint/gguf/gguf_fields.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"
#include "tests/support/families.h"

namespace moestro::testing {
namespace {

using nlohmann::json;

class GgufConfig : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Config(const Family& family) {
    GgufBuilder builder;
    AddMetadata(family, &builder);
    const char* const rows_key = family.keys.contains("test.rows") ? "test.rows" : "vocab_size";
    const uint64_t rows = family.keys.contains(rows_key) ? std::stoul(family.keys.at(rows_key)) : 1;
    builder.Tensor("token_embd.weight", kTypeQ4_0, {32, rows}, std::string(18 * rows, '\0'));
    for (const std::string& tensor : family.tensors) builder.Tensor(tensor, kTypeF32, {1}, "abcd");
    MOE_ASSIGN_OR_RETURN(const checkpoint::GgufModel opened,
                         checkpoint::OpenGguf(dir_.Write("model.gguf", builder.Build())));
    return checkpoint::GgufConfig(opened);
  }

  // The error after one key was changed, or removed for "".
  absl::Status Error(Family family, const std::string& key, const std::string& value) {
    family.keys.erase(key);
    if (!value.empty()) family.keys[key] = value;
    return Config(family).status();
  }

  TempDir dir_;
};

TEST_F(GgufConfig, IsThePublishedOneInEveryNumber) {
  for (const Family& model : PublishedFamilies()) {
    SCOPED_TRACE(model.published);
    const auto config = Config(model);
    ASSERT_TRUE(config.ok()) << config.status();
    const auto spec = checkpoint::ParseModelSpec(*config, "");
    ASSERT_TRUE(spec.ok()) << spec.status() << *config;
    const weights::ModelSpec expected = checkpoint::PublishedModel(model.published);
    EXPECT_EQ(std::memcmp(&*spec, &expected, sizeof expected), 0) << *config;
  }
}

TEST_F(GgufConfig, EveryKeyCountsOrHasAFallback) {
  // What files of these models may lack without a change of meaning.
  const std::vector<std::string> may_lack = {
      "vocab_size",           "attention.value_length",      "test.rows",
      "rope.dimension_count", "tokenizer.ggml.pre",          "expert_weights_norm",
      "expert_gating_func",   "attention.clamp_kqv",         "rope.scaling.yarn_beta_fast",
      "feed_forward_length",  "rope.scaling.yarn_beta_slow", "attention.sliding_window_pattern"};
  for (const Family& model : PublishedFamilies()) {
    const weights::ModelSpec published = checkpoint::PublishedModel(model.published);
    for (const auto& [key, value] : model.keys) {
      if (std::ranges::find(may_lack, key) != may_lack.end()) continue;
      Family lacking = model;
      lacking.keys.erase(key);
      const auto config = Config(lacking);
      const bool latent = model.architecture == "deepseek2";
      if (latent && key == "attention.head_count_kv") continue;  // says what its dialect says
      if (!config.ok()) {
        EXPECT_THAT(std::string(config.status().message()), ::testing::HasSubstr("metadata '")) << key;
        continue;
      }
      const auto spec = checkpoint::ParseModelSpec(*config, "");
      if (key.starts_with("expert_group") || key == "attention.key_length" || key == "expert_weights_scale") continue;
      EXPECT_FALSE(spec.ok() && std::memcmp(&*spec, &published, sizeof published) == 0)
          << model.published << ": " << key << " has no effect";
    }
  }
}

TEST_F(GgufConfig, RefusesByKey) {
  const Family mixtral = PublishedFamily("mixtral-8x7b");
  const Family qwen = PublishedFamily("qwen3-235b");
  const Family v3 = PublishedFamily("deepseek-v3");
  const Family v2 = PublishedFamily("deepseek-v2");
  const Family glm = PublishedFamily("glm-4.5-air");
  const Family dbrx = PublishedFamily("dbrx");
  const Family oss = PublishedFamily("gpt-oss-20b");
  const Family minimax = PublishedFamily("minimax-m2");
  ExpectError(Error(mixtral, "block_count", ""), kInvalid, {"model.gguf: metadata 'llama.block_count': missing"});
  ExpectError(Error(mixtral, "block_count", "0"), kInvalid, {"'llama.block_count': 0 is not from 1 to 1024"});
  ExpectError(Error(mixtral, "block_count", "32."), kInvalid, {"'llama.block_count': is a float, not an integer"});
  ExpectError(Error(mixtral, "rope.freq_base", ""), kInvalid, {"'llama.rope.freq_base': missing"});
  ExpectError(Error(mixtral, "rope.freq_base", "much"), kInvalid, {"is text, not a number"});
  ExpectError(Error(mixtral, "test.rows", "31999"), kInvalid, {"'llama.vocab_size': contradicts the 31999 rows"});
  ExpectError(Error(mixtral, "rope.dimension_count", "64"), kUnimplemented, {"'llama.rope.dimension_count': 64"});
  ExpectError(Error(mixtral, "rope.scaling.type", "longrope"), kUnimplemented, {"'longrope' is not supported"});
  ExpectError(Error(mixtral, "rope.scaling.factor", "2."), kUnimplemented, {"'linear' is not supported"});
  ExpectError(Error(mixtral, "attention.sliding_window", "4096"), kUnimplemented, {"attention within a window"});
  ExpectError(Error(mixtral, "attention.value_length", "64"), kUnimplemented, {"'llama.attention.value_length'"});
  ExpectError(Error(mixtral, "logit_scale", "2."), kUnimplemented, {"'llama.logit_scale': only 1"});
  ExpectError(Error(mixtral, "expert_gating_func", "2"), kUnimplemented, {"'llama.expert_gating_func': 2"});
  ExpectError(Error(qwen, "expert_weights_norm", "false"), kUnimplemented, {"'qwen3moe.expert_weights_norm'"});
  ExpectError(Error(qwen, "expert_feed_forward_length", ""), kInvalid, {"'qwen3moe.expert_feed_forward_length': miss"});
  ExpectError(Error(v3, "rope.scaling.yarn_log_multiplier", ""), kInvalid, {"yarn_log_multiplier': missing"});
  ExpectError(Error(v3, "attention.key_length", "192"), kInvalid, {"'deepseek2.attention.key_length': contradicts"});
  ExpectError(Error(v3, "attention.head_count_kv", "128"), kInvalid, {"head_count_kv': 128, not 1"});
  ExpectError(Error(v2, "attention.head_count_kv", "1"), kInvalid, {"head_count_kv': 1, not 128"});
  ExpectError(Error(v3, "expert_gating_func", "1"), kInvalid, {"'deepseek2.expert_gating_func': says softmax"});
  ExpectError(Error(v3, "expert_gating_func", "4"), kUnimplemented, {"'deepseek2.expert_gating_func': 4"});
  ExpectError(Error(v3, "rope.scaling.yarn_ext_factor", "0."), kUnimplemented, {"yarn_ext_factor': only 1"});
  ExpectError(Error(v3, "expert_group_count", "8"), kInvalid, {"'deepseek2.expert_group_used_count': missing"});
  ExpectError(Error(v2, "expert_weights_norm", "true"), kUnimplemented, {"for a softmax router"});
  ExpectError(Error(glm, "nextn_predict_layers", ""), kInvalid, {"'glm4moe.nextn_predict_layers': missing"});
  ExpectError(Error(glm, "expert_gating_func", "1"), kUnimplemented, {"'glm4moe.expert_gating_func': 1"});
  ExpectError(Error(dbrx, "attention.layer_norm_epsilon", "1e-6"), kUnimplemented, {"layer_norm_epsilon': only 1e-05"});
  ExpectError(Error(oss, "attention.sliding_window", ""), kInvalid, {"'gpt-oss.attention.sliding_window': missing"});
  ExpectError(Error(oss, "attention.sliding_window_pattern", "4"), kUnimplemented, {"only 2 is supported: a window"});
  ExpectError(Error(oss, "rope.freq_base_swa", "10000."), kUnimplemented, {"'gpt-oss.rope.freq_base_swa': only"});
  ExpectError(Error(oss, "expert_gating_func", "1"), kUnimplemented, {"'gpt-oss.expert_gating_func': 1"});
  ExpectError(Error(oss, "rope.scaling.yarn_attn_factor", "2."), kUnimplemented, {"yarn_attn_factor': only 1"});
  ExpectError(Error(minimax, "expert_gating_func", "1"), kUnimplemented, {"'minimax-m2.expert_gating_func': 1"});
  ExpectError(Error(minimax, "expert_weights_scale", "2."), kUnimplemented, {"expert_weights_scale': only 1"});
  ExpectError(Error(minimax, "attention.sliding_window", "4096"), kUnimplemented, {"attention within a window"});
  Family other = mixtral;
  other.architecture = "gemma3";
  ExpectError(
      Error(other, "block_count", "1"), kUnimplemented,
      {"'general.architecture': 'gemma3' is not supported (supported: dbrx, deepseek2, glm4moe, gpt-oss, llama"});
}

TEST_F(GgufConfig, RefusesGlmFlash) {
  Family flash = PublishedFamily("deepseek-v3");
  flash.keys["block_count"] = "47";
  flash.keys["vocab_size"] = "154880";
  ExpectError(Config(flash).status(), kUnimplemented, {"GLM-4.7-Flash"});
}

TEST_F(GgufConfig, DivisorsOfTheRotation) {
  Family llama = PublishedFamily("llama-3.2-3b");
  llama.divisors[30] *= 1.01F;
  ExpectError(Config(llama).status(), kUnimplemented, {"'rope_freqs.weight': factor 30 is", "Llama 3's rule"});
  llama.divisors.assign(64, 1);
  auto config = Config(llama);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(json::parse(*config).contains("rope_scaling"));
  llama.divisors.assign(63, 1);
  ExpectError(Config(llama).status(), kUnimplemented, {"'rope_freqs.weight': is not F32 for half a head"});
  Family qwen = PublishedFamily("qwen3-235b");
  qwen.divisors.assign(64, 1);
  ExpectError(Config(qwen).status(), kUnimplemented, {"is supported for llama only"});
}

TEST_F(GgufConfig, YarnOfGroupedQueries) {
  Family qwen = PublishedFamily("qwen3-235b");
  qwen.keys.merge(
      Keys("rope.scaling.type=yarn rope.scaling.factor=4. rope.scaling.original_context_length=32768 "
           "rope.scaling.attn_factor=1."));
  const auto config = Config(qwen);
  ASSERT_TRUE(config.ok()) << config.status();
  const json scaling = json::parse(*config)["rope_scaling"];
  EXPECT_EQ(scaling, json({{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 32768}}));
}

TEST(GgufFields, FloatsAreTheDecimalsThatTheyWereWrittenAs) {
  for (const double value : {1e-6, 1e-5, 2.827, 0.0707, 10000.0, 1e6, 0.1, 2.5, 0.0}) {
    EXPECT_EQ(checkpoint::Decimal(static_cast<float>(value)), value);
  }
  EXPECT_EQ(checkpoint::TenTimesDecimal(0.0707F), 0.707);
  EXPECT_EQ(checkpoint::TenTimesDecimal(0.1F), 1);
  EXPECT_EQ(checkpoint::TenTimesDecimal(1e-6F), 1e-5);
  EXPECT_EQ(checkpoint::TenTimesDecimal(0), 0);
}

TEST_F(GgufConfig, ValuesOfLayersMustBeAlike) {
  absl::Status status;
  checkpoint::GgufMetadata metadata("f");
  metadata.Insert("a.same", std::vector<int64_t>{7, 7});
  metadata.Insert("a.other", std::vector<int64_t>{7, 8});
  checkpoint::GgufFields fields(metadata, "a", &status);
  EXPECT_EQ(fields.Int("same", 1, 9), 7);
  EXPECT_TRUE(status.ok()) << status;
  fields.Int("other", 1, 9);
  ExpectError(status, kUnimplemented, {"'a.other': layers that differ"});
}

}  // namespace
}  // namespace moestro::testing
