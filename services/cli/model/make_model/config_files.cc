#include "services/cli/model/make_model/config_files.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/model/schema.h"
#include "common/tensor/dtype.h"
#include "nlohmann/json.hpp"
#include "services/cli/model/make_model/four_bits.h"
#include "services/cli/model/make_model/gguf/gguf_metadata.h"
#include "services/cli/model/make_model/gguf/gguf_plan.h"
#include "services/cli/model/make_model/tokenizer_files.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

// The transformers release that the published files name.
constexpr char kTransformersVersion[] = "4.33.1";
constexpr int64_t kMaxLayers = 1000;
constexpr int64_t kMaxExperts = 1024;
constexpr int64_t kMaxVocabRows = 1 << 20;

struct ModelPreset {
  std::string name;
  std::string what;
  std::string published;
  json changes;  // of the published config
  int64_t shard_bytes;
  std::string weights = "fp8";
};

std::vector<ModelPreset> Presets() {
  // Small, but with every irregularity. q_lora_rank and moe_intermediate_size are not multiples of the 128-element
  // scale block. kv_a has 576 rows. The vocabulary has more rows than the tokenizer has tokens. There is a
  // multi-token-prediction layer. One of the four shards starts with the scales of a weight in another shard.
  const ModelPreset tiny = {"tiny",
                            "DeepSeek-V3 in tens of megabytes",
                            "deepseek-v3",
                            {{"hidden_size", 256},
                             {"num_hidden_layers", 4},
                             {"first_k_dense_replace", 1},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 4},
                             {"q_lora_rank", 192},
                             {"intermediate_size", 640},
                             {"moe_intermediate_size", 192},
                             {"n_routed_experts", 16},
                             {"num_experts_per_tok", 4},
                             {"n_group", 4},
                             {"topk_group", 2},
                             {"vocab_size", 2048}},
                            5'610'000};
  // Grouped-query attention whose heads together are wider than the hidden size, as in the published models.
  const ModelPreset tiny_qwen3 = {"tiny-qwen3",
                                  "Qwen3-MoE",
                                  "qwen3-235b",
                                  {{"hidden_size", 256},
                                   {"num_hidden_layers", 3},
                                   {"max_window_layers", 3},
                                   {"num_attention_heads", 8},
                                   {"num_key_value_heads", 2},
                                   {"head_dim", 64},
                                   {"intermediate_size", 576},
                                   {"moe_intermediate_size", 192},
                                   {"num_experts", 16},
                                   {"num_experts_per_tok", 4},
                                   {"vocab_size", 2048}},
                                  4'000'000};
  // Layers 1 and 3 have experts, the others are dense. Heads of the size that CUDA's kernels of prompts have.
  const ModelPreset tiny_qwen3_mixed = {"tiny-qwen3-mixed",
                                        "Qwen3-MoE with dense layers and a tied head",
                                        "qwen3-235b",
                                        {{"hidden_size", 256},
                                         {"num_hidden_layers", 4},
                                         {"max_window_layers", 4},
                                         {"decoder_sparse_step", 2},
                                         {"mlp_only_layers", {0}},
                                         {"num_attention_heads", 4},
                                         {"num_key_value_heads", 2},
                                         {"head_dim", 128},
                                         {"intermediate_size", 576},
                                         {"moe_intermediate_size", 192},
                                         {"num_experts", 16},
                                         {"num_experts_per_tok", 4},
                                         {"tie_word_embeddings", true},
                                         {"vocab_size", 2048}},
                                        4'000'000};
  // Projections with biases, and a shared expert wider than the others, behind a gate.
  const ModelPreset tiny_qwen2 = {"tiny-qwen2",
                                  "Qwen2-MoE",
                                  "qwen2-57b",
                                  {{"hidden_size", 256},
                                   {"num_hidden_layers", 3},
                                   {"max_window_layers", 3},
                                   {"num_attention_heads", 2},
                                   {"num_key_value_heads", 1},
                                   {"intermediate_size", 576},
                                   {"moe_intermediate_size", 192},
                                   {"shared_expert_intermediate_size", 448},
                                   {"num_experts", 16},
                                   {"num_experts_per_tok", 4},
                                   {"vocab_size", 2048}},
                                  4'000'000,
                                  "bf16"};
  // Heads without norms, of the size that CUDA's kernels of prompts have, and names of the family's own.
  const ModelPreset tiny_mixtral = {"tiny-mixtral",
                                    "Mixtral",
                                    "mixtral-8x7b",
                                    {{"hidden_size", 256},
                                     {"num_hidden_layers", 3},
                                     {"num_attention_heads", 4},
                                     {"num_key_value_heads", 2},
                                     {"head_dim", 128},
                                     {"intermediate_size", 192},
                                     {"vocab_size", 2048}},
                                    4'000'000,
                                    "bf16"};
  // Groups that their largest score ranks. Few experts have large shares: weights of 16 times those would hide the
  // rest.
  const ModelPreset tiny_deepseek_v2 = {"tiny-deepseek-v2",
                                        "DeepSeek-V2",
                                        "deepseek-v2",
                                        {{"hidden_size", 256},
                                         {"num_hidden_layers", 3},
                                         {"num_attention_heads", 4},
                                         {"num_key_value_heads", 4},
                                         {"q_lora_rank", 192},
                                         {"intermediate_size", 640},
                                         {"moe_intermediate_size", 96},
                                         {"n_routed_experts", 32},
                                         {"num_experts_per_tok", 4},
                                         {"n_group", 8},
                                         {"topk_group", 3},
                                         {"routed_scaling_factor", 3.0},
                                         {"vocab_size", 2048}},
                                        4'000'000,
                                        "bf16"};
  // Queries straight from the hidden state, and a softmax scale with YaRN's 0.707.
  const ModelPreset tiny_deepseek_v2_lite = {"tiny-deepseek-v2-lite",
                                             "DeepSeek-V2-Lite",
                                             "deepseek-v2-lite",
                                             {{"hidden_size", 256},
                                              {"num_hidden_layers", 3},
                                              {"num_attention_heads", 4},
                                              {"num_key_value_heads", 4},
                                              {"intermediate_size", 640},
                                              {"moe_intermediate_size", 96},
                                              {"n_routed_experts", 16},
                                              {"num_experts_per_tok", 4},
                                              {"vocab_size", 2048}},
                                             4'000'000,
                                             "bf16"};
  // More experts than a warp has lanes, and rotations that change their frequency within one step.
  const ModelPreset tiny_kimi_k2 = {"tiny-kimi-k2",
                                    "Kimi-K2",
                                    "kimi-k2",
                                    {{"hidden_size", 256},
                                     {"num_hidden_layers", 3},
                                     {"num_attention_heads", 2},
                                     {"num_key_value_heads", 2},
                                     {"q_lora_rank", 192},
                                     {"intermediate_size", 640},
                                     {"moe_intermediate_size", 64},
                                     {"n_routed_experts", 48},
                                     {"num_experts_per_tok", 4},
                                     {"vocab_size", 2048}},
                                    4'000'000};
  // Biases, a head of which half rotates, and layers with and without experts; names and router of DeepSeek-V3.
  const ModelPreset tiny_glm = {"tiny-glm",
                                "GLM-4.5",
                                "glm-4.5",
                                {{"hidden_size", 256},
                                 {"num_hidden_layers", 3},
                                 {"first_k_dense_replace", 1},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"intermediate_size", 576},
                                 {"moe_intermediate_size", 192},
                                 {"n_routed_experts", 8},
                                 {"num_experts_per_tok", 2},
                                 {"pad_token_id", nullptr},
                                 {"vocab_size", 2048}},
                                4'000'000,
                                "bf16"};
  // Tensors that the segment has in parts, some of them transposed. A clamp that numbers reach.
  const ModelPreset tiny_dbrx = {"tiny-dbrx",
                                 "DBRX",
                                 "dbrx",
                                 {{"d_model", 256},
                                  {"n_layers", 3},
                                  {"n_heads", 2},
                                  {"attn_config", {{"kv_n_heads", 1}, {"clip_qkv", 1.5}}},
                                  {"ffn_config", {{"ffn_hidden_size", 192}, {"moe_num_experts", 8}, {"moe_top_k", 2}}},
                                  {"vocab_size", 2048}},
                                 4'000'000,
                                 "bf16"};
  // Norms over all heads, of which half a head rotates, and a router's bias beside the router.
  const ModelPreset tiny_minimax = {"tiny-minimax",
                                    "MiniMax-M2",
                                    "minimax-m2",
                                    {{"hidden_size", 256},
                                     {"num_hidden_layers", 2},
                                     {"attn_type_list", {1, 1}},
                                     {"num_attention_heads", 4},
                                     {"num_key_value_heads", 2},
                                     {"intermediate_size", 192},
                                     {"num_local_experts", 8},
                                     {"num_experts_per_tok", 2},
                                     {"vocab_size", 2048}},
                                    4'000'000};
  // No experts, a tied head, and an original context so short that most frequencies change.
  const ModelPreset tiny_llama = {"tiny-llama",
                                  "Llama 3",
                                  "llama-3.2-3b",
                                  {{"hidden_size", 256},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"intermediate_size", 576},
                                   {"rope_scaling", {{"original_max_position_embeddings", 64}}},
                                   {"vocab_size", 2048}},
                                  2'000'000,
                                  "bf16"};
  // A hidden size that is no multiple of 64, windows that are none either, and a clamp that numbers reach.
  const ModelPreset tiny_gpt_oss = {"tiny-gpt-oss",
                                    "gpt-oss",
                                    "gpt-oss-20b",
                                    {{"hidden_size", 240},
                                     {"num_hidden_layers", 3},
                                     {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}},
                                     {"sliding_window", 50},
                                     {"num_attention_heads", 4},
                                     {"num_key_value_heads", 2},
                                     {"intermediate_size", 176},
                                     {"num_local_experts", 8},
                                     {"num_experts_per_tok", 2},
                                     {"swiglu_limit", 1.5},
                                     {"rope_scaling", {{"original_max_position_embeddings", 64}}},
                                     {"pad_token_id", nullptr},
                                     {"vocab_size", 2048}},
                                    2'000'000,
                                    "bf16"};
  // Rows of whole groups of 32, which MXFP4 needs, but not of 64, and the published clamp: files in GGUF have no other.
  ModelPreset tiny_gpt_oss_32 = tiny_gpt_oss;
  tiny_gpt_oss_32.name = "tiny-gpt-oss-32";
  tiny_gpt_oss_32.what = "gpt-oss whose rows are multiples of 32";
  tiny_gpt_oss_32.changes.update({{"hidden_size", 288}, {"intermediate_size", 160}, {"swiglu_limit", 7.0}});
  // Without the prediction layer, which would double the size of a model that is only used for measurements.
  const ModelPreset layer = {"layer",
                             "the true geometry of DeepSeek-V3, few layers",
                             "deepseek-v3",
                             {{"num_hidden_layers", 2}, {"first_k_dense_replace", 1}, {"num_nextn_predict_layers", 0}},
                             4'300'000'000};
  const ModelPreset qwen3_layer = {"qwen3-layer",
                                   "the true geometry of Qwen3-30B-A3B, few layers",
                                   "qwen3-30b",
                                   {{"num_hidden_layers", 3}, {"max_window_layers", 3}},
                                   4'300'000'000};
  return {tiny,         tiny_dbrx,  tiny_deepseek_v2, tiny_deepseek_v2_lite, tiny_glm,   tiny_gpt_oss, tiny_gpt_oss_32,
          tiny_kimi_k2, tiny_llama, tiny_minimax,     tiny_mixtral,          tiny_qwen2, tiny_qwen3,   tiny_qwen3_mixed,
          layer,        qwen3_layer};
}

// Sets those of `keys` that the family has.
void Change(json& config, std::initializer_list<const char*> keys, int64_t value) {
  for (const char* key : keys) {
    if (config.contains(key)) config[key] = value;
  }
}

// Keeps the preset's proportions as far as `experts` allows. Groups are equal and hold at least two experts, because a
// group's score is the sum of its two best. The kept groups hold enough experts for one token.
absl::Status AdaptRouting(const std::string& preset, int64_t experts, json& config) {
  const char* const per_token_key = config.contains("moe_top_k") ? "moe_top_k" : "num_experts_per_tok";
  if (!config.contains(per_token_key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--experts ", experts, ": a model of --preset ", preset, " has no experts; omit --experts"));
  }
  const int64_t per_token = std::min(config[per_token_key].get<int64_t>(), experts);
  const int64_t wanted = config.value("n_group", int64_t{1});
  int64_t groups = wanted;
  const auto fits = [&] { return experts % groups == 0 && experts / groups >= 2; };
  while (groups > 1 && !fits()) --groups;
  const int64_t kept = CeilDiv(config.value("topk_group", int64_t{1}) * groups, wanted);
  Change(config, {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"}, experts);
  Change(config, {per_token_key}, per_token);
  Change(config, {"n_group"}, groups);
  Change(config, {"topk_group"}, std::max(kept, CeilDiv(per_token, experts / groups)));
  return absl::OkStatus();
}

absl::Status CheckRange(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value == 0 || (value >= low && value <= high)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is ", value, "; allowed: ", low, " to ", high, ", or 0 for the preset's value"));
}

absl::Status CheckOptions(const MakeModelOptions& options) {
  const std::vector<std::string> weights = MakeModelWeights();
  if (options.weights != "" && std::ranges::find(weights, options.weights) == weights.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--weights \"", options.weights, "\" is unknown; use ", absl::StrJoin(weights, " or ")));
  }
  MOE_RETURN_IF_ERROR(CheckRange("--layers", options.layers, 1, kMaxLayers));
  MOE_RETURN_IF_ERROR(CheckRange("--experts", options.experts, 2, kMaxExperts));
  MOE_RETURN_IF_ERROR(CheckRange("--vocab-rows", options.vocab_rows, 1, kMaxVocabRows));
  return CheckRange("--shard-bytes", options.shard_bytes, 1, int64_t{1} << 50);
}

// W8A8 of all linear layers but kv_b_proj, which becomes F16 wherever it is in INT8, and the head.
json CompressedTensorsInt8() {
  const auto scheme = [](const char* strategy, bool dynamic) {
    return json{{"dynamic", dynamic}, {"num_bits", 8}, {"strategy", strategy}, {"symmetric", true}, {"type", "int"}};
  };
  const json group = {{"format", "int-quantized"},
                      {"input_activations", scheme("token", true)},
                      {"output_activations", nullptr},
                      {"targets", {"Linear"}},
                      {"weights", scheme("channel", false)}};
  return {{"config_groups", {{"group_0", group}}},
          {"format", "int-quantized"},
          {"ignore", {"lm_head", "re:.*kv_b_proj$", "re:.*gate$"}},
          {"kv_cache_scheme", nullptr},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"}};
}

// quantization_config, as published; null: the weights are not quantised. In four bits are the routed experts, as in
// Kimi-K2-Thinking.
json QuantizationConfig(const std::string& weights) {
  if (weights == "fp8") {
    return {{"activation_scheme", "dynamic"},
            {"fmt", "e4m3"},
            {"quant_method", "fp8"},
            {"weight_block_size", {kScaleBlock, kScaleBlock}}};
  }
  if (weights == kBf16Weights) return nullptr;
  if (weights == kW8A8Int8Weights) return {{"quant_method", kW8A8Int8Weights}};
  if (weights == kInt8Weights) return CompressedTensorsInt8();
  if (weights == kAwqWeights) {
    return {{"bits", 4},
            {"group_size", kFourBitGroup},
            {"modules_to_not_convert", {"self_attn", "shared_expert", "gate"}},
            {"quant_method", kAwqWeights},
            {"version", "gemm"},
            {"zero_point", true}};
  }
  if (weights == kGptqWeights) {
    return {{"bits", 4},        {"checkpoint_format", "gptq"},  {"desc_act", false}, {"group_size", kFourBitGroup},
            {"lm_head", false}, {"quant_method", kGptqWeights}, {"sym", false}};
  }
  const bool int4 = weights != kMxfp4Weights;
  const char* const format = int4 ? "pack-quantized" : "mxfp4-pack-quantized";
  json scheme = {{"dynamic", false},
                 {"group_size", kFourBitGroup},
                 {"num_bits", 4},
                 {"strategy", "group"},
                 {"symmetric", weights != kInt4AsymWeights},
                 {"type", int4 ? "int" : "float"}};
  if (!int4) scheme["scale_dtype"] = "torch.uint8";
  const json group = {{"format", format},
                      {"input_activations", nullptr},
                      {"output_activations", nullptr},
                      {"targets", {"Linear"}},
                      {"weights", std::move(scheme)}};
  return {{"config_groups", {{"group_0", group}}},
          {"format", format},
          {"ignore",
           {"lm_head", "re:.*self_attn.*", "re:.*shared_expert.*", "re:.*gate$",
            "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"}},
          {"kv_cache_scheme", nullptr},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"}};
}

absl::Status CheckExperts(const std::string& preset, const MadeModel& model) {
  bool experts = false, apart = true, whole = true;
  for (const model::ModelTensor& tensor :
       model.gguf ? model::SegmentTensors(model.spec) : model::CheckpointTensors(model.spec)) {
    if (tensor.part != model::TensorPart::kExpert || !model::IsLinear(tensor.role)) continue;
    experts = true;
    apart &= !tensor.in_parts;
    whole &= tensor.cols % kFourBitGroup == 0 && (!model.by_input() || tensor.rows % 8 == 0);
  }
  if (experts && apart && whole) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--weights ", model.weights, ": a model of --preset ", preset,
                                                 !experts ? " has no routed experts"
                                                 : !apart ? " has all experts in one tensor"
                                                          : " has experts whose rows are no whole groups",
                                                 "; use bf16"));
}

// What --weights means for the kind of files that --out asks for.
absl::StatusOr<std::string> ChooseWeights(const MakeModelOptions& options, const std::string& of_preset) {
  if (!options.gguf()) {
    if (options.weights.empty()) return of_preset;
    const bool both = options.weights == kBf16Weights || options.weights == kMxfp4Weights;
    if (both || !IsGgufType(options.weights)) return options.weights;
    return absl::InvalidArgumentError(
        absl::StrCat("--weights ", options.weights, " is a type of GGUF; name a file FILE.gguf in --out"));
  }
  const std::string weights = options.weights.empty() ? kBf16Weights : options.weights;
  if (!IsGgufType(weights)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--weights ", weights, " is no type of GGUF; name a directory in --out"));
  }
  if (options.shard_bytes != 0) {
    return absl::InvalidArgumentError("--shard-bytes: a model in GGUF is one file here; omit it");
  }
  return weights;
}

// What GGUF files of the architecture have no keys for is as published.
void AdaptToGguf(json& config) {
  // A file has the outcome of Llama 3's rule; readers know the rule for the published context only.
  constexpr int64_t kLlama3Positions = 8192;
  if (config["model_type"] == "llama" && config.contains("rope_scaling")) {
    config["rope_scaling"]["original_max_position_embeddings"] = kLlama3Positions;
  }
  if (config.contains("swiglu_limit")) config["swiglu_limit"] = 7;
}

}  // namespace

std::vector<std::string> MakeModelWeights() {
  return {"fp8",        kBf16Weights,     kInt4Weights, kMxfp4Weights, kInt4AsymWeights, kAwqWeights, kGptqWeights,
          kInt8Weights, kW8A8Int8Weights, "f16",        "q8_0",        "q6_k",           "q4_k_m",    "q4_0"};
}

std::vector<std::pair<std::string, std::string>> MakeModelPresets() {
  std::vector<std::pair<std::string, std::string>> presets;
  for (const ModelPreset& preset : Presets()) presets.emplace_back(preset.name, preset.what);
  return presets;
}

absl::StatusOr<MadeModel> ResolveModel(const MakeModelOptions& options) {
  const std::vector<ModelPreset> presets = Presets();
  const auto preset = std::ranges::find(presets, options.preset, &ModelPreset::name);
  if (preset == presets.end()) {
    const auto name = [](std::string* out, const ModelPreset& known) { out->append(known.name); };
    return absl::InvalidArgumentError(
        absl::StrCat("--preset \"", options.preset, "\" is unknown; use ", absl::StrJoin(presets, " or ", name)));
  }
  MOE_RETURN_IF_ERROR(CheckOptions(options));
  MOE_ASSIGN_OR_RETURN(std::string weights, ChooseWeights(options, preset->weights));
  MadeModel model{.config = json::parse(checkpoint::PublishedConfig(preset->published)),
                  .spec = {},
                  .shard_bytes = options.shard_bytes != 0 ? options.shard_bytes : preset->shard_bytes,
                  .weights = std::move(weights),
                  .gguf = options.gguf()};
  json& config = model.config;
  config.update(preset->changes, /*merge_objects=*/true);
  config["bos_token_id"] = kBosId;
  config["eos_token_id"] = kEosId;
  if (model.gguf) AdaptToGguf(config);
  if (options.layers != 0) {
    Change(config, {"num_hidden_layers", "max_window_layers", "n_layers"}, options.layers);
    config.erase("layer_types");  // the family's rule gives them
  }
  if (options.experts != 0) {
    MOE_RETURN_IF_ERROR(
        AdaptRouting(options.preset, options.experts, config.contains("ffn_config") ? config["ffn_config"] : config));
  }
  if (options.vocab_rows != 0) config["vocab_size"] = options.vocab_rows;
  config.erase("quantization_config");
  if (json quantization = model.gguf ? json() : QuantizationConfig(model.weights); !quantization.is_null()) {
    config["quantization_config"] = std::move(quantization);
  }
  model.mtp_layers = config.value("num_nextn_predict_layers", int64_t{0});
  MOE_ASSIGN_OR_RETURN(model.spec, checkpoint::ParseModelSpec(config.dump(), /*tokenizer_json=*/""));
  if (model.four_bits()) MOE_RETURN_IF_ERROR(CheckExperts(options.preset, model));
  if (model.gguf && GgufArchitecture(model).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--preset ", options.preset, " has no form in GGUF here; name a directory in --out"));
  }
  return model;
}

std::string ConfigJson(const MadeModel& model) { return model.config.dump(2) + "\n"; }

std::string GenerationConfigJson() {
  const json config = {
      {"_from_model_config", true},
      {"bos_token_id", kBosId},
      {"eos_token_id", kEosId},
      {"do_sample", true},
      {"temperature", 0.6},
      {"top_p", 0.95},
      {"transformers_version", kTransformersVersion},
  };
  return config.dump(2) + "\n";
}

}  // namespace moestro::cli
