#include "common/checkpoint/config.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/config_families.h"
#include "common/checkpoint/quantization.h"
#include "common/checkpoint/tokenizer_ids.h"
#include "common/text/json/json.h"

namespace moestro::checkpoint {

using text::JsonFields;
using weights::ModelSpec;

namespace {

using nlohmann::json;

// What each family calls its own, which config_families.h declares.
struct Family {
  const char* model_type;
  void (*read)(JsonFields& config, ModelSpec* spec);
  bool own_keys = false;  // the reader reads shape and rope, too
  bool dense = false;     // without experts; a rotation may be scaled by Llama 3's rule
  bool windows = false;   // the reader reads which layers have a window, and the limit of experts' activations
};
constexpr Family kFamilies[] = {
    {"dbrx", ReadDbrx, /*own_keys=*/true},
    {"deepseek_v2", ReadDeepSeek},
    {"deepseek_v3", ReadDeepSeek},
    {"kimi_k2", ReadDeepSeek},
    {"glm4_moe", ReadGlm4Moe},
    {"gpt_oss", ReadGptOss, /*own_keys=*/false, /*dense=*/false, /*windows=*/true},
    {"llama", ReadLlama, /*own_keys=*/false, /*dense=*/true},
    {"minimax_m2", ReadMiniMaxM2},
    {"mixtral", ReadMixtral},
    {"qwen2_moe", ReadQwen2Moe},
    {"qwen3_moe", ReadQwen3Moe},
};

// Relatives of these families, and what this engine lacks for them.
struct Neighbour {
  const char* model_type;
  const char* lacks;
};
constexpr Neighbour kNeighbours[] = {
    {"deepseek_v32", "sparse attention (DSA)"},
    {"deepseek_v4", "compressed sparse attention and hyper-connections"},
    {"glm_moe_dsa", "sparse attention (DSA)"},
    {"glm4_moe_lite", "tested latent attention with heads of 192 and 256"},
    {"glm4v_moe_text", "rotation by position in an image (M-RoPE)"},
    {"qwen3_vl_moe_text", "rotation by position in an image (M-RoPE)"},
    {"qwen3_omni_moe_text", "rotation by position in an image (M-RoPE)"},
    {"qwen3_next", "linear attention (gated delta net)"},
    {"qwen3_5_moe", "linear attention (gated delta net)"},
    {"qwen3_5_moe_text", "linear attention (gated delta net)"},
    {"kimi_linear", "linear attention (KDA)"},
    {"minimax", "linear attention (lightning attention)"},
    {"granitemoehybrid", "linear attention (Mamba 2)"},
    {"jamba", "linear attention (Mamba)"},
    {"nemotron_h", "linear attention (Mamba 2)"},
    {"llama4", "attention within chunks, and layers without rotation"},
    {"llama4_text", "attention within chunks, and layers without rotation"},
    {"mimo_v2_flash", "attention sinks, and attention within a window"},
    {"longcat_flash", "two attentions a layer, and experts that compute nothing"},
    {"gemma4_text", "attention within a window"},
};

// Null if there is a problem with model_type.
const Family* FindFamily(JsonFields& config) {
  if (!config.Has("model_type")) config.Fail("model_type", "missing");
  std::vector<const char*> known;
  for (const Family& family : kFamilies) known.push_back(family.model_type);
  for (const Neighbour& neighbour : kNeighbours) {
    if (!config.Has("model_type") || config.object()["model_type"] != neighbour.model_type) continue;
    config.Unsupported("model_type",
                       absl::StrCat("\"", neighbour.model_type, "\" is not supported: it needs ", neighbour.lacks,
                                    ", which this engine lacks (supported: ", absl::StrJoin(known, ", "), ")"));
  }
  config.OneOf("model_type", known);
  if (!config.ok()) return nullptr;
  return std::ranges::find(kFamilies, config.StringOr("model_type", ""), &Family::model_type);
}

// "default" when neither spelling is there.
std::string RopeType(JsonFields& rope, bool may_be_llama3) {
  const std::string type = rope.StringOr("rope_type", rope.StringOr("type", "default"));
  if (rope.StringOr("type", type) != type) rope.Fail("rope_type", "contradicts the field type");
  if (type != "default" && type != "yarn" && !(may_be_llama3 && type == "llama3")) {
    rope.Unsupported("rope_type", absl::StrCat(text::Describe(type), " is not supported (supported: ",
                                               may_be_llama3 ? "llama3, " : "", "yarn, or none)"));
  }
  return type;
}

// Newer configs may keep the original length beside the rope settings instead of in them.
int64_t OriginalPositions(JsonFields& config, JsonFields& rope) {
  constexpr char kOriginal[] = "original_max_position_embeddings";
  JsonFields& holder = rope.Has(kOriginal) || !config.Has(kOriginal) ? rope : config;
  return holder.Int(kOriginal, 1, kMaxPositions);
}

void ReadYarn(JsonFields& config, JsonFields& rope, ModelSpec* spec) {
  weights::YarnSpec* const yarn = &spec->yarn;
  yarn->enabled = 1;
  yarn->factor = rope.Number("factor", 1, 1e4);
  yarn->beta_fast = rope.NumberOr("beta_fast", 32, 1e-3, 1e4);
  yarn->beta_slow = rope.NumberOr("beta_slow", 1, 1e-3, 1e4);
  if (yarn->beta_fast < yarn->beta_slow) rope.Fail("beta_fast", "is less than beta_slow");
  yarn->mscale = rope.NumberOr("mscale", 0, 0, 100);
  yarn->mscale_all_dim = rope.NumberOr("mscale_all_dim", 0, 0, 100);
  yarn->attention_factor = rope.NumberOr("attention_factor", 0, 1e-3, 100);
  yarn->original_max_position_embeddings = OriginalPositions(config, rope);
  spec->yarn_between_pairs = rope.BoolOr("truncate", true) ? 0 : 1;
}

void ReadLlama3(JsonFields& config, JsonFields& rope, ModelSpec* spec) {
  spec->llama3_rope = 1;
  spec->yarn.factor = rope.Number("factor", 1, 1e4);
  spec->yarn.beta_slow = rope.Number("low_freq_factor", 1e-3, 1e4);
  spec->yarn.beta_fast = rope.Number("high_freq_factor", 1e-3, 1e4);
  if (spec->yarn.beta_fast <= spec->yarn.beta_slow) {
    rope.Fail("high_freq_factor", "is not greater than low_freq_factor");
  }
  spec->yarn.original_max_position_embeddings = OriginalPositions(config, rope);
}

// Fills rope_theta and what scales the frequencies. Problems go to the status of `config`.
void ReadRope(JsonFields& config, bool may_be_llama3, ModelSpec* spec) {
  const bool merged = config.Has("rope_parameters");
  JsonFields rope = config.Sub(merged ? "rope_parameters" : "rope_scaling");
  JsonFields& theta_holder = merged && rope.Has("rope_theta") ? rope : config;
  spec->rope_theta = theta_holder.Number("rope_theta", 1.001, 1e15);
  if (rope.object().empty()) return;
  const std::string type = RopeType(rope, may_be_llama3);
  if (type == "yarn") ReadYarn(config, rope, spec);
  if (type == "llama3") ReadLlama3(config, rope, spec);
}

// What all families have, but for the experts that dense ones lack.
void ReadShape(JsonFields& config, bool dense, ModelSpec* spec) {
  spec->hidden_size = config.Int("hidden_size", 1, kMaxHidden);
  spec->num_layers = config.Int("num_hidden_layers", 1, kMaxLayers);
  spec->num_heads = config.Int("num_attention_heads", 1, kMaxHeads);
  if (!dense) spec->experts_per_token = config.Int("num_experts_per_tok", 1, kMaxExperts);
  spec->vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  spec->max_position_embeddings = config.Int("max_position_embeddings", 1, kMaxPositions);
  spec->rms_norm_eps = config.Number("rms_norm_eps", 1e-12, 0.1);
  spec->tied_head = config.BoolOr("tie_word_embeddings", false) ? 1 : 0;
}

// Choices that the families make alike; a config may leave them out.
void CheckFixedChoices(JsonFields& config) {
  config.OneOf("hidden_act", {"silu"});
  // Activations are BF16 whatever this says; it is the type of weights that are not quantised, as a rule.
  for (const char* key : {"torch_dtype", "dtype"}) {
    config.OneOf(key, {"bfloat16", "float16", "float32", "float8_e4m3fn"});
  }
}

// Settings of relatives that change a layer's arithmetic. Other unknown fields are of training, or say what is known.
void RefuseOtherArithmetic(JsonFields& config, bool has_windows) {
  for (const char* key : {"index_topk", "attention_chunk_size", "attn_logit_softcapping", "final_logit_softcapping",
                          "swiglu_limit", "compress_ratios", "linear_num_value_heads"}) {
    if (has_windows && std::string_view(key) == "swiglu_limit") continue;
    if (config.Has(key)) config.Unsupported(key, "not supported; no supported family has this field");
  }
  for (const char* key : {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}) {
    if (config.NumberOr(key, 1, -1e30, 1e30) != 1) config.Unsupported(key, "only 1 is supported");
  }
  config.OnlyBool("mlp_bias", false);
  if (has_windows || !config.Has("layer_types")) return;
  const json& types = config.object()["layer_types"];
  const bool full = types.is_array() && std::ranges::all_of(types, [](const json& t) { return t == "full_attention"; });
  if (!full) config.Unsupported("layer_types", "only full_attention in every layer is supported");
}

constexpr char kRotaryFactor[] = "partial_rotary_factor";

// Choices that only some families leave to the config: their readers have set the fields.
void CheckAttentionChoices(JsonFields& config, const ModelSpec& spec) {
  if (spec.qkv_biases == 0) config.OnlyBool("attention_bias", false);
  if (spec.rotary_dims == 0 && config.NumberOr(kRotaryFactor, 1, 0, 1) != 1) {
    config.Unsupported(kRotaryFactor, "only 1 is supported");
  }
}

// A head that is not given is an even part of the hidden size.
int64_t HeadDim(JsonFields& config, const ModelSpec& spec) {
  if (config.Has("head_dim")) return config.Int("head_dim", 1, kMaxHeadDim);
  if (spec.hidden_size % spec.num_heads != 0) {
    config.Fail("head_dim", absl::StrCat("missing, and num_attention_heads = ", spec.num_heads,
                                         " does not divide hidden_size = ", spec.hidden_size));
  }
  return spec.hidden_size / spec.num_heads;
}

}  // namespace

void CheckMultiple(JsonFields& config, const char* key, int64_t value, int64_t factor) {
  if (value % factor != 0) config.Unsupported(key, absl::StrCat(value, " is not a multiple of ", factor));
}

double PartialRotaryFactor(JsonFields& config, double fallback) {
  return config.NumberOr(kRotaryFactor, fallback, 0, 1);
}

void SetRotaryDims(JsonFields& config, const char* key, double dims, ModelSpec* spec) {
  const auto whole = static_cast<int64_t>(dims);
  if (static_cast<double>(whole) != dims || whole < 2 || whole % 2 != 0 || whole > spec->v_head_dim) {
    config.Unsupported(key, absl::StrCat(dims, " of the ", spec->v_head_dim,
                                         " numbers of a head rotate; only an even number, at least 2, is supported"));
  }
  spec->rotary_dims = whole == spec->v_head_dim ? 0 : whole;
}

void ReadGroupedQueries(JsonFields& config, ModelSpec* spec) {
  spec->num_kv_heads = config.IntOr("num_key_value_heads", spec->num_heads, 1, kMaxHeads);
  if (spec->num_heads % spec->num_kv_heads != 0) {
    config.Fail("num_key_value_heads",
                absl::StrCat(spec->num_kv_heads, " does not divide num_attention_heads = ", spec->num_heads));
  }
  spec->v_head_dim = HeadDim(config, *spec);
  CheckMultiple(config, "head_dim", spec->v_head_dim, 64);
  spec->qk_rope_head_dim = spec->v_head_dim;
}

void CheckExpertCounts(JsonFields& config, const char* experts_key, const ModelSpec& spec, const char* chosen_key) {
  if (spec.num_layers * spec.num_experts > kMaxExpertsOfAllLayers) {
    config.Fail(experts_key, absl::StrCat("more than ", kMaxExpertsOfAllLayers, " experts in all layers"));
  }
  if (spec.experts_per_token > spec.num_experts) {
    config.Fail(chosen_key,
                absl::StrCat(spec.experts_per_token, " is more than ", experts_key, " = ", spec.num_experts));
  }
}

absl::StatusOr<ModelSpec> ParseModelSpec(std::string_view config_json, std::string_view tokenizer_json) {
  MOE_ASSIGN_OR_RETURN(json parsed, text::ParseJsonObject(config_json, "config.json"));
  MOE_ASSIGN_OR_RETURN(const ConfigDocument document, InOneSpelling(std::move(parsed)));
  absl::Status status;
  JsonFields config(document.json, document.label, &status);
  const Family* const family = FindFamily(config);
  MOE_RETURN_IF_ERROR(status);
  ModelSpec spec;
  std::strcpy(spec.family, family->model_type);  // shorter than the field
  ReadQuantization(config);
  CheckFixedChoices(config);
  RefuseOtherArithmetic(config, family->windows);
  if (!family->own_keys) {
    ReadShape(config, family->dense, &spec);
    ReadRope(config, /*may_be_llama3=*/family->dense, &spec);
  }
  family->read(config, &spec);
  CheckAttentionChoices(config, spec);
  MOE_RETURN_IF_ERROR(status);
  spec.token_count = spec.vocab_size;
  if (!tokenizer_json.empty()) {
    MOE_ASSIGN_OR_RETURN(spec.token_count, TokenCount(tokenizer_json, spec.vocab_size));
  }
  return spec;
}

absl::StatusOr<int64_t> PredictionLayers(std::string_view config_json) {
  MOE_ASSIGN_OR_RETURN(json parsed, text::ParseJsonObject(config_json, "config.json"));
  MOE_ASSIGN_OR_RETURN(const ConfigDocument document, InOneSpelling(std::move(parsed)));
  absl::Status status;
  JsonFields config(document.json, document.label, &status);
  const int64_t layers = config.IntOr("num_nextn_predict_layers", 0, 0, kMaxLayers);
  MOE_RETURN_IF_ERROR(status);
  return layers;
}

}  // namespace moestro::checkpoint
