// config.json as several writers spell it.
#include <gtest/gtest.h>

#include <cstring>

#include "common/checkpoint/config.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using nlohmann::json;

// `config` means the same as the published one.
void ExpectSame(const json& config, const json& published) {
  const auto spec = Parse(config), expected = Parse(published);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(std::memcmp(&*spec, &*expected, sizeof(*spec)), 0);
}

// As version 5 of the reference library rewrites rope_theta, rope_scaling and torch_dtype.
json InNewSpelling(json config) {
  const json& holder = config.contains("attn_config") ? config["attn_config"] : config;  // of DBRX, of others
  json rope = {{"rope_theta", holder["rope_theta"].get<double>()}, {"rope_type", "default"}};
  if (config.contains("rope_scaling") && config["rope_scaling"].is_object()) {
    rope.update(config["rope_scaling"]);
    if (rope.contains("type")) rope["rope_type"] = rope["type"];
  }
  for (const char* key : {"rope_theta", "rope_scaling", "torch_dtype"}) config.erase(key);
  config["rope_parameters"] = rope;
  config["dtype"] = "bfloat16";
  return config;
}

TEST(ConfigSpellings, NewSpellingOfEveryPublishedModel) {
  for (const std::string& name : checkpoint::PublishedModels()) {
    SCOPED_TRACE(name);
    const json published = Published(name);
    json config = InNewSpelling(published);
    ExpectSame(config, published);
    config["rope_parameters"]["partial_rotary_factor"] = config.value("partial_rotary_factor", 1.0);
    ExpectSame(config, published);
  }
}

TEST(ConfigSpellings, BothSpellingsThatAgree) {
  const json published = Published("deepseek-v3");
  json config = InNewSpelling(published);
  for (const char* key : {"rope_theta", "rope_scaling", "torch_dtype"}) config[key] = published[key];
  ExpectSame(config, published);
}

TEST(ConfigSpellings, ThetaInRopeScaling) {
  const json published = Published("deepseek-v3");
  json config = published;
  config["rope_scaling"]["rope_theta"] = config["rope_theta"];
  config.erase("rope_theta");
  ExpectSame(config, published);
}

TEST(ConfigSpellings, NumberOfExpertsByAnyOfItsNames) {
  for (const auto& [name, own] : {std::pair("deepseek-v3", "n_routed_experts"), std::pair("qwen3-235b", "num_experts"),
                                  std::pair("mixtral-8x7b", "num_local_experts")}) {
    const json published = Published(name);
    for (const char* other : {"n_routed_experts", "num_experts", "num_local_experts"}) {
      SCOPED_TRACE(other);
      json config = published;
      config[other] = config[own];
      ExpectSame(config, published);
      if (std::string_view(other) != own) config[own] = nullptr;
      ExpectSame(config, published);
    }
  }
}

TEST(ConfigSpellings, NullIsAbsent) {
  const json published = Published("qwen3-235b");
  json config = published;
  for (const char* key : {"attention_bias", "rope_scaling", "sliding_window", "tie_word_embeddings", "text_config",
                          "quantization_config", "rope_parameters", "layer_types", "index_topk", "dtype"}) {
    config[key] = nullptr;
  }
  ExpectSame(config, published);
}

TEST(ConfigSpellings, NumbersByAnyNotation) {
  const json published = Published("deepseek-v3");
  json config = published;
  config["hidden_size"] = 7168.0;
  config["rope_theta"] = 1e4;
  config["rope_scaling"]["factor"] = 40.0;
  config["rope_scaling"]["beta_fast"] = 32.0;
  config["rope_scaling"]["original_max_position_embeddings"] = 4096.0;
  config["max_position_embeddings"] = 163840.0;
  ExpectSame(config, published);
}

// As Kimi-K2.5 keeps its text model. Settings of all may stand in either place.
TEST(ConfigSpellings, TextModelOfAWrapper) {
  const json published = Published("kimi-k2");
  json config = {{"model_type", "kimi_k25"}, {"text_config", published}, {"vision_config", {{"hidden_size", 1152}}}};
  ExpectSame(config, published);
  config["quantization_config"] = published["quantization_config"];
  config["tie_word_embeddings"] = false;
  ExpectSame(config, published);
  config["text_config"].erase("quantization_config");
  ExpectSame(config, published);

  config["tie_word_embeddings"] = true;
  ExpectError(Parse(config).status(), kInvalid,
              {"config.json: text_config: tie_word_embeddings: false contradicts the same field outside = true"});
  config.erase("tie_word_embeddings");
  config["quantization_config"] = {{"quant_method", "hqq"}};
  ExpectError(Parse(config).status(), kUnimplemented,
              {"config.json: text_config: quantization_config: quant_method: \"hqq\""});
  config["text_config"]["num_experts_per_tok"] = 1000;
  config.erase("quantization_config");
  ExpectError(Parse(config).status(), kInvalid, {"config.json: text_config: num_experts_per_tok: 1000 is more than"});
  config["text_config"] = "kimi_k2";
  ExpectError(Parse(config).status(), kInvalid, {"config.json: text_config: \"kimi_k2\" is not an object"});
}

struct Contradiction {
  json patch;  // of a published config
  std::string message;
  absl::StatusCode code = kInvalid;
};

TEST(ConfigSpellings, ContradictionsAreErrors) {
  const std::vector<Contradiction> cases = {
      {{{"num_local_experts", 255}}, "num_local_experts: 255 contradicts n_routed_experts = 256"},
      {{{"num_experts", 8}}, "num_experts: 8 contradicts n_routed_experts = 256"},
      {{{"num_experts", "256"}}, "num_experts: \"256\" contradicts n_routed_experts = 256"},
      {{{"dtype", "float32"}}, "dtype: \"float32\" contradicts torch_dtype = \"bfloat16\""},
      {{{"rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "yarn"}}}},
       "rope_parameters: rope_theta: 1000000.0 contradicts rope_theta = 10000"},
      {{{"rope_parameters", {{"rope_theta", 10000}, {"rope_type", "default"}}}}, "contradicts rope_parameters"},
      {{{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 40}}}}, "rope_scaling: ", kInvalid},
      {{{"rope_scaling", {{"rope_theta", 5}}}}, "rope_scaling: rope_theta: 5 contradicts rope_theta = 10000"},
      {{{"partial_rotary_factor", 0.5}, {"rope_scaling", {{"partial_rotary_factor", 1.0}}}},
       "rope_scaling: partial_rotary_factor: 1.0 contradicts partial_rotary_factor = 0.5"},
      {{{"rope_parameters", {{"full_attention", {{"rope_theta", 10000}}}}}},
       "rope_parameters: 'full_attention' has settings of its own",
       kUnimplemented},
      {{{"rope_parameters", 7}}, "rope_parameters: 7 is not an object"},
      {{{"text_config", json::array()}}, "text_config: an array is not an object"},
  };
  for (const Contradiction& test : cases) {
    SCOPED_TRACE(test.message);
    json config = Published("deepseek-v3");
    config.update(test.patch);
    const absl::Status status = Parse(config).status();
    ExpectError(status, test.code, {"config.json: " + test.message.substr(0, test.message.find("contradicts r"))});
    ExpectError(status, test.code, {test.message});
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

// Fields of relatives under the name of a supported family.
TEST(ConfigSpellings, OtherArithmeticIsRefused) {
  const std::vector<Contradiction> cases = {
      {{{"index_topk", 2048}}, "index_topk: not supported"},
      {{{"attention_chunk_size", 8192}}, "attention_chunk_size: not supported"},
      {{{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping: not supported"},
      {{{"final_logit_softcapping", 30.0}}, "final_logit_softcapping: not supported"},
      {{{"swiglu_limit", 7.0}}, "swiglu_limit: not supported"},
      {{{"embedding_multiplier", 12.0}}, "embedding_multiplier: only 1 is supported"},
      {{{"logits_scaling", 8}}, "logits_scaling: only 1 is supported"},
      {{{"mlp_bias", true}}, "mlp_bias: true is not supported"},
      {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor: only 1 is supported"},
      {{{"layer_types", json::array({"full_attention", "sliding_attention"})}}, "layer_types: only full_attention"},
      {{{"layer_types", "full_attention"}}, "layer_types: only full_attention"},
  };
  for (const Contradiction& test : cases) {
    SCOPED_TRACE(test.message);
    json config = Published("deepseek-v3");
    config.update(test.patch);
    ExpectError(Parse(config).status(), kUnimplemented, {test.message});
  }
  json config = Published("qwen3-235b");
  config["layer_types"] = json::array({"full_attention", "full_attention"});
  config["embedding_multiplier"] = 1.0;
  config["mlp_bias"] = false;
  ExpectSame(config, Published("qwen3-235b"));
}

TEST(ConfigSpellings, NeighboursAreRefusedByWhatTheyNeed) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"deepseek_v32", "sparse attention (DSA)"},
      {"deepseek_v4", "compressed sparse attention and hyper-connections"},
      {"glm_moe_dsa", "sparse attention (DSA)"},
      {"glm4_moe_lite", "heads of 192 and 256"},
      {"qwen3_next", "linear attention (gated delta net)"},
      {"qwen3_5_moe_text", "linear attention (gated delta net)"},
      {"kimi_linear", "linear attention (KDA)"},
      {"llama4_text", "attention within chunks"},
      {"mimo_v2_flash", "attention sinks"},
      {"longcat_flash", "two attentions a layer"},
  };
  for (const auto& [type, lacks] : cases) {
    SCOPED_TRACE(type);
    json config = Published("deepseek-v3");
    config["model_type"] = type;
    ExpectError(
        Parse(config).status(), kUnimplemented,
        {std::string("config.json: model_type: \"") + type + "\" is not supported: it needs ", lacks, "(supported: "});
  }
}

}  // namespace
}  // namespace moestro::testing
