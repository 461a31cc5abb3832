#include "services/weight_store/checkpoint/config.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/weight_store/checkpoint/config_rope.h"
#include "services/weight_store/checkpoint/json.h"
#include "services/weight_store/checkpoint/tokenizer_ids.h"

namespace moestro {
namespace {

using nlohmann::json;

constexpr char kLabel[] = "config.json";
constexpr const char* kFamilies[] = {"deepseek_v3", "kimi_k2"};

// Several times the largest published models. Together they keep every product that the engine forms (parameters and
// bytes of the whole model) below 2^58, and the list of expected tensors below a million entries.
constexpr int64_t kMaxHidden = int64_t{1} << 17;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxRank = int64_t{1} << 17;
constexpr int64_t kMaxIntermediate = int64_t{1} << 18;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxSharedExperts = 64;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 27;
constexpr int64_t kMaxExpertsOfAllLayers = int64_t{1} << 18;

void ReadFamily(JsonFields& config, ModelSpec* spec) {
  if (!config.Has("model_type")) return config.Fail("model_type", "missing");
  config.OneOf("model_type", {kFamilies[0], kFamilies[1]});
  if (!config.ok()) return;
  const std::string family = config.StringOr("model_type", "");
  std::memcpy(spec->family, family.c_str(), family.size() + 1);  // a known name, shorter than the field
}

void ReadShape(JsonFields& config, ModelSpec* spec) {
  spec->hidden_size = config.Int("hidden_size", 1, kMaxHidden);
  spec->num_layers = config.Int("num_hidden_layers", 1, kMaxLayers);
  spec->num_heads = config.Int("num_attention_heads", 1, kMaxHeads);
  spec->q_lora_rank = config.Int("q_lora_rank", 1, kMaxRank);
  spec->kv_lora_rank = config.Int("kv_lora_rank", 1, kMaxRank);
  spec->qk_nope_head_dim = config.Int("qk_nope_head_dim", 1, kMaxHeadDim);
  spec->qk_rope_head_dim = config.Int("qk_rope_head_dim", 1, kMaxHeadDim);
  spec->v_head_dim = config.Int("v_head_dim", 1, kMaxHeadDim);
  spec->intermediate_size = config.Int("intermediate_size", 1, kMaxIntermediate);
  spec->vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  spec->max_position_embeddings = config.Int("max_position_embeddings", 1, kMaxPositions);
  spec->rms_norm_eps = config.Number("rms_norm_eps", 1e-12, 0.1);
  // The reference implementation builds the q_a and kv_a norms without passing rms_norm_eps on.
  spec->lora_norm_eps = 1e-6;
}

void ReadExperts(JsonFields& config, ModelSpec* spec) {
  spec->moe_intermediate_size = config.Int("moe_intermediate_size", 1, kMaxIntermediate);
  spec->num_experts = config.Int("n_routed_experts", 1, kMaxExperts);
  spec->experts_per_token = config.Int("num_experts_per_tok", 1, kMaxExperts);
  spec->num_shared_experts = config.IntOr("n_shared_experts", 0, 0, kMaxSharedExperts);
  spec->first_dense_layers = config.Int("first_k_dense_replace", 0, kMaxLayers);
  spec->num_expert_groups = config.Int("n_group", 1, kMaxExperts);
  spec->experts_topk_groups = config.Int("topk_group", 1, kMaxExperts);
  spec->norm_topk_prob = config.BoolOr("norm_topk_prob", true) ? 1 : 0;
  spec->routed_scaling_factor = config.Number("routed_scaling_factor", 1e-6, 1e6);
}

// Choices that these families have always made alike; a config may leave them out.
void CheckFixedChoices(JsonFields& config) {
  config.OneOf("scoring_func", {"sigmoid"});
  config.OneOf("topk_method", {"noaux_tc"});
  config.OneOf("hidden_act", {"silu"});
  config.OnlyBool("attention_bias", false);
  config.OnlyBool("tie_word_embeddings", false);
  if (config.IntOr("moe_layer_freq", 1, 0, kMaxLayers) != 1)
    config.Unsupported("moe_layer_freq", "only 1 is supported");
  for (const char* key : {"torch_dtype", "dtype"}) config.OneOf(key, {"bfloat16", "float32", "float8_e4m3fn"});
}

void CheckMultiple(JsonFields& config, const char* key, int64_t value, int64_t factor) {
  if (value % factor != 0) config.Unsupported(key, absl::StrCat(value, " is not a multiple of ", factor));
}

void CheckAttentionShape(JsonFields& config, const ModelSpec& spec) {
  CheckMultiple(config, "qk_nope_head_dim", spec.qk_nope_head_dim, 64);
  CheckMultiple(config, "v_head_dim", spec.v_head_dim, 64);
  CheckMultiple(config, "kv_lora_rank", spec.kv_lora_rank, 64);
  CheckMultiple(config, "qk_rope_head_dim", spec.qk_rope_head_dim, 2);
}

void CheckExpertRelations(JsonFields& config, const ModelSpec& spec) {
  const int64_t groups = spec.num_expert_groups;
  if (spec.first_dense_layers > spec.num_layers) {
    config.Fail("first_k_dense_replace",
                absl::StrCat(spec.first_dense_layers, " is more than num_hidden_layers = ", spec.num_layers));
  }
  if (spec.num_layers * spec.num_experts > kMaxExpertsOfAllLayers) {
    config.Fail("n_routed_experts", absl::StrCat("more than ", kMaxExpertsOfAllLayers, " experts in all layers"));
  }
  if (spec.experts_per_token > spec.num_experts) {
    config.Fail("num_experts_per_tok",
                absl::StrCat(spec.experts_per_token, " is more than n_routed_experts = ", spec.num_experts));
  }
  if (spec.num_experts % groups != 0) {
    config.Fail("n_group", absl::StrCat(groups, " does not divide n_routed_experts = ", spec.num_experts));
  }
  if (spec.experts_topk_groups > groups) {
    config.Fail("topk_group", absl::StrCat(spec.experts_topk_groups, " is more than n_group = ", groups));
  }
  const int64_t group_size = spec.num_experts / groups;
  if (groups > 1 && group_size < 2) {  // a group's score is the sum of its two best experts
    config.Fail("n_group", absl::StrCat(groups, " groups leave fewer than 2 experts in a group"));
  }
  if (spec.experts_per_token > spec.experts_topk_groups * group_size) {
    config.Fail("num_experts_per_tok",
                absl::StrCat(spec.experts_per_token, " is more than the ", spec.experts_topk_groups * group_size,
                             " experts in topk_group groups"));
  }
  if (std::string_view(spec.family) == "kimi_k2" && groups != 1) {
    config.Unsupported("n_group", absl::StrCat(groups, " is not supported for kimi_k2, only 1"));
  }
}

// Block-scaled FP8 or nothing. Which tensors are FP8 is read from the files, not from here.
void CheckQuantization(JsonFields& config) {
  if (!config.Has("quantization_config")) return;
  JsonFields quantization = config.Sub("quantization_config");
  if (!quantization.Has("quant_method")) quantization.Fail("quant_method", "missing");
  quantization.OneOf("quant_method", {"fp8"});
  quantization.OneOf("fmt", {"e4m3"});
  quantization.OneOf("activation_scheme", {"dynamic"});
  if (!config.ok()) return;
  const auto block = quantization.object().find("weight_block_size");
  if (block == quantization.object().end() || *block != json::array({128, 128})) {
    quantization.Unsupported("weight_block_size", "only [128, 128] is supported");
  }
}

}  // namespace

absl::StatusOr<ModelSpec> ParseModelSpec(std::string_view config_json, std::string_view tokenizer_json) {
  MOE_ASSIGN_OR_RETURN(const json document, ParseJsonObject(config_json, kLabel));
  absl::Status status;
  JsonFields config(document, kLabel, &status);
  ModelSpec spec;
  ReadFamily(config, &spec);
  CheckQuantization(config);
  CheckFixedChoices(config);
  ReadShape(config, &spec);
  ReadExperts(config, &spec);
  ReadRope(config, &spec);
  CheckAttentionShape(config, spec);
  CheckExpertRelations(config, spec);
  MOE_RETURN_IF_ERROR(status);
  spec.token_count = spec.vocab_size;
  if (!tokenizer_json.empty()) {
    MOE_ASSIGN_OR_RETURN(spec.token_count, TokenCount(tokenizer_json, spec.vocab_size));
  }
  return spec;
}

}  // namespace moestro
