#include "common/checkpoint/quantization.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using checkpoint::ByInput;
using checkpoint::Int4Groups;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

absl::StatusOr<checkpoint::Quantization> ParseQuantized(const json& quantization) {
  return checkpoint::ParseQuantization(json({{"quantization_config", quantization}}).dump());
}

// As Kimi-K2-Thinking has it.
json Kimi() {
  return json::parse(R"({
    "config_groups": {"group_0": {
      "input_activations": null, "output_activations": null, "targets": ["Linear"],
      "weights": {"actorder": null, "block_structure": null, "dynamic": false, "group_size": 32, "num_bits": 4,
                  "observer": "minmax", "observer_kwargs": {}, "strategy": "group", "symmetric": true, "type": "int"}}},
    "format": "pack-quantized", "global_compression_ratio": null,
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
    "kv_cache_scheme": null, "quant_method": "compressed-tensors", "quantization_status": "compressed"})");
}

TEST(QuantizationConfig, None) {
  const auto none = checkpoint::ParseQuantization(R"({"quantization_config": null})");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->fp8);
  EXPECT_FALSE(none->blocks);
  EXPECT_THAT(none->int4, IsEmpty());
  EXPECT_FALSE(none->packed_mxfp4);
  EXPECT_EQ(none->by_input, ByInput::kNone);
}

TEST(QuantizationConfig, Fp8AndMxfp4) {
  const auto fp8 = ParseQuantized({{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}});
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  EXPECT_TRUE(fp8->fp8);
  const auto mxfp4 =
      ParseQuantized({{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"model.layers.*.self_attn"}}});
  ASSERT_TRUE(mxfp4.ok()) << mxfp4.status();
  EXPECT_TRUE(mxfp4->blocks);
  EXPECT_FALSE(mxfp4->fp8);
}

TEST(QuantizationConfig, CompressedTensors) {
  json config = Kimi();
  auto parsed = ParseQuantized(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->int4, ElementsAre(Int4Groups{32, false}));
  EXPECT_EQ(parsed->experts(), DType::kI4G32);
  json& weights = config["config_groups"]["group_0"]["weights"];
  for (const int64_t size : {128, 64, 96, 256}) {
    weights["group_size"] = size;
    EXPECT_THAT(ParseQuantized(config)->int4, ElementsAre(Int4Groups{size, false}));
  }
  weights["symmetric"] = false;
  EXPECT_THAT(ParseQuantized(config)->int4, ElementsAre(Int4Groups{256, true}));
  EXPECT_EQ(ParseQuantized(config)->experts(), DType::kI4Z128);
  weights["strategy"] = "channel";
  weights["group_size"] = nullptr;
  EXPECT_THAT(ParseQuantized(config)->int4, ElementsAre(Int4Groups{0, true}));
  EXPECT_EQ(ParseQuantized(config)->experts(), DType::kI4Z128);
  weights = Kimi()["config_groups"]["group_0"]["weights"];
  weights["group_size"] = 128;
  for (const json& order : {json("weight"), json("static"), json(false)}) {
    config["config_groups"]["group_0"]["weights"]["actorder"] = order;
    EXPECT_TRUE(ParseQuantized(config).ok()) << order;
  }
  config["config_groups"]["group_1"] = Kimi()["config_groups"]["group_0"];
  EXPECT_THAT(ParseQuantized(config)->int4, ElementsAre(Int4Groups{128, false}, Int4Groups{32, false}));
  config["format"] = "mixed-precision";
  config["config_groups"]["group_0"]["format"] = "pack-quantized";
  config["config_groups"]["group_1"]["format"] = "mxfp4-pack-quantized";
  config["config_groups"]["group_1"]["weights"]["type"] = "float";
  config["transform_config"] = config["sparsity_config"] = json::object();
  parsed = ParseQuantized(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->int4, ElementsAre(Int4Groups{128, false}));
  EXPECT_TRUE(parsed->packed_mxfp4);
}

// As AutoAWQ and transformers write them.
TEST(QuantizationConfig, Awq) {
  json config = {
      {"bits", 4},         {"group_size", 128}, {"modules_to_not_convert", {"gate"}}, {"quant_method", "awq"},
      {"version", "gemm"}, {"zero_point", true}};
  const auto parsed = ParseQuantized(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->by_input, ByInput::kAwq);
  EXPECT_THAT(parsed->int4, ElementsAre(Int4Groups{128, true}));
  EXPECT_EQ(parsed->experts(), DType::kI4Z128);
  config["group_size"] = -1;
  EXPECT_THAT(ParseQuantized(config)->int4, ElementsAre(Int4Groups{0, true}));
  config["group_size"] = 64;
  config.erase("version");
  EXPECT_EQ(ParseQuantized(config)->experts(), DType::kI4Z32);
  const auto refuse = [&](const char* key, const json& value, absl::StatusCode code, const std::string& message) {
    json other = config;
    other[key] = value;
    ExpectError(ParseQuantized(other).status(), code,
                {std::string("config.json: quantization_config: ") + key + ": " + message});
  };
  refuse("version", "gemv", kUnimplemented, "\"gemv\" is not supported (supported: gemm");
  refuse("backend", "llm-awq", kUnimplemented, "\"llm-awq\" is not supported; get the model in version gemm");
  refuse("bits", 8, kUnimplemented, "8 is not supported (supported: 4)");
  refuse("bits", nullptr, kInvalid, "missing");
  refuse("group_size", 16, kUnimplemented, "16 is not supported (supported: multiples of 32)");
  refuse("zero_point", false, kUnimplemented, "false is not supported");
}

TEST(QuantizationConfig, Gptq) {
  json config = {{"bits", 4},        {"checkpoint_format", "gptq"}, {"desc_act", false}, {"group_size", 128},
                 {"lm_head", false}, {"quant_method", "gptq"},      {"sym", true},       {"true_sequential", true}};
  auto parsed = ParseQuantized(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->by_input, ByInput::kGptq);
  EXPECT_FALSE(parsed->ordered);
  EXPECT_THAT(parsed->int4, ElementsAre(Int4Groups{128, true}));
  config["checkpoint_format"] = "gptq_v2";
  config["desc_act"] = true;
  parsed = ParseQuantized(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->by_input, ByInput::kGptqV2);
  EXPECT_TRUE(parsed->ordered);
  config.erase("checkpoint_format");
  EXPECT_EQ(ParseQuantized(config)->by_input, ByInput::kGptq);
  const auto refuse = [&](const char* key, const json& value, const std::string& message) {
    json other = config;
    other[key] = value;
    ExpectError(ParseQuantized(other).status(), kUnimplemented,
                {std::string("config.json: quantization_config: ") + key + ": " + message});
  };
  refuse("checkpoint_format", "marlin", "\"marlin\" is not supported (supported: gptq, gptq_v2)");
  refuse("is_marlin_format", true, "true is not supported");
  refuse("bits", 3, "3 is not supported (supported: 4)");
  refuse("group_size", 100, "100 is not supported");
}

// AutoRound's own name over the packing of two others.
TEST(QuantizationConfig, AutoRound) {
  json config = {{"quant_method", "auto-round"},
                 {"packing_format", "auto_round:auto_gptq"},
                 {"bits", 4},
                 {"group_size", 128},
                 {"sym", true},
                 {"data_type", "int"},
                 {"autoround_version", "0.5.1"}};
  auto parsed = ParseQuantized(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->by_input, ByInput::kGptq);
  EXPECT_THAT(parsed->int4, ElementsAre(Int4Groups{128, true}));
  config["packing_format"] = "auto_round:auto_awq";
  parsed = ParseQuantized(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->by_input, ByInput::kAwq);
  config["packing_format"] = "auto_round:exllamav2";
  ExpectError(ParseQuantized(config).status(), kUnimplemented,
              {"config.json: quantization_config: packing_format: 'auto_round:exllamav2' is not supported (supported: "
               "auto_round:auto_gptq, auto_round:auto_awq); export the model as auto_awq or auto_gptq"});
  config.erase("packing_format");
  ExpectError(ParseQuantized(config).status(), kUnimplemented, {"packing_format: missing, which is not supported"});
}

TEST(QuantizationConfig, MethodsThatNeedMoreThanTheFormatsHave) {
  ExpectError(ParseQuantized({{"quant_method", "bitsandbytes"}}).status(), kUnimplemented,
              {"\"bitsandbytes\"", "tables"});
  ExpectError(
      ParseQuantized({{"quant_method", "hqq"}}).status(), kUnimplemented,
      {"\"hqq\" is not supported (supported: fp8, compressed-tensors, awq, gptq, auto-round, mxfp4, w8a8_int8)"});
}

TEST(QuantizationConfig, RefusesOtherGroups) {
  const auto refuse = [](const std::function<void(json&)>& change, absl::StatusCode code, const std::string& message) {
    json config = Kimi();
    change(config);
    ExpectError(ParseQuantized(config).status(), code, {"config.json: quantization_config: " + message});
  };
  const auto weights = [&](const char* key, const json& value, absl::StatusCode code, const std::string& message) {
    refuse([&](json& config) { config["config_groups"]["group_0"]["weights"][key] = value; }, code,
           std::string("config_groups: group_0: weights: ") + key + ": " + message);
  };
  weights("num_bits", 8, kUnimplemented, "8 is not supported (supported: 4)");
  weights("num_bits", nullptr, kInvalid, "missing");
  weights("type", "float", kUnimplemented, "\"float\" is not supported (supported: int)");
  weights("strategy", "tensor", kUnimplemented, "\"tensor\" is not supported (supported: group, channel)");
  weights("group_size", 48, kUnimplemented, "48 is not supported (supported: multiples of 32)");
  weights("group_size", -1, kUnimplemented, "-1 is not supported");
  weights("group_size", nullptr, kInvalid, "missing");
  weights("group_size", "32", kInvalid, "");
  weights("dynamic", true, kUnimplemented, "true is not supported");
  weights("actorder", "group", kUnimplemented, "\"group\" is not supported: groups must be neighbours");
  weights("actorder", true, kUnimplemented, "true is not supported");
  refuse(
      [](json& config) {
        config["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}};
      },
      kUnimplemented, "config_groups: group_0: input_activations: quantisation of activations is not supported");
  refuse([](json& config) { config["config_groups"]["group_0"].erase("weights"); }, kInvalid,
         "config_groups: group_0: weights: missing");
  refuse(
      [](json& config) {
        config["config_groups"] = {{"W4A16", {"Linear"}}};
      },
      kInvalid, "config_groups: W4A16: an array is not an object");
  refuse([](json& config) { config["config_groups"] = json::object(); }, kInvalid, "config_groups: missing or empty");
  refuse(
      [](json& config) {
        config["config_groups"] = {{"a\nb", json::object()}};
      },
      kInvalid, "config_groups: 'a\\nb' is not the name of a group");
  for (const char* const format : {"float-quantized", "nvfp4-pack-quantized", "marlin-24"}) {
    refuse([&](json& config) { config["format"] = format; }, kUnimplemented,
           std::string("config_groups: group_0: format: \"") + format + "\" is not supported");
  }
  refuse(
      [](json& config) {
        config["kv_cache_scheme"] = {{"num_bits", 8}};
      },
      kUnimplemented, "kv_cache_scheme: a quantised KV cache is not supported");
  refuse(
      [](json& config) {
        config["transform_config"] = {{"config_groups", {{"R1", json::object()}}}};
      },
      kUnimplemented, "transform_config: a rotation of weights or activations");
  refuse(
      [](json& config) {
        config["sparsity_config"] = {{"format", "sparse-24-bitmask"}};
      },
      kUnimplemented, "sparsity_config: format: \"sparse-24-bitmask\" is not supported");
  refuse([](json& config) { config["quantization_status"] = "calibration"; }, kUnimplemented,
         "quantization_status: \"calibration\" is not supported (supported: compressed, frozen)");
}

// As llm-compressor writes W8A8.
json Int8() {
  return json::parse(R"({
    "config_groups": {"group_0": {
      "input_activations": {"actorder": null, "dynamic": true, "num_bits": 8, "observer": null, "strategy": "token",
                            "symmetric": true, "type": "int"},
      "output_activations": null, "targets": ["Linear"],
      "weights": {"actorder": null, "dynamic": false, "group_size": null, "num_bits": 8, "observer": "minmax",
                  "strategy": "channel", "symmetric": true, "type": "int"}}},
    "format": "int-quantized", "ignore": ["lm_head", "re:.*kv_b_proj"], "kv_cache_scheme": null,
    "quant_method": "compressed-tensors", "quantization_status": "compressed"})");
}

// As models that were compressed in memory were saved, also under the first names of the method and of its settings.
TEST(QuantizationConfig, OlderNames) {
  json config = Int8();
  config["quantization_status"] = "frozen";
  EXPECT_TRUE(ParseQuantized(config)->int8);
  config["quant_method"] = "compressed_tensors";
  EXPECT_TRUE(ParseQuantized(config)->int8);
  auto parsed = checkpoint::ParseQuantization(json({{"compression_config", config}}).dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->int8);
  parsed =
      checkpoint::ParseQuantization(json({{"compression_config", config}, {"quantization_config", config}}).dump());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  parsed =
      checkpoint::ParseQuantization(json({{"compression_config", config}, {"quantization_config", Int8()}}).dump());
  ExpectError(parsed.status(), kInvalid,
              {"config.json: compression_config: an object contradicts quantization_config = an object"});
}

TEST(QuantizationConfig, Int8) {
  for (const json& config : {Int8(), json({{"quant_method", "w8a8_int8"}}),
                             json({{"quant_method", "w8a8_int8"}, {"activation_scheme", "dynamic"}})}) {
    const auto parsed = ParseQuantized(config);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_TRUE(parsed->int8);
    EXPECT_FALSE(parsed->fp8);
    EXPECT_THAT(parsed->int4, IsEmpty());
  }
  EXPECT_FALSE(ParseQuantized(Kimi())->int8);
  json mixed = Int8();
  mixed["format"] = "mixed-precision";
  mixed["config_groups"]["group_0"]["format"] = "int-quantized";
  mixed["config_groups"]["group_1"] = Kimi()["config_groups"]["group_0"];
  mixed["config_groups"]["group_1"]["format"] = "pack-quantized";
  const auto parsed = ParseQuantized(mixed);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->int8);
  EXPECT_THAT(parsed->int4, ElementsAre(Int4Groups{32, false}));
}

TEST(QuantizationConfig, RefusesOtherInt8) {
  const auto refuse = [](const char* part, const char* key, const json& value, const std::string& message) {
    json config = Int8();
    config["config_groups"]["group_0"][part][key] = value;
    ExpectError(ParseQuantized(config).status(), kUnimplemented,
                {std::string("config.json: quantization_config: config_groups: group_0: ") + part + ": " + key + ": ",
                 message});
  };
  for (const char* const part : {"weights", "input_activations"}) {
    refuse(part, "num_bits", 4, "4 is not supported (supported: 8)");
    refuse(part, "type", "float", "\"float\" is not supported (supported: int)");
    refuse(part, "symmetric", false, "zero points are not supported");
    refuse(part, "strategy", "tensor", "\"tensor\" is not supported (supported: ");
  }
  refuse("weights", "dynamic", true, "true is not supported");
  refuse("weights", "actorder", "group", "groups must be neighbours");
  refuse("input_activations", "dynamic", false, "static scales are not supported; quantise the model with dynamic");
  for (const json& absent : {json(), json::object()}) {
    json config = Int8();
    config["config_groups"]["group_0"]["input_activations"] = absent;
    ExpectError(ParseQuantized(config).status(), kUnimplemented,
                {"group_0: input_activations: weights of 8 bits without activations of 8 bits are not supported; get "
                 "the model as W8A8"});
  }
  ExpectError(ParseQuantized({{"quant_method", "w8a8_int8"}, {"activation_scheme", "static"}}).status(), kUnimplemented,
              {"activation_scheme: \"static\" is not supported (supported: dynamic)"});
}

}  // namespace
}  // namespace moestro::testing
