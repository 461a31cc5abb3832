#include "common/checkpoint/gguf/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/config_families.h"
#include "common/checkpoint/gguf/gguf_fields.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {
namespace {

using nlohmann::json;

constexpr char kArchitecture[] = "general.architecture";
constexpr char kFreqs[] = "rope_freqs.weight";

// Numbers of expert_gating_func. The last: of the chosen experts only.
constexpr int64_t kUnsetGating = 0, kSoftmaxGating = 1, kSigmoidGating = 2, kChosenSoftmaxGating = 3;

struct Source {
  const GgufModel& model;
  GgufFields fields;

  const TensorInfo* Find(std::string_view name, const TensorFile** in = nullptr) const {
    for (const TensorFile& file : model.files) {
      const auto found = std::ranges::find(file.tensors(), name, &TensorInfo::name);
      if (found == file.tensors().end()) continue;
      if (in != nullptr) *in = &file;
      return &*found;
    }
    return nullptr;
  }
  // Whether a layer has such a tensor.
  bool LayersHave(std::string_view suffix) const {
    return std::ranges::any_of(model.files, [&](const TensorFile& file) {
      return std::ranges::any_of(file.tensors(), [&](const TensorInfo& tensor) {
        return tensor.name.starts_with("blk.") && tensor.name.ends_with(suffix);
      });
    });
  }

  absl::Status TensorError(absl::StatusCode code, std::string_view name, absl::string_view why) const {
    return absl::Status(code, absl::StrCat(model.metadata.label(), ": tensor ", text::Quoted(name), ": ", why));
  }
};

// Settings that change a layer's arithmetic, and the value that changes nothing.
struct Setting {
  const char* key;
  double neutral;
};
constexpr Setting kOtherArithmetic[] = {{"attention.scale", 0},
                                        {"attention.output_scale", 0},
                                        {"attention.max_alibi_bias", 0},
                                        {"attention.shared_kv_layers", 0},
                                        {"attention.temperature_scale", 0},
                                        {"attention.temperature_length", 0},
                                        {"attention.indexer.top_k", 0},
                                        {"attn_logit_softcapping", 0},
                                        {"final_logit_softcapping", 0},
                                        {"router_logit_softcapping", 0},
                                        {"logit_scale", 1},
                                        {"residual_scale", 1},
                                        {"embedding_scale", 1},
                                        {"swiglu_clamp_exp", 0},
                                        {"swiglu_clamp_shexp", 0},
                                        {"interleave_moe_layer_step", 1},
                                        {"moe_every_n_layers", 1}};

void RefuseOtherArithmetic(GgufFields& fields) {
  for (const Setting& setting : kOtherArithmetic) {
    if (fields.NumberOr(setting.key, setting.neutral) != setting.neutral) {
      fields.NotSupported(setting.key, absl::StrCat("only ", setting.neutral, " is supported"));
    }
  }
  if (!fields.FlagOr("attention.causal", true)) fields.NotSupported("attention.causal", "only true is supported");
  if (fields.FlagOr("use_parallel_residual", false)) {
    fields.NotSupported("use_parallel_residual", "only false is supported");
  }
  if (fields.Has("rope.dimension_sections")) fields.NotSupported("rope.dimension_sections", "not supported");
}

void RefuseWindows(GgufFields& fields) {
  const int64_t positions = fields.Int("context_length", 1, kMaxPositions);
  const int64_t window = fields.IntOr("attention.sliding_window", 0, 0, std::numeric_limits<int64_t>::max());
  if (window > 0 && window < positions) {
    fields.NotSupported("attention.sliding_window", absl::StrCat(window, " is less than context_length = ", positions,
                                                                 ": attention within a window is not supported"));
  }
}

// The layers that run: those of multi-token prediction come last.
int64_t Layers(GgufFields& fields) {
  const int64_t blocks = fields.Int("block_count", 1, kMaxLayers);
  return blocks - fields.IntOr("nextn_predict_layers", 0, 0, blocks - 1);
}

int64_t Vocabulary(Source& source) {
  GgufFields& fields = source.fields;
  constexpr char kEmbedding[] = "token_embd.weight";
  const TensorInfo* const embedding = source.Find(kEmbedding);
  if (embedding == nullptr || embedding->shape.size() != 2) {
    fields.Record(source.TensorError(absl::StatusCode::kInvalidArgument, kEmbedding, "missing, or no matrix"));
    return 1;
  }
  const int64_t rows = embedding->shape[0];
  if (fields.IntOr("vocab_size", rows, 1, kMaxVocab) != rows) {
    fields.Wrong("vocab_size", absl::StrCat("contradicts the ", rows, " rows of ", kEmbedding));
  }
  return rows;
}

// What all families but DBRX call the same.
json Shape(Source& source) {
  GgufFields& fields = source.fields;
  return {{"hidden_size", fields.Int("embedding_length", 1, kMaxHidden)},
          {"num_hidden_layers", Layers(fields)},
          {"num_attention_heads", fields.Int("attention.head_count", 1, kMaxHeads)},
          {"vocab_size", Vocabulary(source)},
          {"max_position_embeddings", fields.Int("context_length", 1, kMaxPositions)},
          {"rms_norm_eps", fields.Number("attention.layer_norm_rms_epsilon")},
          {"rope_theta", fields.Number("rope.freq_base")},
          {"tie_word_embeddings", source.Find("output.weight") == nullptr}};
}

int64_t KeyValueHeads(GgufFields& fields) {
  return fields.IntOr("attention.head_count_kv", fields.Int("attention.head_count", 1, kMaxHeads), 1, kMaxHeads);
}

int64_t HeadDim(GgufFields& fields) {
  const int64_t hidden = fields.Int("embedding_length", 1, kMaxHidden);
  const int64_t heads = fields.Int("attention.head_count", 1, kMaxHeads);
  const bool has_length = fields.Has("attention.key_length");
  if (!has_length && hidden % heads != 0)
    fields.Wrong("attention.key_length", "missing, and heads do not divide a row");
  const int64_t dim = has_length ? fields.Int("attention.key_length", 1, kMaxHeadDim) : hidden / heads;
  if (const int64_t value = fields.IntOr("attention.value_length", dim, 1, kMaxHeadDim); value != dim) {
    fields.NotSupported("attention.value_length", absl::StrCat(value, " is not the ", dim, " that keys have"));
  }
  return dim;
}

void CheckWholeHeadRotates(GgufFields& fields, int64_t head_dim) {
  const int64_t rotates = fields.IntOr("rope.dimension_count", head_dim, 1, kMaxHeadDim);
  if (rotates != head_dim) {
    fields.NotSupported("rope.dimension_count", absl::StrCat(rotates, " is not the size of a head, ", head_dim));
  }
}

void AddGroupedQueries(GgufFields& fields, json* config) {
  const int64_t dim = HeadDim(fields);
  CheckWholeHeadRotates(fields, dim);
  (*config)["num_key_value_heads"] = KeyValueHeads(fields);
  (*config)["head_dim"] = dim;
}

// A factor of the amplitude that must leave it alone.
void CheckIsOne(GgufFields& fields, const char* key) {
  if (fields.NumberOr(key, 1) != 1) fields.NotSupported(key, "only 1 is supported");
}

// Null: the rotation is not scaled.
json Scaling(GgufFields& fields) {
  const double factor = fields.NumberOr("rope.scaling.factor", 1);
  const std::string type = fields.TextOr("rope.scaling.type", factor == 0 || factor == 1 ? "none" : "linear");
  if (fields.NumberOr("rope.scale_linear", 1) != 1) fields.NotSupported("rope.scale_linear", "only 1 is supported");
  if (type == "none" || (type == "linear" && (factor == 0 || factor == 1))) return nullptr;
  if (type != "yarn") {
    fields.NotSupported("rope.scaling.type", absl::StrCat(text::Quoted(type), " is not supported, only yarn and none"));
    return nullptr;
  }
  CheckIsOne(fields, "rope.scaling.attn_factor");
  CheckIsOne(fields, "rope.scaling.yarn_attn_factor");
  CheckIsOne(fields, "rope.scaling.yarn_ext_factor");
  json scaling = {
      {"rope_type", "yarn"},
      {"factor", fields.Number("rope.scaling.factor")},
      {"original_max_position_embeddings", fields.Int("rope.scaling.original_context_length", 1, kMaxPositions)}};
  if (fields.Has("rope.scaling.yarn_beta_fast")) scaling["beta_fast"] = fields.Number("rope.scaling.yarn_beta_fast");
  if (fields.Has("rope.scaling.yarn_beta_slow")) scaling["beta_slow"] = fields.Number("rope.scaling.yarn_beta_slow");
  return scaling;
}

// For families whose attention does not depend on the factor.
void AddScaling(GgufFields& fields, json* config) {
  if (constexpr char kMultiplier[] = "rope.scaling.yarn_log_multiplier"; fields.NumberOr(kMultiplier, 0) != 0) {
    fields.NotSupported(kMultiplier, "only 0 is supported without latent attention");
  }
  if (const json scaling = Scaling(fields); !scaling.is_null()) (*config)["rope_scaling"] = scaling;
}

// Llama 3's rule, as all of its models have it.
constexpr double kLlama3LowFactor = 1, kLlama3HighFactor = 4;
constexpr int64_t kLlama3Positions = 8192;

double Llama3Divisor(double theta, int64_t pair, int64_t dim, double factor) {
  const double wavelength =
      2 * std::numbers::pi * std::pow(theta, 2.0 * static_cast<double>(pair) / static_cast<double>(dim));
  const double turns = static_cast<double>(kLlama3Positions) / wavelength;
  if (turns > kLlama3HighFactor) return 1;
  if (turns < kLlama3LowFactor) return factor;
  const double smooth = (turns - kLlama3LowFactor) / (kLlama3HighFactor - kLlama3LowFactor);
  return 1 / ((1 - smooth) / factor + smooth);
}

// By what each frequency is divided: the file has the outcome of a rule.
void AddFrequencyDivisors(Source& source, json* config) {
  const TensorFile* file = nullptr;
  const TensorInfo* const tensor = source.Find(kFreqs, &file);
  if (tensor == nullptr) return;
  const auto fail = [&](absl::string_view why) {
    source.fields.Record(source.TensorError(absl::StatusCode::kUnimplemented, kFreqs, why));
  };
  const int64_t dim = HeadDim(source.fields);
  if (tensor->dtype != DType::kF32 || tensor->shape != std::vector{dim / 2}) return fail("is not F32 for half a head");
  std::vector<float> divisors(static_cast<size_t>(dim / 2));
  source.fields.Record(file->ReadAt(tensor->file_offset, divisors.data(), tensor->bytes));
  if (std::ranges::all_of(divisors, [](float one) { return one == 1; })) return;
  constexpr double kTolerance = 1e-4;  // writers compute in F32, and with angles of up to 6 digits
  const double theta = source.fields.Number("rope.freq_base"), factor = Decimal(divisors.back());
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double expected = Llama3Divisor(theta, static_cast<int64_t>(i), dim, factor);
    if (!(std::abs(divisors[i] - expected) <= kTolerance * expected)) {
      return fail(absl::StrCat("factor ", i, " is ", divisors[i], ", not ", expected,
                               " by Llama 3's rule; other scaled rotations are not supported"));
    }
  }
  if (config->contains("rope_scaling")) return fail("scales a rotation that rope.scaling.type scales, too");
  (*config)["rope_scaling"] = {{"rope_type", "llama3"},
                               {"factor", factor},
                               {"low_freq_factor", kLlama3LowFactor},
                               {"high_freq_factor", kLlama3HighFactor},
                               {"original_max_position_embeddings", kLlama3Positions}};
}

int64_t Experts(GgufFields& fields) { return fields.Int("expert_count", 1, kMaxExperts); }
int64_t ExpertsOfToken(GgufFields& fields) { return fields.Int("expert_used_count", 1, kMaxExperts); }

// A key that may say what the architecture has.
void CheckGating(GgufFields& fields, int64_t expected) {
  constexpr char kGating[] = "expert_gating_func";
  const int64_t gating = fields.IntOr(kGating, expected, 0, 255);
  if (gating == expected || gating == kUnsetGating) return;
  fields.NotSupported(kGating, absl::StrCat(gating, " is not supported, only ", expected));
}

// Weights of experts as the architecture has them: normalised or not, and not scaled.
void CheckExpertWeights(GgufFields& fields, bool normalised, int64_t gating = kSoftmaxGating) {
  if (const double scale = fields.NumberOr("expert_weights_scale", 1); scale != 1 && scale != 0) {
    fields.NotSupported("expert_weights_scale", "only 1 is supported");
  }
  if (fields.FlagOr("expert_weights_norm", normalised) != normalised) {
    fields.NotSupported("expert_weights_norm", absl::StrCat("only ", normalised ? "true" : "false", " is supported"));
  }
  if (fields.IntOr("expert_group_count", 1, 0, kMaxExperts) > 1) {
    fields.NotSupported("expert_group_count", "groups of experts are not supported here");
  }
  CheckGating(fields, gating);
}

// Llama and Mixtral.
json Llama(Source& source) {
  GgufFields& fields = source.fields;
  json config = Shape(source);
  AddGroupedQueries(fields, &config);
  AddScaling(fields, &config);
  AddFrequencyDivisors(source, &config);
  config["intermediate_size"] = fields.Int("feed_forward_length", 1, kMaxIntermediate);
  if (fields.IntOr("expert_count", 0, 0, kMaxExperts) == 0) {
    config["model_type"] = "llama";
    return config;
  }
  CheckExpertWeights(fields, /*normalised=*/true);
  config["model_type"] = "mixtral";
  config["num_local_experts"] = Experts(fields);
  config["num_experts_per_tok"] = ExpertsOfToken(fields);
  return config;
}

// Every layer of these files has experts.
json Qwen(Source& source, bool normalised) {
  GgufFields& fields = source.fields;
  json config = Shape(source);
  AddGroupedQueries(fields, &config);
  AddScaling(fields, &config);
  CheckExpertWeights(fields, normalised);
  config["norm_topk_prob"] = normalised;
  config["num_experts"] = Experts(fields);
  config["num_experts_per_tok"] = ExpertsOfToken(fields);
  config["moe_intermediate_size"] = fields.Int("expert_feed_forward_length", 1, kMaxIntermediate);
  return config;
}

json Qwen2Moe(Source& source) {
  json config = Qwen(source, /*normalised=*/false);
  config["model_type"] = "qwen2_moe";
  config["qkv_bias"] = source.LayersHave(".attn_q.bias");
  config["shared_expert_intermediate_size"] =
      source.fields.Int("expert_shared_feed_forward_length", 1, kMaxIntermediate);
  return config;
}

json Qwen3Moe(Source& source) {
  json config = Qwen(source, /*normalised=*/true);
  config["model_type"] = "qwen3_moe";
  return config;
}

json Dbrx(Source& source) {
  GgufFields& fields = source.fields;
  const int64_t dim = HeadDim(fields), hidden = fields.Int("embedding_length", 1, kMaxHidden);
  const int64_t heads = fields.Int("attention.head_count", 1, kMaxHeads);
  CheckWholeHeadRotates(fields, dim);
  if (dim * heads != hidden) {
    fields.NotSupported("attention.key_length", absl::StrCat("heads of ", dim, " do not make up ", hidden));
  }
  CheckExpertWeights(fields, /*normalised=*/true);
  if (!Scaling(fields).is_null()) fields.NotSupported("rope.scaling.type", "not supported for dbrx, only none");
  if (constexpr double kEps = 1e-5; fields.Number("attention.layer_norm_epsilon") != kEps) {
    fields.NotSupported("attention.layer_norm_epsilon", absl::StrCat("only ", kEps, " is supported"));
  }
  if (source.Find("output.weight") == nullptr) {
    fields.Record(source.TensorError(absl::StatusCode::kInvalidArgument, "output.weight", "missing"));
  }
  json attention = {{"kv_n_heads", KeyValueHeads(fields)}, {"rope_theta", fields.Number("rope.freq_base")}};
  if (fields.NumberOr("attention.clamp_kqv", 0) > 0) attention["clip_qkv"] = fields.Number("attention.clamp_kqv");
  return {{"model_type", "dbrx"},
          {"d_model", hidden},
          {"n_layers", Layers(fields)},
          {"n_heads", heads},
          {"vocab_size", Vocabulary(source)},
          {"max_seq_len", fields.Int("context_length", 1, kMaxPositions)},
          {"attn_config", attention},
          {"ffn_config",
           {{"ffn_hidden_size", fields.Int("feed_forward_length", 1, kMaxIntermediate)},
            {"moe_num_experts", Experts(fields)},
            {"moe_top_k", ExpertsOfToken(fields)}}}};
}

// Experts as GLM-4.5 and the DeepSeek family have them, but for the choice.
void AddSharedAndRouted(GgufFields& fields, json* config) {
  const double scale = fields.NumberOr("expert_weights_scale", 1);
  (*config)["routed_scaling_factor"] = scale == 0 ? 1 : scale;  // 0: as if it were absent
  (*config)["n_routed_experts"] = Experts(fields);
  (*config)["num_experts_per_tok"] = ExpertsOfToken(fields);
  (*config)["n_shared_experts"] = fields.IntOr("expert_shared_count", 0, 0, kMaxSharedExperts);
  (*config)["first_k_dense_replace"] = fields.Int("leading_dense_block_count", 0, kMaxLayers);
  (*config)["intermediate_size"] = fields.Int("feed_forward_length", 1, kMaxIntermediate);
  (*config)["moe_intermediate_size"] = fields.Int("expert_feed_forward_length", 1, kMaxIntermediate);
}

struct Groups {
  int64_t all = 1;
  int64_t chosen = 1;
};
// `fallback`: of a file without the keys.
Groups GroupsOr(GgufFields& fields, const Groups& fallback) {
  constexpr char kAll[] = "expert_group_count", kChosen[] = "expert_group_used_count";
  if (!fields.Has(kAll) && !fields.Has(kChosen)) return fallback;
  return {std::max<int64_t>(1, fields.Int(kAll, 0, kMaxExperts)),
          std::max<int64_t>(1, fields.Int(kChosen, 0, kMaxExperts))};
}

json Glm4Moe(Source& source) {
  GgufFields& fields = source.fields;
  json config = Shape(source);
  const int64_t dim = HeadDim(fields);
  CheckGating(fields, kSigmoidGating);
  if (!fields.Has("nextn_predict_layers") && source.LayersHave(".nextn.eh_proj.weight")) {
    fields.Wrong("nextn_predict_layers", "missing, but there are layers of multi-token prediction; convert it again");
  }
  AddScaling(fields, &config);
  AddSharedAndRouted(fields, &config);
  const Groups groups = GroupsOr(fields, {});
  config["model_type"] = "glm4_moe";
  config["num_key_value_heads"] = KeyValueHeads(fields);
  config["head_dim"] = dim;
  config["partial_rotary_factor"] =
      static_cast<double>(fields.Int("rope.dimension_count", 1, dim)) / static_cast<double>(dim);
  config["attention_bias"] = source.LayersHave(".attn_q.bias");
  config["use_qk_norm"] = source.LayersHave(".attn_q_norm.weight");
  config["norm_topk_prob"] = fields.FlagOr("expert_weights_norm", true);
  config["n_group"] = groups.all;
  config["topk_group"] = groups.chosen;
  return config;
}

// Groups of models whose files are often older than the keys for them.
Groups KnownGroups(int64_t experts, int64_t layers, int64_t hidden) {
  if (experts == 256 && layers == 61 && hidden == 7168) return {8, 4};  // DeepSeek-V3 and R1
  if (experts == 160 && layers == 60 && hidden == 5120) return {8, 3};  // DeepSeek-V2 and V2.5
  return {};
}

// GLM-4.7-Flash has the same architecture in these files.
bool IsGlmFlash(const json& config) {
  const int64_t layers = config["num_hidden_layers"];
  return config["vocab_size"] == 154880 && (layers == 47 || layers == 48);
}

// Latent attention in either of two dialects: heads as they are computed, or as the cache has them.
void AddLatents(GgufFields& fields, json* config) {
  const bool mla = fields.Has("attention.key_length_mla");
  const int64_t latent = fields.Int("attention.kv_lora_rank", 1, kMaxRank);
  const int64_t rope = fields.Int("rope.dimension_count", 1, kMaxHeadDim);
  const char* const key_length = mla ? "attention.key_length_mla" : "attention.key_length";
  const int64_t key = fields.Int(key_length, 2, 2 * kMaxHeadDim);
  if (key <= rope) fields.Wrong(key_length, absl::StrCat(key, " is no more than rope.dimension_count = ", rope));
  if (mla && fields.Int("attention.key_length", 1, 2 * kMaxRank) != latent + rope) {
    fields.Wrong("attention.key_length", absl::StrCat("contradicts the latent of ", latent, " and ", rope, " numbers"));
  }
  const int64_t heads = mla ? 1 : fields.Int("attention.head_count", 1, kMaxHeads);
  if (const int64_t given = fields.IntOr("attention.head_count_kv", heads, 1, kMaxHeads); given != heads) {
    fields.Wrong("attention.head_count_kv", absl::StrCat(given, ", not ", heads, "; convert the model again"));
  }
  (*config)["kv_lora_rank"] = latent;
  (*config)["qk_rope_head_dim"] = rope;
  (*config)["qk_nope_head_dim"] = key - rope;
  (*config)["v_head_dim"] = fields.Int(mla ? "attention.value_length_mla" : "attention.value_length", 1, kMaxHeadDim);
  const int64_t rank = fields.IntOr("attention.q_lora_rank", 0, 0, kMaxRank);
  (*config)["q_lora_rank"] = rank == 0 ? json() : json(rank);
}

// The scale of attention follows from yarn_log_multiplier, a tenth of mscale_all_dim; the amplitude is 1.
void AddLatentScaling(GgufFields& fields, bool kimi, json* config) {
  json scaling = Scaling(fields);
  if (scaling.is_null()) return;
  constexpr char kMultiplier[] = "rope.scaling.yarn_log_multiplier";
  const auto multiplier = static_cast<float>(fields.Number(kMultiplier));
  if (!(multiplier > 0)) fields.Wrong(kMultiplier, "is not positive; convert the model again");
  scaling["mscale"] = scaling["mscale_all_dim"] = TenTimesDecimal(multiplier);
  // Published so; files older than the keys lost it.
  for (const char* const beta : {"beta_fast", "beta_slow"}) {
    if (kimi && !scaling.contains(beta)) scaling[beta] = 1;
  }
  (*config)["rope_scaling"] = scaling;
}

json DeepSeek2(Source& source) {
  GgufFields& fields = source.fields;
  json config = Shape(source);
  if (IsGlmFlash(config)) fields.NotSupported("block_count", "this is GLM-4.7-Flash, which is not supported");
  const GgufMetadata& metadata = fields.metadata();
  const absl::StatusOr<const std::string*> pre = metadata.Text("tokenizer.ggml.pre");
  const bool kimi = pre.ok() && **pre == "kimi-k2";
  AddLatents(fields, &config);
  AddLatentScaling(fields, kimi, &config);
  AddSharedAndRouted(fields, &config);
  const bool normalised = fields.FlagOr("expert_weights_norm", false);
  const Groups groups =
      GroupsOr(fields, KnownGroups(config["n_routed_experts"], config["num_hidden_layers"], config["hidden_size"]));
  config["n_group"] = groups.all;
  config["topk_group"] = groups.chosen;
  config["norm_topk_prob"] = normalised;
  const bool biases = source.LayersHave(".exp_probs_b.bias");
  const int64_t gating = fields.IntOr("expert_gating_func", kUnsetGating, 0, 255);
  if (gating == kSigmoidGating) {
    config["model_type"] = kimi ? "kimi_k2" : "deepseek_v3";
    config["scoring_func"] = "sigmoid";
    config["topk_method"] = "noaux_tc";
    return config;
  }
  if (gating > kSoftmaxGating)
    fields.NotSupported("expert_gating_func", absl::StrCat(gating, " is not supported, only 1 and 2"));
  if (biases)
    fields.Wrong("expert_gating_func", "says softmax, but routers have biases (exp_probs_b); convert it again");
  if (normalised) fields.NotSupported("expert_weights_norm", "true is not supported for a softmax router");
  config["model_type"] = "deepseek_v2";
  config["scoring_func"] = "softmax";
  config["topk_method"] = groups.all > 1 ? "group_limited_greedy" : "greedy";
  return config;
}

// A window in every other layer, the first included. The file has neither the bounds of activations, which are those of
// the published models, nor that YaRN does not round the bounds of its ramp.
json GptOss(Source& source) {
  GgufFields& fields = source.fields;
  json config = Shape(source);
  AddGroupedQueries(fields, &config);
  AddScaling(fields, &config);
  if (config.contains("rope_scaling")) config["rope_scaling"]["truncate"] = false;
  CheckExpertWeights(fields, /*normalised=*/true, kChosenSoftmaxGating);
  constexpr char kPattern[] = "attention.sliding_window_pattern", kBase[] = "rope.freq_base_swa";
  constexpr int64_t kEveryOther = 2;
  if (fields.IntOr(kPattern, kEveryOther, 0, kMaxLayers) != kEveryOther) {
    fields.NotSupported(kPattern, "only 2 is supported: a window in every other layer");
  }
  if (const double base = fields.Number("rope.freq_base"); fields.NumberOr(kBase, base) != base) {
    fields.NotSupported(kBase, absl::StrCat("only rope.freq_base = ", base, " is supported"));
  }
  config["model_type"] = "gpt_oss";
  config["attention_bias"] = source.LayersHave(".attn_q.bias");
  config["sliding_window"] = fields.Int("attention.sliding_window", 1, kMaxPositions);
  config["intermediate_size"] = fields.Int("expert_feed_forward_length", 1, kMaxIntermediate);
  config["num_local_experts"] = Experts(fields);
  config["num_experts_per_tok"] = ExpertsOfToken(fields);
  return config;
}

json MiniMaxM2(Source& source) {
  GgufFields& fields = source.fields;
  json config = Shape(source);
  const int64_t dim = HeadDim(fields);
  AddScaling(fields, &config);
  CheckExpertWeights(fields, /*normalised=*/true, kSigmoidGating);
  config["model_type"] = "minimax_m2";
  config["num_key_value_heads"] = KeyValueHeads(fields);
  config["head_dim"] = dim;
  config["rotary_dim"] = fields.IntOr("rope.dimension_count", dim, 1, dim);
  config["intermediate_size"] = fields.Int("expert_feed_forward_length", 1, kMaxIntermediate);
  config["num_local_experts"] = Experts(fields);
  config["num_experts_per_tok"] = ExpertsOfToken(fields);
  return config;
}

struct Architecture {
  const char* name;
  json (*config)(Source& source);
  bool has_windows = false;
};
constexpr Architecture kArchitectures[] = {
    {"dbrx", Dbrx},   {"deepseek2", DeepSeek2},  {"glm4moe", Glm4Moe},   {"gpt-oss", GptOss, /*has_windows=*/true},
    {"llama", Llama}, {"minimax-m2", MiniMaxM2}, {"qwen2moe", Qwen2Moe}, {"qwen3moe", Qwen3Moe}};

}  // namespace

absl::StatusOr<std::string> GgufConfig(const GgufModel& model) {
  MOE_ASSIGN_OR_RETURN(const std::string* const name, model.metadata.Text(kArchitecture));
  const auto* const architecture = std::ranges::find(kArchitectures, std::string_view(*name), &Architecture::name);
  if (architecture == std::end(kArchitectures)) {
    std::vector<const char*> known;
    for (const Architecture& one : kArchitectures) known.push_back(one.name);
    return model.metadata.NotSupported(
        kArchitecture,
        absl::StrCat(text::Quoted(*name), " is not supported (supported: ", absl::StrJoin(known, ", "), ")"));
  }
  absl::Status status;
  Source source{model, GgufFields(model.metadata, *name, &status)};
  RefuseOtherArithmetic(source.fields);
  if (!architecture->has_windows) RefuseWindows(source.fields);
  const json config = architecture->config(source);
  if (*name != "llama" && source.Find(kFreqs) != nullptr) {
    source.fields.Record(source.TensorError(absl::StatusCode::kUnimplemented, kFreqs, "is supported for llama only"));
  }
  MOE_RETURN_IF_ERROR(status);
  return config.dump();
}

}  // namespace moestro::checkpoint
