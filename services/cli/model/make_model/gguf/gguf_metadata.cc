#include "services/cli/model/make_model/gguf/gguf_metadata.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/cli/model/make_model/gguf/gguf_plan.h"
#include "services/cli/model/make_model/tokenizer_files.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

// Numbers of types of values in the file.
constexpr uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;
// Numbers of tokenizer.ggml.token_type.
constexpr int32_t kNormalToken = 1, kControlToken = 3, kUnusedToken = 5;
// Numbers of expert_gating_func.
constexpr int64_t kSoftmax = 1, kSigmoid = 2;

class Writer {
 public:
  void Integer(const std::string& key, int64_t value) { Add(key, kUint32, Raw(static_cast<uint32_t>(value))); }
  void Float(const std::string& key, double value) { Add(key, kFloat32, Raw(static_cast<float>(value))); }
  void Flag(const std::string& key, bool value) { Add(key, kBool, Raw(static_cast<uint8_t>(value))); }
  void Text(const std::string& key, const std::string& value) { Add(key, kString, GgufString(value)); }
  void Texts(const std::string& key, const std::vector<std::string>& values) {
    std::string bytes = Raw(kString) + Raw(uint64_t{values.size()});
    for (const std::string& value : values) bytes += GgufString(value);
    Add(key, kArray, bytes);
  }
  void Integers(const std::string& key, const std::vector<int32_t>& values) {
    std::string bytes = Raw(kInt32) + Raw(uint64_t{values.size()});
    for (const int32_t value : values) bytes += Raw(value);
    Add(key, kArray, bytes);
  }

  GgufMetadataBytes Take() { return std::move(result_); }

 private:
  template <typename T>
  static std::string Raw(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  void Add(const std::string& key, uint32_t type, const std::string& value) {
    result_.bytes += GgufString(key) + Raw(type) + value;
    ++result_.keys;
  }

  GgufMetadataBytes result_;
};

// The keys of a model begin with its architecture.
class ModelKeys {
 public:
  ModelKeys(const MadeModel& model, std::string_view architecture, Writer& writer)
      : model_(model), spec_(model.spec), prefix_(std::string(architecture) + "."), writer_(writer) {}

  void Write() {
    Integer("block_count", spec_.num_layers);
    Integer("context_length", spec_.max_position_embeddings);
    Integer("embedding_length", spec_.hidden_size);
    Integer("feed_forward_length",
            dbrx() ? spec_.moe_intermediate_size : model_.config["intermediate_size"].get<int64_t>());
    Integer("vocab_size", spec_.vocab_size);
    Integer("attention.head_count", spec_.num_heads);
    Float(dbrx() ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", spec_.rms_norm_eps);
    if (dbrx()) Float("attention.clamp_kqv", spec_.clip_qkv);
    Float("rope.freq_base", spec_.rope_theta);
    if (spec_.attention_kind() == weights::AttentionKind::kLatent) {
      Latents();
    } else {
      Integer("attention.head_count_kv", spec_.num_kv_heads);
      Integer("attention.key_length", spec_.head_dim());
      Integer("attention.value_length", spec_.head_dim());
      Integer("rope.dimension_count", spec_.rotated_dims());
      if (spec_.sliding_window > 0) Integer("attention.sliding_window", spec_.sliding_window);
      if (gpt_oss()) Yarn();
    }
    if (spec_.num_experts > 0) Experts();
  }

 private:
  bool dbrx() const { return prefix_ == "dbrx."; }
  bool gpt_oss() const { return prefix_ == "gpt-oss."; }
  void Integer(const std::string& key, int64_t value) { writer_.Integer(prefix_ + key, value); }
  void Float(const std::string& key, double value) { writer_.Float(prefix_ + key, value); }

  // Heads as the cache has them: one key and value for all.
  void Latents() {
    Integer("attention.head_count_kv", 1);
    Integer("attention.key_length", spec_.kv_lora_rank + spec_.qk_rope_head_dim);
    Integer("attention.value_length", spec_.kv_lora_rank);
    Integer("attention.key_length_mla", spec_.qk_head_dim());
    Integer("attention.value_length_mla", spec_.v_head_dim);
    if (spec_.q_lora_rank > 0) Integer("attention.q_lora_rank", spec_.q_lora_rank);
    Integer("attention.kv_lora_rank", spec_.kv_lora_rank);
    Integer("rope.dimension_count", spec_.qk_rope_head_dim);
    if (spec_.yarn.enabled == 0) return;
    Yarn();
    Float("rope.scaling.yarn_log_multiplier", 0.1 * spec_.yarn.mscale_all_dim);
  }

  void Yarn() {
    const weights::YarnSpec& yarn = spec_.yarn;
    writer_.Text(prefix_ + "rope.scaling.type", "yarn");
    Float("rope.scaling.factor", yarn.factor);
    Integer("rope.scaling.original_context_length", yarn.original_max_position_embeddings);
    Float("rope.scaling.yarn_beta_fast", yarn.beta_fast);
    Float("rope.scaling.yarn_beta_slow", yarn.beta_slow);
  }

  void Experts() {
    Integer("expert_count", spec_.num_experts);
    Integer("expert_used_count", spec_.experts_per_token);
    if (prefix_ == "llama." || dbrx()) return;
    Integer("expert_feed_forward_length", spec_.moe_intermediate_size);
    if (spec_.shared_expert_gate != 0) Integer("expert_shared_feed_forward_length", spec_.shared_expert_width);
    if (prefix_ == "qwen2moe." || prefix_ == "qwen3moe." || gpt_oss()) return;
    if (prefix_ == "minimax-m2.") return Integer("expert_gating_func", kSigmoid);
    Integer("expert_shared_count", spec_.num_shared_experts);
    Integer("leading_dense_block_count", spec_.first_dense_layers);
    Integer("expert_gating_func", spec_.softmax_router != 0 ? kSoftmax : kSigmoid);
    Float("expert_weights_scale", spec_.routed_scaling_factor);
    writer_.Flag(prefix_ + "expert_weights_norm", spec_.norm_topk_prob != 0);
    Integer("expert_group_count", spec_.num_expert_groups);
    Integer("expert_group_used_count", spec_.experts_topk_groups);
  }

  const MadeModel& model_;
  const weights::ModelSpec& spec_;
  const std::string prefix_;
  Writer& writer_;
};

// Rows of the embedding past the last token have names, too.
void AddTokenizer(int64_t rows, Writer& writer) {
  const json tokenizer = json::parse(kTokenizerJson), config = json::parse(kTokenizerConfigJson);
  std::vector<std::string> tokens;
  for (int64_t id = 0; id < rows; ++id) tokens.push_back(absl::StrCat("[PAD", id, "]"));
  std::vector<int32_t> types(tokens.size(), kUnusedToken);
  const auto add = [&](size_t id, const std::string& text, int32_t type) {
    tokens[id] = text;
    types[id] = type;
  };
  for (const auto& [text, id] : tokenizer["model"]["vocab"].items()) add(id, text, kNormalToken);
  for (const json& token : tokenizer["added_tokens"]) add(token["id"], token["content"], kControlToken);
  writer.Text("tokenizer.ggml.model", "gpt2");
  writer.Text("tokenizer.ggml.pre", "deepseek-v3");
  writer.Texts("tokenizer.ggml.tokens", tokens);
  writer.Integers("tokenizer.ggml.token_type", types);
  writer.Texts("tokenizer.ggml.merges", tokenizer["model"]["merges"]);
  writer.Integer("tokenizer.ggml.bos_token_id", kBosId);
  writer.Integer("tokenizer.ggml.eos_token_id", kEosId);
  writer.Integer("tokenizer.ggml.padding_token_id", kEosId);
  writer.Flag("tokenizer.ggml.add_bos_token", config["add_bos_token"]);
  writer.Flag("tokenizer.ggml.add_eos_token", config["add_eos_token"]);
  writer.Text("tokenizer.chat_template", config["chat_template"].get<std::string>());
}

}  // namespace

std::string_view GgufArchitecture(const MadeModel& model) {
  static constexpr std::pair<std::string_view, std::string_view> kArchitectures[] = {
      {"llama", "llama"},     {"mixtral", "llama"},        {"qwen2_moe", "qwen2moe"},    {"qwen3_moe", "qwen3moe"},
      {"dbrx", "dbrx"},       {"glm4_moe", "glm4moe"},     {"deepseek_v2", "deepseek2"}, {"deepseek_v3", "deepseek2"},
      {"gpt_oss", "gpt-oss"}, {"minimax_m2", "minimax-m2"}};
  const auto* const found = std::ranges::find(kArchitectures, std::string_view(model.spec.family),
                                              &std::pair<std::string_view, std::string_view>::first);
  const bool some_dense = model.spec.dense_layers[0] != 0 || model.spec.dense_layers[1] != 0;  // there is no key for it
  return found == std::end(kArchitectures) || some_dense ? std::string_view() : found->second;
}

GgufMetadataBytes GgufMetadataOf(const MadeModel& model, const std::string& name) {
  Writer writer;
  const std::string_view architecture = GgufArchitecture(model);
  writer.Text("general.architecture", std::string(architecture));
  writer.Text("general.type", "model");
  writer.Text("general.name", name);
  writer.Integer("general.alignment", kGgufAlignment);
  writer.Integer("general.quantization_version", 2);
  writer.Integer("general.file_type", GgufFileType(model.weights));
  ModelKeys(model, architecture, writer).Write();
  AddTokenizer(model.spec.vocab_size, writer);
  return writer.Take();
}

}  // namespace moestro::cli
