#include "common/checkpoint/quantization.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/config_families.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {

using text::JsonFields;

namespace {

using nlohmann::json;

// What compressed-tensors calls the formats of blocks.
struct GroupFormat {
  const char* name;
  const char* type;
  int64_t group_size;
  DType dtype;
};
constexpr GroupFormat kGroupFormats[] = {
    {"pack-quantized", "int", 32, DType::kI4G32},
    {"pack-quantized", "int", 128, DType::kI4G128},
    {"mxfp4-pack-quantized", "float", 32, DType::kMXFP4},
};

// W8A8: compressed-tensors' format, and a method that names nothing else.
constexpr char kInt8Format[] = "int-quantized";
constexpr char kInt8Method[] = "w8a8_int8";

// Methods that people look for, and what their weights need that no format of this engine has.
struct Missing {
  const char* method;
  const char* needs;
};
constexpr Missing kMissing[] = {
    {"awq", "F16 scales and a zero point for each group"},
    {"gptq", "F16 scales, a zero point for each group, and an order of columns"},
    {"auto-round", "F16 scales and a zero point for each group"},
    {"bitsandbytes", "tables of codes, and scales of scales"},
};

void ReadFp8(JsonFields& quantization) {
  quantization.OneOf("fmt", {"e4m3", "float8_e4m3fn"});
  quantization.OneOf("activation_scheme", {"dynamic"});
  if (!quantization.ok()) return;
  const auto block = quantization.object().find("weight_block_size");
  if (block == quantization.object().end() || *block != json::array({128, 128})) {
    quantization.Unsupported("weight_block_size", "only [128, 128] is supported");
  }
}

// Says no more than the method, as a rule.
void ReadInt8Method(JsonFields& quantization) {
  quantization.OneOf("activation_scheme", {"dynamic"});
  quantization.OnlyBool("is_dynamic", true);
}

// A setting that changes the arithmetic wherever it is neither absent nor empty.
void RefuseUnlessEmpty(JsonFields& fields, const char* key, absl::string_view what) {
  if (!fields.Has(key) || fields.object()[key].empty()) return;
  fields.Unsupported(key, absl::StrCat(what, " is not supported; get the model with quantised weights only"));
}

// The columns of a weight may have been chosen in some order; they must lie in the model's.
void CheckOrder(JsonFields& weights) {
  if (!weights.Has("actorder") || weights.object()["actorder"] == false) return;
  const json& order = weights.object()["actorder"];
  if (order == "weight" || order == "static") return;
  weights.Unsupported("actorder", absl::StrCat(text::Describe(order),
                                               " is not supported: groups must be neighbours; quantise the model with "
                                               "actorder weight, or none"));
}

void CheckBits(JsonFields& fields, int64_t supported) {
  const int64_t bits = fields.Int("num_bits", 1, 64);
  if (bits == supported) return;
  fields.Unsupported("num_bits", absl::StrCat(bits, " is not supported (supported: ", supported, ")"));
}

void CheckSymmetric(JsonFields& fields) {
  if (fields.BoolOr("symmetric", true)) return;
  fields.Unsupported("symmetric", "zero points are not supported; quantise the model with symmetric: true");
}

// W8A8, whose products are of 8 bits each: kernels round the inputs, so the config must ask for that.
void ReadInt8Group(JsonFields& group) {
  JsonFields weights = group.Sub("weights");
  weights.OneOf("type", {"int"});
  CheckBits(weights, 8);
  CheckSymmetric(weights);
  weights.OneOf("strategy", {"channel"});
  weights.OnlyBool("dynamic", false);
  CheckOrder(weights);
  if (!group.Has("input_activations") || group.object()["input_activations"].empty()) {
    group.Unsupported("input_activations",
                      "weights of 8 bits without activations of 8 bits are not supported; get the model as W8A8, or in "
                      "BF16 or FP8");
    return;
  }
  JsonFields inputs = group.Sub("input_activations");
  inputs.OneOf("type", {"int"});
  CheckBits(inputs, 8);
  CheckSymmetric(inputs);
  if (!inputs.BoolOr("dynamic", false)) {
    inputs.Unsupported("dynamic", "static scales are not supported; quantise the model with dynamic: true");
  }
  inputs.OneOf("strategy", {"token"});
}

// The format that the group's weights have in two tensors; none: I8.
std::optional<DType> ReadGroup(JsonFields& group, const std::string& default_format) {
  RefuseUnlessEmpty(group, "output_activations", "quantisation of activations");
  const std::string format = group.StringOr("format", default_format);
  if (!group.Has("weights")) group.Fail("weights", "missing");
  if (format == kInt8Format) {
    ReadInt8Group(group);
    return std::nullopt;
  }
  RefuseUnlessEmpty(group, "input_activations", "quantisation of activations");
  const auto* const known = std::ranges::find(kGroupFormats, format, &GroupFormat::name);
  if (known == std::end(kGroupFormats)) {
    group.Unsupported("format", absl::StrCat(text::Describe(format), " is not supported (supported: pack-quantized, ",
                                             "mxfp4-pack-quantized, ", kInt8Format, ")"));
    return {};
  }
  JsonFields weights = group.Sub("weights");
  weights.OneOf("type", {known->type});
  CheckBits(weights, 4);
  CheckSymmetric(weights);
  weights.OneOf("strategy", {"group"});
  weights.OnlyBool("dynamic", false);
  CheckOrder(weights);
  const int64_t size = weights.Int("group_size", -1, int64_t{1} << 30);
  for (const GroupFormat& candidate : kGroupFormats) {
    if (candidate.name == format && candidate.group_size == size) return candidate.dtype;
  }
  weights.Unsupported("group_size", absl::StrCat(size, " is not supported (supported: 32",
                                                 known->dtype == DType::kMXFP4 ? ")" : ", 128)"));
  return {};
}

Quantization ReadCompressedTensors(JsonFields& quantization) {
  RefuseUnlessEmpty(quantization, "kv_cache_scheme", "a quantised KV cache");
  RefuseUnlessEmpty(quantization, "transform_config", "a rotation of weights or activations");
  RefuseUnlessEmpty(quantization, "moe_sparsity_config", "a number of experts that differs by layer");
  JsonFields sparsity = quantization.Sub("sparsity_config");
  sparsity.OneOf("format", {"dense"});
  quantization.OneOf("quantization_status", {"compressed"});
  const std::string format = quantization.StringOr("format", "");
  JsonFields groups = quantization.Sub("config_groups");
  if (groups.object().empty()) quantization.Fail("config_groups", "missing or empty");
  Quantization read;
  for (const auto& [name, unused] : groups.object().items()) {
    if (text::Printable(name) != name) {
      quantization.Fail("config_groups", absl::StrCat(text::Quoted(name), " is not the name of a group"));
    }
    if (!quantization.ok()) return {};
    JsonFields group = groups.Sub(name.c_str());
    if (!quantization.ok()) return {};
    const std::optional<DType> dtype = ReadGroup(group, format);
    read.int8 |= !dtype;
    if (dtype && std::ranges::find(read.packed, *dtype) == read.packed.end()) read.packed.push_back(*dtype);
  }
  return read;
}

}  // namespace

Quantization ReadQuantization(JsonFields& config) {
  if (!config.Has("quantization_config")) return {};
  JsonFields fields = config.Sub("quantization_config");
  if (!fields.Has("quant_method")) fields.Fail("quant_method", "missing");
  for (const Missing& missing : kMissing) {
    if (!fields.Has("quant_method") || fields.object()["quant_method"] != missing.method) continue;
    fields.Unsupported("quant_method",
                       absl::StrCat("\"", missing.method, "\" is not supported: its weights need ", missing.needs,
                                    "; get the model in BF16 or FP8, or as compressed-tensors with symmetric groups"));
  }
  fields.OneOf("quant_method", {"fp8", "compressed-tensors", "mxfp4", kInt8Method});
  if (!fields.ok()) return {};
  const std::string method = fields.StringOr("quant_method", "");
  Quantization quantization;
  if (method == "fp8") ReadFp8(fields);
  if (method == "compressed-tensors") quantization = ReadCompressedTensors(fields);
  if (method == kInt8Method) {
    ReadInt8Method(fields);
    quantization.int8 = true;
  }
  quantization.fp8 = method == "fp8";
  quantization.blocks = method == "mxfp4";
  return fields.ok() ? quantization : Quantization();
}

absl::StatusOr<Quantization> ParseQuantization(std::string_view config_json) {
  MOE_ASSIGN_OR_RETURN(json parsed, text::ParseJsonObject(config_json, "config.json"));
  MOE_ASSIGN_OR_RETURN(const ConfigDocument document, InOneSpelling(std::move(parsed)));
  absl::Status status;
  JsonFields config(document.json, document.label, &status);
  Quantization quantization = ReadQuantization(config);
  MOE_RETURN_IF_ERROR(status);
  return quantization;
}

}  // namespace moestro::checkpoint
