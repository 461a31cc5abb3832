// The model's tensors, found in the weight segment by name and checked against the spec: after this no shape can
// surprise the engine. Everything points into the segment.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/packed_matrix.h"
#include "common/weights/segment.h"

namespace moestro {

// down(silu(gate(x)) * up(x)); gate and up [width, hidden], down [hidden, width].
struct MlpWeights {
  PackedMatrix gate;
  PackedMatrix up;
  PackedMatrix down;
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
  const float* q_norm = nullptr;      // [head_dim], of every head
  const float* k_norm = nullptr;      // [head_dim]
  PackedMatrix o;                     // [hidden, heads * v_head_dim]
};

// A dense layer is a MoE layer without routed experts: its MLP takes the place of the shared expert.
struct FeedForwardWeights {
  const float* norm = nullptr;      // [hidden]
  const float* router = nullptr;    // [num_experts, hidden]; null in a dense layer
  const float* bias = nullptr;      // [num_experts]; null when the router has none
  std::vector<MlpWeights> experts;  // by id; empty in a dense layer
  MlpWeights always;                // dense MLP or shared expert; always.gate.rows is 0 if there is neither
};

struct LayerWeights {
  AttentionWeights attention;
  FeedForwardWeights feed_forward;
};

struct ModelWeights {
  const uint16_t* embedding = nullptr;  // BF16 [vocab_size, hidden]
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;  // [hidden]
  PackedMatrix head;                  // [vocab_size, hidden]
};

// INVALID_ARGUMENT names the field that the engine cannot work with.
absl::Status CheckSpec(const ModelSpec& spec);

// Includes CheckSpec. NOT_FOUND or INVALID_ARGUMENT name the tensor and what was expected.
absl::StatusOr<ModelWeights> BindWeights(const WeightSegment& segment);

}  // namespace moestro
