#include "common/checkpoint/quantization.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

absl::StatusOr<checkpoint::Quantization> Parse(const json& quantization) {
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
  EXPECT_THAT(none->packed, IsEmpty());
}

TEST(QuantizationConfig, Fp8AndMxfp4) {
  const auto fp8 = Parse({{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}});
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  EXPECT_TRUE(fp8->fp8);
  const auto mxfp4 = Parse({{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"model.layers.*.self_attn"}}});
  ASSERT_TRUE(mxfp4.ok()) << mxfp4.status();
  EXPECT_TRUE(mxfp4->blocks);
  EXPECT_FALSE(mxfp4->fp8);
}

TEST(QuantizationConfig, CompressedTensors) {
  json config = Kimi();
  auto parsed = Parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->packed, ElementsAre(DType::kI4G32));
  config["config_groups"]["group_0"]["weights"]["group_size"] = 128;
  EXPECT_THAT(Parse(config)->packed, ElementsAre(DType::kI4G128));
  for (const json& order : {json("weight"), json("static"), json(false)}) {
    config["config_groups"]["group_0"]["weights"]["actorder"] = order;
    EXPECT_TRUE(Parse(config).ok()) << order;
  }
  config["config_groups"]["group_1"] = Kimi()["config_groups"]["group_0"];
  EXPECT_THAT(Parse(config)->packed, ElementsAre(DType::kI4G128, DType::kI4G32));
  config["format"] = "mixed-precision";
  config["config_groups"]["group_0"]["format"] = "pack-quantized";
  config["config_groups"]["group_1"]["format"] = "mxfp4-pack-quantized";
  config["config_groups"]["group_1"]["weights"]["type"] = "float";
  config["transform_config"] = config["sparsity_config"] = json::object();
  parsed = Parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->packed, ElementsAre(DType::kI4G128, DType::kMXFP4));
}

TEST(QuantizationConfig, MethodsThatNeedMoreThanTheFormatsHave) {
  ExpectError(Parse({{"quant_method", "awq"}, {"bits", 4}}).status(), kUnimplemented,
              {"config.json: quantization_config: quant_method: \"awq\" is not supported",
               "F16 scales and a zero point", "get the model in BF16 or FP8"});
  ExpectError(Parse({{"quant_method", "gptq"}}).status(), kUnimplemented, {"\"gptq\"", "an order of columns"});
  ExpectError(Parse({{"quant_method", "bitsandbytes"}}).status(), kUnimplemented, {"\"bitsandbytes\"", "tables"});
  ExpectError(Parse({{"quant_method", "hqq"}}).status(), kUnimplemented,
              {"\"hqq\" is not supported (supported: fp8, compressed-tensors, mxfp4, w8a8_int8)"});
}

TEST(QuantizationConfig, RefusesOtherGroups) {
  const auto refuse = [](const std::function<void(json&)>& change, absl::StatusCode code, const std::string& message) {
    json config = Kimi();
    change(config);
    ExpectError(Parse(config).status(), code, {"config.json: quantization_config: " + message});
  };
  const auto weights = [&](const char* key, const json& value, absl::StatusCode code, const std::string& message) {
    refuse([&](json& config) { config["config_groups"]["group_0"]["weights"][key] = value; }, code,
           std::string("config_groups: group_0: weights: ") + key + ": " + message);
  };
  weights("num_bits", 8, kUnimplemented, "8 is not supported (supported: 4)");
  weights("num_bits", nullptr, kInvalid, "missing");
  weights("type", "float", kUnimplemented, "\"float\" is not supported (supported: int)");
  weights("symmetric", false, kUnimplemented, "zero points are not supported; quantise the model with symmetric");
  weights("strategy", "channel", kUnimplemented, "\"channel\" is not supported (supported: group)");
  weights("group_size", 64, kUnimplemented, "64 is not supported (supported: 32, 128)");
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
  refuse([](json& config) { config["quantization_status"] = "frozen"; }, kUnimplemented,
         "quantization_status: \"frozen\" is not supported (supported: compressed)");
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

TEST(QuantizationConfig, Int8) {
  for (const json& config : {Int8(), json({{"quant_method", "w8a8_int8"}}),
                             json({{"quant_method", "w8a8_int8"}, {"activation_scheme", "dynamic"}})}) {
    const auto parsed = Parse(config);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_TRUE(parsed->int8);
    EXPECT_FALSE(parsed->fp8);
    EXPECT_THAT(parsed->packed, IsEmpty());
  }
  EXPECT_FALSE(Parse(Kimi())->int8);
  json mixed = Int8();
  mixed["format"] = "mixed-precision";
  mixed["config_groups"]["group_0"]["format"] = "int-quantized";
  mixed["config_groups"]["group_1"] = Kimi()["config_groups"]["group_0"];
  mixed["config_groups"]["group_1"]["format"] = "pack-quantized";
  const auto parsed = Parse(mixed);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->int8);
  EXPECT_THAT(parsed->packed, ElementsAre(DType::kI4G32));
}

TEST(QuantizationConfig, RefusesOtherInt8) {
  const auto refuse = [](const char* part, const char* key, const json& value, const std::string& message) {
    json config = Int8();
    config["config_groups"]["group_0"][part][key] = value;
    ExpectError(Parse(config).status(), kUnimplemented,
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
    ExpectError(Parse(config).status(), kUnimplemented,
                {"group_0: input_activations: weights of 8 bits without activations of 8 bits are not supported; get "
                 "the model as W8A8"});
  }
  ExpectError(Parse({{"quant_method", "w8a8_int8"}, {"activation_scheme", "static"}}).status(), kUnimplemented,
              {"activation_scheme: \"static\" is not supported (supported: dynamic)"});
}

}  // namespace
}  // namespace moestro::testing
