// The tensors of a model, said once: the weights as the engine holds them, and name, role and shape of each. Whoever
// lists tensors (binding, a checkpoint's inventory, the segment's plan, simulated weights, make-model) loops over
// ForEachTensor or the lists.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tensor/packed_matrix.h"
#include "common/weights/model_spec.h"
#include "common/weights/tensor_size.h"

namespace moestro::model {

// down(silu(gate(x)) * up(x)); gate and up [width, hidden], down [hidden, width]. Routed experts: with the activation
// of ModelSpec::swiglu_limit.
struct MlpWeights {
  PackedMatrix gate;
  PackedMatrix up;
  PackedMatrix down;
  const float* gate_bias = nullptr;  // [width]; null, like the next two, when there are no biases
  const float* up_bias = nullptr;    // [width]
  const float* down_bias = nullptr;  // [hidden]
};

// MLA has the ranks and the latents, grouped queries (GQA) k, v and the norms of heads; what the other kind has is
// null.
struct AttentionWeights {
  const float* input_norm = nullptr;  // [hidden]
  PackedMatrix q_a;                   // [q_lora_rank, hidden]; null when q_lora_rank is 0
  const float* q_a_norm = nullptr;    // [q_lora_rank]; null when q_lora_rank is 0
  PackedMatrix q_b;                   // [heads * qk_head_dim, q_lora_rank, or hidden when q_lora_rank is 0]
  PackedMatrix kv_a;                  // [kv_lora_rank + qk_rope_head_dim, hidden]
  const float* kv_a_norm = nullptr;   // [kv_lora_rank]
  PackedMatrix kv_b;                  // [heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]
  PackedMatrix key_transposed;        // [heads * kv_lora_rank, qk_nope_head_dim]
  PackedMatrix k;                     // [kv_heads * head_dim, hidden]
  PackedMatrix v;                     // [kv_heads * head_dim, hidden]
  const float* q_norm = nullptr;      // [head_dim], of every head, or of all heads [heads * head_dim]; null: no norms
  const float* k_norm = nullptr;      // [head_dim], or of all heads [kv_heads * head_dim]; null: no norms
  const float* q_bias = nullptr;      // [heads * head_dim]; null, like the next two, when there are no biases
  const float* k_bias = nullptr;      // [kv_heads * head_dim]
  const float* v_bias = nullptr;      // [kv_heads * head_dim]
  PackedMatrix o;                     // [hidden, heads * v_head_dim]
  const float* o_bias = nullptr;      // [hidden]; null: no bias
  const float* sinks = nullptr;       // [heads]: a score of no token; null: none
  int64_t window = 0;                 // a token sees the last so many, itself included; 0: all before it
};

// A dense layer is a MoE layer without routed experts: its MLP takes the place of the shared expert.
struct FeedForwardWeights {
  const float* norm = nullptr;         // [hidden]
  const float* router = nullptr;       // [num_experts, hidden]; null in a dense layer
  const float* bias = nullptr;         // [num_experts], of scores; null when the router has none
  const float* logit_bias = nullptr;   // [num_experts]; null when the router has none
  std::vector<MlpWeights> experts;     // by id; empty in a dense layer
  MlpWeights dense;                    // dense MLP or shared expert; dense.gate.rows is 0 if there is neither
  const float* shared_gate = nullptr;  // [hidden]; null when the shared expert's output is taken as it is
  // By domain of the workers, if each domain's rows of the experts lie apart: the same, of which only DomainRows
  // (moe_tasks.h) may be read. Then of `experts` only shapes and types are. Empty: they have all rows.
  std::vector<std::vector<MlpWeights>> domain_experts = {};
};

struct LayerWeights {
  AttentionWeights attention;
  FeedForwardWeights feed_forward;
};

// Row-major: lookups are by row.
struct Embedding {
  DType dtype = DType::kBF16;     // BF16, F16 or a format of blocks
  const uint8_t* data = nullptr;  // [vocab_size, hidden]

  // The row of `token` in BF16. REQUIRES: dtype == kBF16.
  const uint16_t* Bf16Row(int64_t token, int64_t hidden) const {
    return reinterpret_cast<const uint16_t*>(data) + token * hidden;
  }
};

struct ModelWeights {
  Embedding embedding;
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;  // [hidden]
  PackedMatrix head;                  // [vocab_size, hidden]
};

// Decides a tensor's types: in a checkpoint (inventory.h), and in the segment, where a field of ModelWeights is the
// embedding (Embedding), F32 row-major (float) or packed (PackedMatrix).
enum class TensorRole {
  kEmbedding,
  kHead,  // checkpoints lack a tied one: the segment has the embedding a second time, packed
  kNorm,
  kRouter,
  kRouterBias,
  kBias,   // added to the outputs of a linear layer, or to a router's logits
  kSinks,  // of heads
  // Linear layers:
  kLinear,           // of none of the following roles
  kQueries,          // its outputs are the heads' queries
  kOutput,           // its outputs are added to the residual
  kLatentUp,         // MLA: from a latent to keys and values of all heads
  kKeyUpTransposed,  // kLatentUp's key half, transposed per head, for the absorbed form. Checkpoints lack it. It
                     // follows kLatentUp in every loop
};
constexpr bool IsLinear(TensorRole role) { return role >= TensorRole::kLinear; }
// Norms, routers and biases: F32 in the segment, whatever exact type was published.
constexpr bool IsWidened(TensorRole role) {
  return !IsLinear(role) && role != TensorRole::kEmbedding && role != TensorRole::kHead;
}

enum class TensorPart { kModel, kAttention, kRouting, kDenseMlp, kExpert, kSharedExpert };

// A row of the tables below.
struct TensorRow {
  const char* suffix;  // of the name; an MLP's prefix is the caller's
  TensorRole role;
  int64_t rows;  // 1: a vector
  int64_t cols;
};

struct ModelTensor {
  std::string name;  // in CheckpointTensors as the family publishes it, else as the segment keeps it
  TensorPart part;
  TensorRole role;
  int64_t rows;
  int64_t cols;
  // Of CheckpointTensors: the segment has it as several tensors; then it may have more than two dimensions, of which
  // `rows` counts all but the last.
  bool in_parts = false;
  std::vector<int64_t> dims = {};

  bool is_vector() const {
    return role == TensorRole::kNorm || role == TensorRole::kRouterBias || role == TensorRole::kBias ||
           role == TensorRole::kSinks;
  }
  int64_t elements() const { return rows * cols; }
  std::vector<int64_t> shape() const {
    return !dims.empty() ? dims : is_vector() ? std::vector{cols} : std::vector{rows, cols};
  }
};

inline constexpr const char kEmbeddingName[] = "model.embed_tokens.weight";
inline constexpr const char kHeadName[] = "lm_head.weight";

// Each calls visit(tensor, field) in order of use, where field is the tensor's PackedMatrix&, const float*& or
// Embedding& of the weights. What the model lacks is left out.

template <typename Visit>
void ForEachTensor(const weights::ModelSpec& spec, AttentionWeights& w, const Visit& visit) {
  using enum TensorRole;
  const int64_t hidden = spec.hidden_size, heads = spec.num_heads, rank = spec.q_lora_rank;
  visit(TensorRow{"input_layernorm.weight", kNorm, 1, hidden}, w.input_norm);
  if (spec.attention_kind() == weights::AttentionKind::kGroupedQueries) {
    const int64_t dim = spec.head_dim(), keys = spec.num_kv_heads * dim;
    const bool norms = spec.heads_without_norms == 0, all = spec.norms_of_all_heads != 0;
    const bool biases = spec.qkv_biases != 0;
    visit(TensorRow{"self_attn.q_proj.weight", kQueries, heads * dim, hidden}, w.q_b);
    if (biases) visit(TensorRow{"self_attn.q_proj.bias", kBias, 1, heads * dim}, w.q_bias);
    if (norms) visit(TensorRow{"self_attn.q_norm.weight", kNorm, 1, all ? heads * dim : dim}, w.q_norm);
    visit(TensorRow{"self_attn.k_proj.weight", kLinear, keys, hidden}, w.k);
    if (biases) visit(TensorRow{"self_attn.k_proj.bias", kBias, 1, keys}, w.k_bias);
    if (norms) visit(TensorRow{"self_attn.k_norm.weight", kNorm, 1, all ? keys : dim}, w.k_norm);
    visit(TensorRow{"self_attn.v_proj.weight", kLinear, keys, hidden}, w.v);
    if (biases) visit(TensorRow{"self_attn.v_proj.bias", kBias, 1, keys}, w.v_bias);
    if (spec.attention_sinks != 0) visit(TensorRow{"self_attn.sinks", kSinks, 1, heads}, w.sinks);
  } else {
    const int64_t queries = heads * spec.qk_head_dim(), latent = spec.kv_lora_rank, nope = spec.qk_nope_head_dim;
    if (rank == 0) {
      visit(TensorRow{"self_attn.q_proj.weight", kQueries, queries, hidden}, w.q_b);
    } else {
      visit(TensorRow{"self_attn.q_a_proj.weight", kLinear, rank, hidden}, w.q_a);
      visit(TensorRow{"self_attn.q_a_layernorm.weight", kNorm, 1, rank}, w.q_a_norm);
      visit(TensorRow{"self_attn.q_b_proj.weight", kQueries, queries, rank}, w.q_b);
    }
    visit(TensorRow{"self_attn.kv_a_proj_with_mqa.weight", kLinear, spec.kv_dim(), hidden}, w.kv_a);
    visit(TensorRow{"self_attn.kv_a_layernorm.weight", kNorm, 1, latent}, w.kv_a_norm);
    visit(TensorRow{"self_attn.kv_b_proj.weight", kLatentUp, heads * (nope + spec.v_head_dim), latent}, w.kv_b);
    visit(TensorRow{"self_attn.kv_b_proj.key_transposed", kKeyUpTransposed, heads * latent, nope}, w.key_transposed);
  }
  visit(TensorRow{"self_attn.o_proj.weight", kOutput, hidden, heads * spec.v_head_dim}, w.o);
  if (spec.output_bias != 0) visit(TensorRow{"self_attn.o_proj.bias", kBias, 1, hidden}, w.o_bias);
}

// Norm, router and the shared expert's gate, without MLPs.
template <typename Visit>
void ForEachTensor(const weights::ModelSpec& spec, bool is_moe, FeedForwardWeights& w, const Visit& visit) {
  using enum TensorRole;
  visit(TensorRow{"post_attention_layernorm.weight", kNorm, 1, spec.hidden_size}, w.norm);
  if (!is_moe) return;
  visit(TensorRow{"mlp.gate.weight", kRouter, spec.num_experts, spec.hidden_size}, w.router);
  if (spec.router_bias != 0) visit(TensorRow{"mlp.gate.bias", kBias, 1, spec.num_experts}, w.logit_bias);
  if (spec.softmax_router == 0) {
    visit(TensorRow{"mlp.gate.e_score_correction_bias", kRouterBias, 1, spec.num_experts}, w.bias);
  }
  if (spec.shared_expert_gate != 0) {
    visit(TensorRow{"mlp.shared_expert_gate.weight", kRouter, 1, spec.hidden_size}, w.shared_gate);
  }
}

template <typename Visit>
void ForEachTensor(int64_t hidden, int64_t width, bool biases, MlpWeights& w, const Visit& visit) {
  using enum TensorRole;
  visit(TensorRow{"gate_proj.weight", kLinear, width, hidden}, w.gate);
  if (biases) visit(TensorRow{"gate_proj.bias", kBias, 1, width}, w.gate_bias);
  visit(TensorRow{"up_proj.weight", kLinear, width, hidden}, w.up);
  if (biases) visit(TensorRow{"up_proj.bias", kBias, 1, width}, w.up_bias);
  visit(TensorRow{"down_proj.weight", kOutput, hidden, width}, w.down);
  if (biases) visit(TensorRow{"down_proj.bias", kBias, 1, hidden}, w.down_bias);
}

// From here on tensor is a ModelTensor. Makes room for the experts.
template <typename Visit>
void ForEachTensor(const weights::ModelSpec& spec, int64_t layer, LayerWeights& w, const Visit& visit) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const auto named = [&visit](TensorPart part, std::string before) {
    return [&visit, part, before = std::move(before)](const TensorRow& row, auto& field) {
      visit(ModelTensor{before + row.suffix, part, row.role, row.rows, row.cols}, field);
    };
  };
  const auto mlp = [&](TensorPart part, absl::string_view before, int64_t width, MlpWeights& weights) {
    const bool biases = part == TensorPart::kExpert && spec.expert_biases != 0;
    ForEachTensor(spec.hidden_size, width, biases, weights, named(part, absl::StrCat(prefix, before)));
  };
  FeedForwardWeights& f = w.feed_forward;
  const bool is_moe = spec.IsMoeLayer(layer);
  w.attention.window = spec.WindowOf(layer);
  ForEachTensor(spec, w.attention, named(TensorPart::kAttention, prefix));
  ForEachTensor(spec, is_moe, f, named(TensorPart::kRouting, prefix));
  if (!is_moe) return mlp(TensorPart::kDenseMlp, "mlp.", spec.intermediate_size, f.dense);
  f.experts.resize(static_cast<size_t>(spec.num_experts));
  for (size_t e = 0; e < f.experts.size(); ++e) {
    mlp(TensorPart::kExpert, absl::StrCat("mlp.experts.", e, "."), spec.moe_intermediate_size, f.experts[e]);
  }
  if (spec.shared_intermediate_size() == 0) return;
  mlp(TensorPart::kSharedExpert, "mlp.shared_experts.", spec.shared_intermediate_size(), f.dense);
}

// Makes room for layers and experts.
template <typename Visit>
void ForEachTensor(const weights::ModelSpec& spec, ModelWeights& w, const Visit& visit) {
  using enum TensorRole;
  const auto model = [&](const char* name, TensorRole role, int64_t rows, auto& field) {
    visit(ModelTensor{name, TensorPart::kModel, role, rows, spec.hidden_size}, field);
  };
  model(kEmbeddingName, kEmbedding, spec.vocab_size, w.embedding);
  w.layers.resize(static_cast<size_t>(spec.num_layers));
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) ForEachTensor(spec, layer, w.layers[layer], visit);
  model("model.norm.weight", kNorm, 1, w.final_norm);
  model(kHeadName, kHead, spec.vocab_size, w.head);
}

// Whether linear layers have FP8 weights, whose inputs a setting may round to FP8.
bool HasFp8Weights(const weights::ModelSpec& spec, const ModelWeights& weights);

// Whether the segment has the tensor in two forms, of which a checkpoint lacks this one: transposed keys, a tied head.
inline bool IsDerived(const weights::ModelSpec& spec, const ModelTensor& tensor) {
  return tensor.role == TensorRole::kKeyUpTransposed || (tensor.role == TensorRole::kHead && spec.tied_head != 0);
}

// Where a family's checkpoints have a tensor of the segment: in a tensor of theirs, from a row on, in all columns or in
// every col_step-th; rows and columns exchanged if it is transposed.
struct PublishedPart {
  std::string name;
  std::vector<int64_t> shape;  // of the checkpoint's tensor, whose rows are those of all dimensions but the last
  int64_t first_row = 0;
  bool transposed = false;
  int64_t first_col = 0;
  int64_t col_step = 1;

  bool is_whole(const ModelTensor& tensor) const { return shape == tensor.shape() && !transposed; }
};
// REQUIRES: !IsDerived(spec, tensor).
PublishedPart PublishedAs(const weights::ModelSpec& spec, const ModelTensor& tensor);

// In order of use: what the segment has; of that, what a checkpoint has, with the family's names; of that, one layer,
// which may lie past the last.
std::vector<ModelTensor> SegmentTensors(const weights::ModelSpec& spec);
std::vector<ModelTensor> CheckpointTensors(const weights::ModelSpec& spec);
std::vector<ModelTensor> CheckpointTensors(const weights::ModelSpec& spec, int64_t layer);

// Elements of CheckpointTensors; scales and multi-token-prediction layers are not counted.
int64_t ParameterCount(const weights::ModelSpec& spec);
// Of these, the ones that a token multiplies. The routed experts that it is not sent to do not count. Nor does the
// embedding, of which a token reads one row, unless it is the head, too.
int64_t ActiveParameterCount(const weights::ModelSpec& spec);
// Elements of one layer of multi-token prediction in a checkpoint: a layer behind the last, the matrix [hidden, 2
// hidden] that joins a token and a hidden state, norms of both and of the output, and copies of embedding and head.
int64_t PredictionLayerParameterCount(const weights::ModelSpec& spec);

// The arrays behind weights, one by one, for code that moves them: visit(pointer&, bytes), where pointer is a
// const uint8_t*, const float* or const int32_t* of the weights, which the visitor may change. Absent arrays (null) are
// left out, and so are exceptions, which only CPUs use.
template <typename Visit>
void VisitArrays(PackedMatrix& matrix, Visit&& visit) {
  if (matrix.data == nullptr) return;
  visit(matrix.data, PackedBytes(matrix.dtype, matrix.rows, matrix.cols));
  if (matrix.scales != nullptr) visit(matrix.scales, weights::TensorScaleBytes(matrix.dtype, matrix.rows, matrix.cols));
  if (matrix.compensation != nullptr) {
    visit(matrix.compensation, weights::TensorExceptionBytes(matrix.dtype, matrix.rows, matrix.cols));
  }
}

template <typename Visit>
void VisitArrays(const TensorRow&, PackedMatrix& matrix, Visit&& visit) {
  VisitArrays(matrix, visit);
}
template <typename Visit>
void VisitArrays(const TensorRow& row, const float*& values, Visit&& visit) {
  if (values != nullptr) visit(values, row.rows * row.cols * int64_t{sizeof(float)});
}

template <typename Visit>
void VisitArrays(const weights::ModelSpec& spec, AttentionWeights& weights, Visit&& visit) {
  ForEachTensor(spec, weights, [&](const TensorRow& row, auto& field) { VisitArrays(row, field, visit); });
}

template <typename Visit>
void VisitArrays(MlpWeights& mlp, Visit&& visit) {
  ForEachTensor(mlp.down.rows, mlp.gate.rows, mlp.gate_bias != nullptr, mlp,
                [&](const TensorRow& row, auto& field) { VisitArrays(row, field, visit); });
}

// All but the routed experts.
template <typename Visit>
void VisitArrays(const weights::ModelSpec& spec, FeedForwardWeights& weights, Visit&& visit) {
  const bool is_moe = weights.router != nullptr;
  ForEachTensor(spec, is_moe, weights, [&](const TensorRow& row, auto& field) { VisitArrays(row, field, visit); });
  VisitArrays(weights.dense, visit);
}

}  // namespace moestro::model
