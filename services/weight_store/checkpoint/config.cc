#include "services/weight_store/checkpoint/config.h"

#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "services/weight_store/checkpoint/config_families.h"
#include "services/weight_store/checkpoint/config_limits.h"
#include "services/weight_store/checkpoint/config_rope.h"
#include "services/weight_store/checkpoint/json.h"
#include "services/weight_store/checkpoint/tokenizer_ids.h"

namespace moestro {
namespace {

using nlohmann::json;

constexpr char kLabel[] = "config.json";
constexpr char kQwen3Moe[] = "qwen3_moe";

void ReadFamily(JsonFields& config, ModelSpec* spec) {
  if (!config.Has("model_type")) return config.Fail("model_type", "missing");
  config.OneOf("model_type", {"deepseek_v3", "kimi_k2", kQwen3Moe});
  if (!config.ok()) return;
  const std::string family = config.StringOr("model_type", "");
  std::memcpy(spec->family, family.c_str(), family.size() + 1);  // a known name, shorter than the field
}

// What all families have.
void ReadShape(JsonFields& config, ModelSpec* spec) {
  spec->hidden_size = config.Int("hidden_size", 1, kMaxHidden);
  spec->num_layers = config.Int("num_hidden_layers", 1, kMaxLayers);
  spec->num_heads = config.Int("num_attention_heads", 1, kMaxHeads);
  spec->moe_intermediate_size = config.Int("moe_intermediate_size", 1, kMaxIntermediate);
  spec->experts_per_token = config.Int("num_experts_per_tok", 1, kMaxExperts);
  spec->vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  spec->max_position_embeddings = config.Int("max_position_embeddings", 1, kMaxPositions);
  spec->rms_norm_eps = config.Number("rms_norm_eps", 1e-12, 0.1);
}

// Choices that the families make alike; a config may leave them out.
void CheckFixedChoices(JsonFields& config) {
  config.OneOf("hidden_act", {"silu"});
  config.OnlyBool("attention_bias", false);
  config.OnlyBool("tie_word_embeddings", false);
  for (const char* key : {"torch_dtype", "dtype"}) config.OneOf(key, {"bfloat16", "float32", "float8_e4m3fn"});
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

void CheckMultiple(JsonFields& config, const char* key, int64_t value, int64_t factor) {
  if (value % factor != 0) config.Unsupported(key, absl::StrCat(value, " is not a multiple of ", factor));
}

void CheckExpertCounts(JsonFields& config, const char* experts_key, const ModelSpec& spec) {
  if (spec.num_layers * spec.num_experts > kMaxExpertsOfAllLayers) {
    config.Fail(experts_key, absl::StrCat("more than ", kMaxExpertsOfAllLayers, " experts in all layers"));
  }
  if (spec.experts_per_token > spec.num_experts) {
    config.Fail("num_experts_per_tok",
                absl::StrCat(spec.experts_per_token, " is more than ", experts_key, " = ", spec.num_experts));
  }
}

absl::StatusOr<ModelSpec> ParseModelSpec(std::string_view config_json, std::string_view tokenizer_json) {
  MOE_ASSIGN_OR_RETURN(const json document, ParseJsonObject(config_json, kLabel));
  absl::Status status;
  JsonFields config(document, kLabel, &status);
  ModelSpec spec;
  ReadFamily(config, &spec);
  CheckQuantization(config);
  CheckFixedChoices(config);
  ReadShape(config, &spec);
  ReadRope(config, &spec);
  if (std::string_view(spec.family) == kQwen3Moe) {
    ReadQwen3Moe(config, &spec);
  } else {
    ReadDeepSeek(config, &spec);
  }
  MOE_RETURN_IF_ERROR(status);
  spec.token_count = spec.vocab_size;
  if (!tokenizer_json.empty()) {
    MOE_ASSIGN_OR_RETURN(spec.token_count, TokenCount(tokenizer_json, spec.vocab_size));
  }
  return spec;
}

}  // namespace moestro
