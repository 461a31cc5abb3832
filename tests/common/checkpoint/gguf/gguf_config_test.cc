#include "common/checkpoint/gguf/gguf_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/checkpoint/config.h"
#include "common/checkpoint/gguf/gguf_fields.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"
#include "tests/support/gguf_builder.h"

namespace moestro::testing {
namespace {

using nlohmann::json;

// Metadata as text: "block_count=61 rope.freq_base=1e4 attention.causal=true". Digits are integers; with a point or an
// exponent, a float; anything else is text. Keys without a known first word are the architecture's.
using Keys = std::map<std::string, std::string>;

Keys ParseKeys(const std::string& text) {
  Keys keys;
  for (const std::string& pair : std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipWhitespace()))) {
    keys[pair.substr(0, pair.find('='))] = pair.substr(pair.find('=') + 1);
  }
  return keys;
}

struct Model {
  const char* published;
  const char* architecture;
  std::string keys;
  std::vector<std::string> tensors;  // that the settings follow from
  std::vector<float> divisors = {};
};

// What the converters of llama.cpp write for these models.
std::vector<Model> Models() {
  const std::string yarn =
      "rope.scaling.type=yarn rope.scaling.factor=40. rope.scaling.original_context_length=4096 "
      "rope.scaling.yarn_log_multiplier=0.1 ";
  const std::string v3 =
      "vocab_size=129280 block_count=61 context_length=163840 embedding_length=7168 feed_forward_length=18432 "
      "attention.head_count=128 attention.head_count_kv=1 rope.freq_base=10000. attention.key_length=576 "
      "attention.value_length=512 attention.key_length_mla=192 attention.value_length_mla=128 "
      "attention.layer_norm_rms_epsilon=1e-6 expert_used_count=8 expert_count=256 expert_feed_forward_length=2048 "
      "expert_shared_count=1 expert_weights_scale=2.5 expert_weights_norm=true expert_gating_func=2 "
      "leading_dense_block_count=3 attention.q_lora_rank=1536 attention.kv_lora_rank=512 rope.dimension_count=64 ";
  const std::string v2 =
      "vocab_size=102400 block_count=60 context_length=163840 embedding_length=5120 feed_forward_length=12288 "
      "attention.head_count=128 attention.head_count_kv=128 rope.freq_base=10000. attention.key_length=192 "
      "attention.value_length=128 attention.layer_norm_rms_epsilon=1e-6 expert_used_count=6 expert_count=160 "
      "expert_feed_forward_length=1536 expert_shared_count=2 expert_weights_scale=16. leading_dense_block_count=1 "
      "attention.q_lora_rank=1536 attention.kv_lora_rank=512 rope.dimension_count=64 ";
  const std::string lite =
      "vocab_size=102400 block_count=27 context_length=163840 embedding_length=2048 feed_forward_length=10944 "
      "attention.head_count=16 attention.head_count_kv=1 rope.freq_base=10000. attention.key_length=576 "
      "attention.value_length=512 attention.key_length_mla=192 attention.value_length_mla=128 "
      "attention.layer_norm_rms_epsilon=1e-6 expert_used_count=6 expert_count=64 expert_feed_forward_length=1408 "
      "expert_shared_count=2 expert_weights_scale=1. expert_weights_norm=false expert_gating_func=1 "
      "leading_dense_block_count=1 attention.kv_lora_rank=512 rope.dimension_count=64 rope.scaling.type=yarn "
      "rope.scaling.factor=40. rope.scaling.original_context_length=4096 rope.scaling.yarn_log_multiplier=0.0707 ";
  const std::string kimi =
      "vocab_size=163840 block_count=61 context_length=131072 embedding_length=7168 feed_forward_length=18432 "
      "attention.head_count=64 attention.head_count_kv=1 rope.freq_base=50000. attention.key_length=576 "
      "attention.value_length=512 attention.key_length_mla=192 attention.value_length_mla=128 "
      "attention.layer_norm_rms_epsilon=1e-6 expert_used_count=8 expert_count=384 expert_feed_forward_length=2048 "
      "expert_shared_count=1 expert_weights_scale=2.827 expert_weights_norm=true expert_gating_func=2 "
      "leading_dense_block_count=1 attention.q_lora_rank=1536 attention.kv_lora_rank=512 rope.dimension_count=64 "
      "expert_group_count=1 expert_group_used_count=1 rope.scaling.type=yarn rope.scaling.factor=32. "
      "rope.scaling.original_context_length=4096 rope.scaling.yarn_log_multiplier=0.1 tokenizer.ggml.pre=kimi-k2 ";
  const std::string air =
      "vocab_size=151552 block_count=47 nextn_predict_layers=1 context_length=131072 embedding_length=4096 "
      "feed_forward_length=10944 attention.head_count=96 attention.head_count_kv=8 rope.freq_base=1000000. "
      "attention.key_length=128 attention.value_length=128 attention.layer_norm_rms_epsilon=1e-5 "
      "rope.dimension_count=64 expert_used_count=8 expert_count=128 expert_feed_forward_length=1408 "
      "expert_shared_count=1 expert_weights_scale=1. expert_weights_norm=true leading_dense_block_count=1 ";
  const std::string oss =
      "block_count=24 context_length=131072 embedding_length=2880 feed_forward_length=2880 attention.head_count=64 "
      "attention.head_count_kv=8 rope.freq_base=150000. attention.layer_norm_rms_epsilon=1e-5 expert_count=32 "
      "expert_used_count=4 attention.key_length=64 attention.value_length=64 attention.sliding_window=128 "
      "expert_feed_forward_length=2880 rope.scaling.type=yarn rope.scaling.factor=32. "
      "rope.scaling.original_context_length=4096 test.rows=201088 ";
  const std::string llama =
      "vocab_size=128256 block_count=28 context_length=131072 embedding_length=3072 feed_forward_length=8192 "
      "attention.head_count=24 attention.head_count_kv=8 rope.freq_base=500000. attention.key_length=128 "
      "attention.value_length=128 attention.layer_norm_rms_epsilon=1e-5 rope.dimension_count=128 ";
  // torch, as converters compute them: of 64 frequencies, those between 29 and 35 are in part.
  std::vector<float> divisors(64, 1);
  for (size_t i = 0; i < divisors.size(); ++i) {
    const float wavelength = 2 * static_cast<float>(M_PI) / (1 / std::pow(500000.0F, static_cast<float>(2 * i) / 128));
    if (wavelength > 8192) divisors[i] = 32;
    if (wavelength < 2048 || wavelength > 8192) continue;
    const float smooth = (8192 / wavelength - 1) / 3;
    divisors[i] = 1 / ((1 - smooth) / 32 + smooth);
  }
  return {
      {"deepseek-v3", "deepseek2", v3 + yarn, {"output.weight", "blk.3.exp_probs_b.bias"}},
      {"deepseek-v3",
       "deepseek2",
       v3 + yarn + "expert_group_count=8 expert_group_used_count=4 rope.scaling.yarn_beta_fast=32.",
       {"output.weight", "blk.3.exp_probs_b.bias"}},
      {"deepseek-v2", "deepseek2", v2 + yarn, {"output.weight"}},
      {"deepseek-v2", "deepseek2", v2 + yarn + "expert_group_count=8 expert_group_used_count=3", {"output.weight"}},
      {"deepseek-v2-lite", "deepseek2", lite, {"output.weight"}},
      {"kimi-k2", "deepseek2", kimi, {"output.weight"}},
      {"glm-4.5-air", "glm4moe", air, {"output.weight", "blk.0.attn_q.bias", "blk.46.nextn.eh_proj.weight"}},
      {"mixtral-8x7b",
       "llama",
       "vocab_size=32000 block_count=32 context_length=32768 embedding_length=4096 feed_forward_length=14336 "
       "attention.head_count=32 attention.head_count_kv=8 attention.layer_norm_rms_epsilon=1e-5 "
       "rope.freq_base=1000000. rope.dimension_count=128 expert_count=8 expert_used_count=2",
       {"output.weight"}},
      {"llama-3.2-3b", "llama", llama, {}, divisors},
      {"qwen2-57b",
       "qwen2moe",
       "block_count=28 context_length=131072 embedding_length=3584 feed_forward_length=18944 attention.head_count=28 "
       "attention.head_count_kv=4 attention.layer_norm_rms_epsilon=1e-6 rope.freq_base=1000000. expert_count=64 "
       "expert_used_count=8 expert_feed_forward_length=2560 expert_shared_feed_forward_length=20480 "
       "test.rows=151936",
       {"output.weight", "blk.0.attn_q.bias"}},
      {"qwen3-235b",
       "qwen3moe",
       "block_count=94 context_length=40960 embedding_length=4096 feed_forward_length=12288 attention.head_count=64 "
       "attention.head_count_kv=4 attention.layer_norm_rms_epsilon=1e-6 rope.freq_base=1000000. expert_count=128 "
       "expert_used_count=8 expert_feed_forward_length=1536 attention.key_length=128 attention.value_length=128 "
       "test.rows=151936",
       {"output.weight"}},
      {"gpt-oss-20b", "gpt-oss", oss, {"output.weight", "blk.0.attn_q.bias"}},
      {"gpt-oss-20b",
       "gpt-oss",
       oss + "rope.scaling.yarn_beta_fast=32. rope.scaling.yarn_beta_slow=1. attention.sliding_window_pattern=2",
       {"output.weight", "blk.0.attn_q.bias"}},
      {"minimax-m2",
       "minimax-m2",
       "block_count=62 context_length=196608 embedding_length=3072 feed_forward_length=1536 attention.head_count=48 "
       "attention.head_count_kv=8 rope.freq_base=5000000. attention.layer_norm_rms_epsilon=1e-6 expert_count=256 "
       "expert_used_count=8 expert_gating_func=2 attention.key_length=128 attention.value_length=128 "
       "expert_feed_forward_length=1536 rope.dimension_count=64 test.rows=200064",
       {"output.weight"}},
      {"dbrx",
       "dbrx",
       "block_count=40 context_length=32768 embedding_length=6144 feed_forward_length=10752 attention.head_count=48 "
       "attention.head_count_kv=8 rope.freq_base=500000. attention.clamp_kqv=8. attention.layer_norm_epsilon=1e-5 "
       "expert_count=16 expert_used_count=4 test.rows=100352",
       {"output.weight"}},
  };
}

class GgufConfig : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Config(const Model& model, const Keys& keys) {
    GgufBuilder builder;
    builder.Text("general.architecture", model.architecture);
    uint64_t rows = 1;
    for (const auto& [name, value] : keys) {
      const bool own = name.starts_with("tokenizer.") || name.starts_with("test.");
      const std::string key = own ? name : absl::StrCat(model.architecture, ".", name);
      if (name == "test.rows" || (name == "vocab_size" && !keys.contains("test.rows"))) rows = std::stoul(value);
      if (value.find_first_not_of("0123456789") == std::string::npos) {
        builder.Integer(key, static_cast<uint32_t>(std::stoul(value)));
      } else if (value == "true" || value == "false") {
        builder.Flag(key, value == "true");
      } else if (value.find_first_not_of("-+.e0123456789") == std::string::npos) {
        builder.Float(key, std::stof(value));
      } else {
        builder.Text(key, value);
      }
    }
    builder.Tensor("token_embd.weight", kTypeQ4_0, {32, rows}, std::string(18 * rows, '\0'));
    for (const std::string& tensor : model.tensors) builder.Tensor(tensor, kTypeF32, {1}, "abcd");
    if (!model.divisors.empty()) {
      std::string data(model.divisors.size() * sizeof(float), '\0');
      std::memcpy(data.data(), model.divisors.data(), data.size());
      builder.Tensor("rope_freqs.weight", kTypeF32, {model.divisors.size()}, data);
    }
    MOE_ASSIGN_OR_RETURN(const checkpoint::GgufModel opened,
                         checkpoint::OpenGguf(dir_.Write("model.gguf", builder.Build())));
    return checkpoint::GgufConfig(opened);
  }

  // The error after one key was changed, or removed for "".
  absl::Status Error(const Model& model, const std::string& key, const std::string& value) {
    Keys keys = ParseKeys(model.keys);
    keys.erase(key);
    if (!value.empty()) keys[key] = value;
    return Config(model, keys).status();
  }

  TempDir dir_;
};

const Model& Find(const std::vector<Model>& models, std::string_view published) {
  return *std::ranges::find(models, published, &Model::published);
}

TEST_F(GgufConfig, IsThePublishedOneInEveryNumber) {
  for (const Model& model : Models()) {
    SCOPED_TRACE(model.published);
    const auto config = Config(model, ParseKeys(model.keys));
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
  for (const Model& model : Models()) {
    const weights::ModelSpec published = checkpoint::PublishedModel(model.published);
    for (const auto& [key, value] : ParseKeys(model.keys)) {
      if (std::ranges::find(may_lack, key) != may_lack.end()) continue;
      Keys keys = ParseKeys(model.keys);
      keys.erase(key);
      const auto config = Config(model, keys);
      const bool latent = model.architecture == std::string("deepseek2");
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
  const std::vector<Model> models = Models();
  const Model& mixtral = Find(models, "mixtral-8x7b");
  const Model& qwen = Find(models, "qwen3-235b");
  const Model& v3 = Find(models, "deepseek-v3");
  const Model& v2 = Find(models, "deepseek-v2");
  const Model& glm = Find(models, "glm-4.5-air");
  const Model& dbrx = Find(models, "dbrx");
  const Model& oss = Find(models, "gpt-oss-20b");
  const Model& minimax = Find(models, "minimax-m2");
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
  Model other = mixtral;
  other.architecture = "gemma3";
  ExpectError(
      Error(other, "block_count", "1"), kUnimplemented,
      {"'general.architecture': 'gemma3' is not supported (supported: dbrx, deepseek2, glm4moe, gpt-oss, llama"});
}

TEST_F(GgufConfig, RefusesGlmFlash) {
  Model flash = Find(Models(), "deepseek-v3");
  Keys keys = ParseKeys(flash.keys);
  keys["block_count"] = "47";
  keys["vocab_size"] = "154880";
  ExpectError(Config(flash, keys).status(), kUnimplemented, {"GLM-4.7-Flash"});
}

TEST_F(GgufConfig, DivisorsOfTheRotation) {
  Model llama = Find(Models(), "llama-3.2-3b");
  const Keys keys = ParseKeys(llama.keys);
  llama.divisors[30] *= 1.01F;
  ExpectError(Config(llama, keys).status(), kUnimplemented, {"'rope_freqs.weight': factor 30 is", "Llama 3's rule"});
  llama.divisors.assign(64, 1);
  auto config = Config(llama, keys);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(json::parse(*config).contains("rope_scaling"));
  llama.divisors.assign(63, 1);
  ExpectError(Config(llama, keys).status(), kUnimplemented, {"'rope_freqs.weight': is not F32 for half a head"});
  Model qwen = Find(Models(), "qwen3-235b");
  qwen.divisors.assign(64, 1);
  ExpectError(Config(qwen, ParseKeys(qwen.keys)).status(), kUnimplemented, {"is supported for llama only"});
}

TEST_F(GgufConfig, YarnOfGroupedQueries) {
  const Model qwen = Find(Models(), "qwen3-235b");
  Keys keys = ParseKeys(qwen.keys);
  keys.merge(
      ParseKeys("rope.scaling.type=yarn rope.scaling.factor=4. rope.scaling.original_context_length=32768 "
                "rope.scaling.attn_factor=1."));
  const auto config = Config(qwen, keys);
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
