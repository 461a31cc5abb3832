// ModelSpec: all that the engine must know about a model, with the aliases of config.json resolved. It is stored
// verbatim in the weight segment's header, so it is plain data of fixed size. A new field takes the place of the first
// `reserved` ones (0 must mean the previous behaviour). kSegmentLayoutVersion rises when a meaning changes.
#pragma once

#include <cstdint>
#include <type_traits>

namespace moestro::weights {

struct YarnSpec {
  double factor = 1;            // context extension; 1 = no scaling
  double beta_fast = 32;        // rotations above which a dimension keeps its frequency
  double beta_slow = 1;         // rotations below which a dimension is fully interpolated
  double mscale = 0;            // 0 = absent
  double mscale_all_dim = 0;    // 0 = absent; otherwise enters the softmax scale squared
  double attention_factor = 0;  // 0 = absent; otherwise overrides the cos/sin amplitude
  int64_t original_max_position_embeddings = 0;
  int64_t enabled = 0;
};

enum class AttentionKind {
  kLatent,          // MLA: keys and values of all heads come from one cached latent; rotation of adjacent pairs
  kGroupedQueries,  // GQA: keys and values of num_kv_heads heads are cached; rotation in halves
};

struct ModelSpec {
  char family[32] = {};     // model_type of config.json
  int64_t hidden_size = 0;  // H
  int64_t num_layers = 0;   // L, without MTP layers
  int64_t num_heads = 0;    // A
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  int64_t intermediate_size = 0;      // F_d, dense layers
  int64_t moe_intermediate_size = 0;  // F_m, one routed expert
  int64_t num_experts = 0;            // E
  int64_t experts_per_token = 0;      // K
  int64_t num_shared_experts = 0;     // one MLP of width num_shared_experts * F_m
  int64_t first_dense_layers = 0;     // layers below this have a dense MLP
  int64_t num_expert_groups = 1;
  int64_t experts_topk_groups = 1;  // groups kept by group selection
  int64_t norm_topk_prob = 1;
  int64_t vocab_size = 0;   // rows of embedding and head
  int64_t token_count = 0;  // ids from here on are padding rows: their logits are -inf
  int64_t max_position_embeddings = 0;
  double routed_scaling_factor = 1;
  double rms_norm_eps = 1e-6;   // block norms
  double lora_norm_eps = 1e-6;  // q_a / kv_a norms
  double rope_theta = 10000;
  YarnSpec yarn;
  // GQA: number of key and value heads, a divisor of num_heads; no low-rank projections, and qk_rope_head_dim =
  // v_head_dim. 0: MLA.
  int64_t num_kv_heads = 0;
  int64_t softmax_router = 0;       // 1: scores are softmax(logits), no bias; 0: sigmoid(logits), chosen with a bias
  int64_t heads_without_norms = 0;  // GQA: 1: queries and keys are as projected; 0: norms of heads before the rotation
  int64_t rotary_dims = 0;          // GQA: the first so many numbers of a head rotate; 0: all
  int64_t shared_expert_width = 0;  // 0: num_shared_experts * moe_intermediate_size
  // Bit l % 64 of word l / 64: layer l has a dense MLP, though it is not one of the first_dense_layers.
  uint64_t dense_layers[2] = {};
  // Each 0 or 1.
  uint8_t qkv_biases = 0;          // GQA: queries, keys and values have biases
  uint8_t norms_of_all_heads = 0;  // GQA: one norm over the queries of all heads, one over the keys; 0: of each head
  uint8_t llama3_rope =
      0;  // frequencies are scaled by Llama 3's rule: yarn's betas are its high and low factor, enabled is 0
  uint8_t largest_of_group = 0;    // a group's score is its largest; 0: the sum of its two largest
  uint8_t shared_expert_gate = 0;  // the shared expert's output is multiplied by sigmoid(gate . hidden)
  uint8_t tied_head = 0;           // the embedding is the head, too
  uint8_t layer_norms = 0;         // norms of the residual subtract its mean first
  uint8_t reserved_flags[1] = {};
  double clip_qkv = 0;  // GQA: projected queries, keys and values are clamped to [-clip_qkv, clip_qkv]; 0: they are not
  // GQA: in windowed_layers (bit l % 64 of word l / 64) a token sees the last so many tokens, itself included.
  int64_t sliding_window = 0;
  uint64_t windowed_layers[2] = {};
  // Routed experts: 0: silu(gate) * up. Otherwise, with gate at most swiglu_limit and up in [-swiglu_limit,
  // swiglu_limit]: (up + 1) * gate * sigmoid(swiglu_alpha * gate).
  double swiglu_limit = 0;
  double swiglu_alpha = 0;
  // Each 0 or 1.
  uint8_t attention_sinks = 0;     // GQA: each head has a score more, of no token, by which all weights are less
  uint8_t output_bias = 0;         // the projection of what was attended to has a bias
  uint8_t router_bias = 0;         // the router's logits have a bias
  uint8_t expert_biases = 0;       // gate, up and down of routed experts have biases
  uint8_t yarn_between_pairs = 0;  // YaRN's ramp begins and ends where computed; 0: at the pairs around
  uint8_t reserved_more_flags[3] = {};
  int64_t reserved[1] = {};

  AttentionKind attention_kind() const {
    return num_kv_heads > 0 ? AttentionKind::kGroupedQueries : AttentionKind::kLatent;
  }
  int64_t head_dim() const { return v_head_dim; }  // GQA: of queries, keys and values
  bool IsMoeLayer(int64_t layer) const {
    const bool dense = layer < 128 && (dense_layers[layer / 64] >> (layer % 64) & 1) != 0;
    return layer >= first_dense_layers && !dense;
  }
  // Also the index of a MoE layer among the MoE layers.
  int64_t MoeLayersBelow(int64_t layer) const {
    int64_t count = layer > first_dense_layers ? layer - first_dense_layers : 0;
    for (int64_t l = first_dense_layers; l < layer && l < 128; ++l) count -= IsMoeLayer(l) ? 0 : 1;
    return count;
  }
  // Tokens that one sees in this layer, itself included; 0: all before it.
  int64_t WindowOf(int64_t layer) const {
    return layer < 128 && (windowed_layers[layer / 64] >> (layer % 64) & 1) != 0 ? sliding_window : 0;
  }
  int64_t num_moe_layers() const { return MoeLayersBelow(num_layers); }
  // The MoE layer with this index, num_layers if there is none.
  int64_t MoeLayer(int64_t index) const {
    int64_t layer = first_dense_layers;
    while (layer < num_layers && (!IsMoeLayer(layer) || MoeLayersBelow(layer) < index)) ++layer;
    return layer;
  }
  // Of a head, the numbers that rotate: in MLA the last ones of a query and a key of their own, in GQA the first ones.
  int64_t rotated_dims() const { return rotary_dims > 0 ? rotary_dims : qk_rope_head_dim; }
  int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  // Elements cached per token and layer. MLA: the latent, then the rotated key; GQA: all keys, then all values.
  int64_t kv_dim() const {
    return attention_kind() == AttentionKind::kGroupedQueries ? 2 * num_kv_heads * head_dim()
                                                              : kv_lora_rank + qk_rope_head_dim;
  }
  int64_t shared_intermediate_size() const {
    return shared_expert_width > 0 ? shared_expert_width : num_shared_experts * moe_intermediate_size;
  }
};
static_assert(std::is_trivially_copyable_v<ModelSpec> && sizeof(ModelSpec) % 8 == 0);

}  // namespace moestro::weights
