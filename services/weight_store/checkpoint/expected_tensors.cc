#include "absl/strings/str_cat.h"
#include "services/weight_store/checkpoint/inventory.h"

namespace moestro {
namespace {

using Kind = ExpectedTensor::Kind;

class Lister {
 public:
  explicit Lister(const ModelSpec& spec) : spec_(spec) {}

  std::vector<ExpectedTensor> List() && {
    Add("model.embed_tokens.weight", {spec_.vocab_size, spec_.hidden_size}, Kind::kEmbedding);
    for (int64_t layer = 0; layer < spec_.num_layers; ++layer) AddLayer(layer);
    Add("model.norm.weight", {spec_.hidden_size}, Kind::kNorm);
    Add("lm_head.weight", {spec_.vocab_size, spec_.hidden_size}, Kind::kEmbedding);
    return std::move(tensors_);
  }

 private:
  void Add(std::string name, std::vector<int64_t> shape, Kind kind) {
    tensors_.push_back({std::move(name), std::move(shape), kind});
  }

  void AddLayer(int64_t layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    Add(prefix + "input_layernorm.weight", {spec_.hidden_size}, Kind::kNorm);
    AddAttention(prefix + "self_attn.");
    Add(prefix + "post_attention_layernorm.weight", {spec_.hidden_size}, Kind::kNorm);
    if (spec_.IsMoeLayer(layer)) {
      AddExperts(prefix + "mlp.");
    } else {
      AddMlp(prefix + "mlp.", spec_.intermediate_size);
    }
  }

  void AddAttention(const std::string& prefix) {
    const int64_t hidden = spec_.hidden_size, heads = spec_.num_heads;
    if (spec_.has_grouped_queries()) {
      AddGroupedQueries(prefix);
      return;
    }
    Add(prefix + "q_a_proj.weight", {spec_.q_lora_rank, hidden}, Kind::kLinear);
    Add(prefix + "q_a_layernorm.weight", {spec_.q_lora_rank}, Kind::kNorm);
    Add(prefix + "q_b_proj.weight", {heads * spec_.qk_head_dim(), spec_.q_lora_rank}, Kind::kLinear);
    Add(prefix + "kv_a_proj_with_mqa.weight", {spec_.kv_dim(), hidden}, Kind::kLinear);
    Add(prefix + "kv_a_layernorm.weight", {spec_.kv_lora_rank}, Kind::kNorm);
    Add(prefix + "kv_b_proj.weight", {heads * (spec_.qk_nope_head_dim + spec_.v_head_dim), spec_.kv_lora_rank},
        Kind::kLinear);
    Add(prefix + "o_proj.weight", {hidden, heads * spec_.v_head_dim}, Kind::kLinear);
  }

  void AddGroupedQueries(const std::string& prefix) {
    const int64_t hidden = spec_.hidden_size, dim = spec_.v_head_dim;
    Add(prefix + "q_proj.weight", {spec_.num_heads * dim, hidden}, Kind::kLinear);
    Add(prefix + "q_norm.weight", {dim}, Kind::kNorm);
    Add(prefix + "k_proj.weight", {spec_.num_kv_heads * dim, hidden}, Kind::kLinear);
    Add(prefix + "k_norm.weight", {dim}, Kind::kNorm);
    Add(prefix + "v_proj.weight", {spec_.num_kv_heads * dim, hidden}, Kind::kLinear);
    Add(prefix + "o_proj.weight", {hidden, spec_.num_heads * dim}, Kind::kLinear);
  }

  void AddExperts(const std::string& prefix) {
    Add(prefix + "gate.weight", {spec_.num_experts, spec_.hidden_size}, Kind::kRouter);
    if (spec_.softmax_router == 0) Add(prefix + "gate.e_score_correction_bias", {spec_.num_experts}, Kind::kBias);
    for (int64_t expert = 0; expert < spec_.num_experts; ++expert) {
      AddMlp(absl::StrCat(prefix, "experts.", expert, "."), spec_.moe_intermediate_size);
    }
    if (spec_.num_shared_experts > 0) AddMlp(prefix + "shared_experts.", spec_.shared_intermediate_size());
  }

  void AddMlp(const std::string& prefix, int64_t width) {
    Add(prefix + "gate_proj.weight", {width, spec_.hidden_size}, Kind::kLinear);
    Add(prefix + "up_proj.weight", {width, spec_.hidden_size}, Kind::kLinear);
    Add(prefix + "down_proj.weight", {spec_.hidden_size, width}, Kind::kLinear);
  }

  const ModelSpec& spec_;
  std::vector<ExpectedTensor> tensors_;
};

}  // namespace

std::vector<ExpectedTensor> ExpectedTensors(const ModelSpec& spec) { return Lister(spec).List(); }

int64_t ParameterCount(const ModelSpec& spec) {
  int64_t total = 0;
  for (const ExpectedTensor& tensor : ExpectedTensors(spec)) {
    int64_t elements = 1;
    for (const int64_t extent : tensor.shape) elements *= extent;
    total += elements;
  }
  return total;
}

}  // namespace moestro
