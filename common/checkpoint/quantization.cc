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
constexpr char kInt4Format[] = "pack-quantized";
constexpr char kMxfp4Format[] = "mxfp4-pack-quantized";

// W8A8: compressed-tensors' format, and a method that names nothing else.
constexpr char kInt8Format[] = "int-quantized";
constexpr char kInt8Method[] = "w8a8_int8";

constexpr char kAutoRound[] = "auto-round";

constexpr int64_t kMaxGroup = int64_t{1} << 30;

// Methods that people look for, and what their weights need that no format of this engine has.
struct Missing {
  const char* method;
  const char* needs;
};
constexpr Missing kMissing[] = {
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

// Words of 8 codes lie within a group, and a format of blocks has 32 inputs in a sub-block.
void CheckGroupSize(JsonFields& fields, int64_t size) {
  if (size > 0 && size % 32 == 0) return;
  fields.Unsupported("group_size", absl::StrCat(size, " is not supported (supported: multiples of 32)"));
}

Int4Groups ReadInt4Group(JsonFields& weights) {
  const bool zero_points = !weights.BoolOr("symmetric", true);
  weights.OneOf("strategy", {"group", "channel"});
  if (weights.StringOr("strategy", "") == "channel") return {0, zero_points};
  const int64_t size = weights.Int("group_size", -1, kMaxGroup);
  CheckGroupSize(weights, size);
  return {size, zero_points};
}

// Adds what the group's weights have to `read`.
void ReadGroup(JsonFields& group, const std::string& default_format, Quantization* read) {
  RefuseUnlessEmpty(group, "output_activations", "quantisation of activations");
  const std::string format = group.StringOr("format", default_format);
  if (!group.Has("weights")) group.Fail("weights", "missing");
  if (format == kInt8Format) {
    read->int8 = true;
    return ReadInt8Group(group);
  }
  RefuseUnlessEmpty(group, "input_activations", "quantisation of activations");
  const bool int4 = format == kInt4Format;
  if (!int4 && format != kMxfp4Format) {
    return group.Unsupported("format", absl::StrCat(text::Describe(format), " is not supported (supported: ",
                                                    kInt4Format, ", ", kMxfp4Format, ", ", kInt8Format, ")"));
  }
  JsonFields weights = group.Sub("weights");
  weights.OneOf("type", {int4 ? "int" : "float"});
  CheckBits(weights, 4);
  weights.OnlyBool("dynamic", false);
  CheckOrder(weights);
  if (int4) {
    const Int4Groups groups = ReadInt4Group(weights);
    if (std::ranges::find(read->int4, groups) == read->int4.end()) read->int4.push_back(groups);
    return;
  }
  read->packed_mxfp4 = true;
  CheckSymmetric(weights);
  weights.OneOf("strategy", {"group"});
  const int64_t size = weights.Int("group_size", -1, kMaxGroup);
  if (size == 32) return;
  weights.Unsupported("group_size", absl::StrCat(size, " is not supported (supported: 32)"));
}

Quantization ReadCompressedTensors(JsonFields& quantization) {
  RefuseUnlessEmpty(quantization, "kv_cache_scheme", "a quantised KV cache");
  RefuseUnlessEmpty(quantization, "transform_config", "a rotation of weights or activations");
  RefuseUnlessEmpty(quantization, "moe_sparsity_config", "a number of experts that differs by layer");
  JsonFields sparsity = quantization.Sub("sparsity_config");
  sparsity.OneOf("format", {"dense"});
  // Tools have called files with packed weights "frozen". The files say what is packed (inventory.h).
  quantization.OneOf("quantization_status", {"compressed", "frozen"});
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
    ReadGroup(group, format, &read);
  }
  return read;
}

// What AWQ and GPTQ say in the same words.
Int4Groups ReadByInputGroups(JsonFields& quantization) {
  const int64_t bits = quantization.Int("bits", 1, 64);
  if (bits != 4) {
    quantization.Unsupported("bits", absl::StrCat(bits, " is not supported (supported: 4); get the model with 4 bits"));
  }
  const int64_t size = quantization.Int("group_size", -1, kMaxGroup);
  if (size == -1) return {0, true};
  CheckGroupSize(quantization, size);
  return {size, true};
}

// Versions other than GEMM have another order of codes.
Quantization ReadAwq(JsonFields& quantization) {
  quantization.OneOf("version", {"gemm", "GEMM"});
  quantization.OneOf("format", {"gemm"});
  if (quantization.StringOr("backend", "") == "llm-awq") {
    quantization.Unsupported("backend", "\"llm-awq\" is not supported; get the model in version gemm of AutoAWQ");
  }
  quantization.OnlyBool("zero_point", true);
  return {.int4 = {ReadByInputGroups(quantization)}, .by_input = ByInput::kAwq};
}

// Files of all formats have zero points, those of symmetric weights, too. Only the files say whether desc_act has
// changed the order.
Quantization ReadGptq(JsonFields& quantization) {
  for (const char* const key : {"checkpoint_format", "format"}) quantization.OneOf(key, {"gptq", "gptq_v2"});
  quantization.OnlyBool("is_marlin_format", false);
  quantization.OneOf("pack_dtype", {"int32"});
  const std::string format = quantization.StringOr("checkpoint_format", quantization.StringOr("format", "gptq"));
  return {.int4 = {ReadByInputGroups(quantization)},
          .by_input = format == "gptq_v2" ? ByInput::kGptqV2 : ByInput::kGptq,
          .ordered = quantization.BoolOr("desc_act", false)};
}

// AutoRound packs as its export format says, which may be another tool's.
Quantization ReadAutoRound(JsonFields& quantization) {
  constexpr char kPacking[] = "packing_format", kAsGptq[] = "auto_round:auto_gptq", kAsAwq[] = "auto_round:auto_awq";
  const std::string packing = quantization.StringOr(kPacking, "");
  if (packing == kAsGptq) return ReadGptq(quantization);
  if (packing == kAsAwq) return ReadAwq(quantization);
  quantization.Unsupported(kPacking, absl::StrCat(packing.empty() ? "missing, which" : text::Quoted(packing),
                                                  " is not supported (supported: ", kAsGptq, ", ", kAsAwq,
                                                  "); export the model as auto_awq or auto_gptq"));
  return {};
}

}  // namespace

std::optional<DType> Int4Format(const Int4Groups& groups, int64_t cols, bool bf16_scales) {
  const int64_t size = groups.size == 0 ? cols : groups.size;
  if (size <= 0 || size % 32 != 0 || cols % size != 0) return std::nullopt;
  if (bf16_scales && !groups.zero_points && size == 32) return DType::kI4G32;
  if (bf16_scales && !groups.zero_points && size == 128) return DType::kI4G128;
  return size % 128 == 0 ? DType::kI4Z128 : DType::kI4Z32;
}

std::optional<DType> Quantization::experts() const {
  if (blocks || packed_mxfp4) return DType::kMXFP4;
  if (int8) return DType::kI8;
  if (int4.empty()) return std::nullopt;
  // Of rows whose length is not known here, and with BF16 scales, as new models have them.
  const Int4Groups& first = int4.front();
  return Int4Format(first, first.size == 0 ? 128 : first.size, by_input == ByInput::kNone);
}

Quantization ReadQuantization(JsonFields& config) {
  if (!config.Has("quantization_config")) return {};
  JsonFields fields = config.Sub("quantization_config");
  if (!fields.Has("quant_method")) fields.Fail("quant_method", "missing");
  for (const Missing& missing : kMissing) {
    if (!fields.Has("quant_method") || fields.object()["quant_method"] != missing.method) continue;
    fields.Unsupported("quant_method",
                       absl::StrCat("\"", missing.method, "\" is not supported: its weights need ", missing.needs,
                                    "; get the model in BF16 or FP8, or as AWQ, GPTQ or compressed-tensors"));
  }
  fields.OneOf("quant_method", {"fp8", "compressed-tensors", "awq", "gptq", kAutoRound, "mxfp4", kInt8Method});
  if (!fields.ok()) return {};
  const std::string method = fields.StringOr("quant_method", "");
  Quantization quantization;
  if (method == "fp8") ReadFp8(fields);
  if (method == "compressed-tensors") quantization = ReadCompressedTensors(fields);
  if (method == "awq") quantization = ReadAwq(fields);
  if (method == "gptq") quantization = ReadGptq(fields);
  if (method == kAutoRound) quantization = ReadAutoRound(fields);
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
