// What a pass, or a rank's share of a prompt, needs on a GPU beside weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/math.h"
#include "common/device/device.h"
#include "common/kernels/cuda/call.h"
#include "common/kernels/cuda/routing.h"
#include "common/model/activations.h"
#include "common/weights/model_spec.h"
#include "services/prefill/stream/schedule.h"

namespace moestro {

// Rows that go together through what is wider than the residual: enough to fill a GPU, few enough that the routed rows'
// outputs (8 of 28 KB each for DeepSeek-V3) stay at 1 GB.
inline constexpr int64_t kCudaTileRows = 4096;
// Heads whose keys and values are expanded together: 8 KB a token. Even, for the kernel takes rows of q_b, 192 a head,
// from multiples of 128 on.
inline constexpr int64_t kCudaHeads = 16;
// Heads that attention takes together: so many, or with grouped queries about so many in whole groups.
inline int64_t HeadsTogether(const ModelSpec& spec) {
  if (!spec.has_grouped_queries()) return std::min(spec.num_heads, kCudaHeads);
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  return std::min(spec.num_heads, std::max<int64_t>(kCudaHeads / group, 1) * group);
}
constexpr int64_t CudaStride(int64_t width) { return cuda::InputStride(width); }

struct CudaSizes {
  int64_t rows = 0;         // of the device
  int64_t expert_rows = 0;  // that its experts get: its own, or those of all ranks
  int64_t part_tokens = 0;  // that are attended to at once, whole KV blocks
  // No other device works on the prompt. Else latents and choices of experts are kept by whoever exchanges them.
  bool alone = true;

  // A pass of one device: parts have its rows and the tokens that share the first row's KV block.
  static CudaSizes OfPass(int64_t rows) {
    return {.rows = rows, .expert_rows = rows, .part_tokens = RoundUp(rows + kPageTokens - 1, kPageTokens)};
  }
};

// Pointers into device memory that this owns. R = rows, P = part_tokens, T = min(max(R, expert_rows), kCudaTileRows), H
// = hidden_size, A = HeadsTogether, K = experts_per_token, E = num_experts.
class CudaActivations {
 public:
  static int64_t Bytes(const ModelSpec& spec, const CudaSizes& sizes);
  // RESOURCE_EXHAUSTED if it does not fit.
  static absl::StatusOr<CudaActivations> Allocate(device::Device& device, const ModelSpec& spec,
                                                  const CudaSizes& sizes);

  CudaActivations() = default;

  int64_t tile_rows = 0;    // T
  int64_t part_tokens = 0;  // P

  float* residual = nullptr;          // [R, H]
  uint16_t* normed_narrow = nullptr;  // [R, CudaStride(H)]
  float* sums = nullptr;    // [R, H]: of the layer's experts so far; before the first layer the BF16 embeddings
  float* cosine = nullptr;  // [R, qk_rope_head_dim / 2]
  float* sine = nullptr;    // [R, qk_rope_head_dim / 2]

  // Attention.
  float* projected = nullptr;          // [T, the widest of q_lora_rank, kv_dim, A * qk_head_dim]
  uint16_t* query_input = nullptr;     // [R, CudaStride(q_lora_rank)]; null when q_lora_rank is 0
  uint16_t* latents[kKvBuffers] = {};  // [P, kv_dim] if alone: of the pass, from its first row's KV block on
  uint16_t* earlier = nullptr;         // [P, kv_dim] if alone: of some tokens before
  uint16_t* expanded = nullptr;        // [P, A, qk_nope_head_dim + v_head_dim]; null with grouped queries
  uint16_t* queries = nullptr;         // [R, A, qk_head_dim]
  uint16_t* attended = nullptr;        // [R, num_heads * v_head_dim]
  float* partial[2] = {};              // [R, A, v_head_dim]
  float* log_sum[2] = {};              // [R, A]

  // Experts.
  float* normed = nullptr;               // [T, H]: what the router reads
  float* router_logits = nullptr;        // [T, E]
  int32_t* ids = nullptr;                // [R, K] if alone
  float* weights = nullptr;              // [R, K] if alone
  cuda::RoutingPlan pairs;               // if not alone: of the R * K choices
  std::vector<cuda::RoutingPlan> plans;  // of T * K choices of the expert_rows each
  uint16_t* gated = nullptr;             // [T * K, CudaStride(moe_intermediate_size)], or [T, ..] of a dense MLP
  float* expert_out = nullptr;           // [T * K, H]
  int32_t* has_nan = nullptr;            // [num_layers]: whether the layer's scores are

  // Head.
  uint16_t* head_input = nullptr;  // [kLogitRows, CudaStride(H)]
  float* logits = nullptr;         // [kLogitRows, vocab_size]

 private:
  template <typename Take>
  void Visit(const ModelSpec& spec, const CudaSizes& sizes, const Take& take);

  std::vector<device::Memory> memory_;
};

}  // namespace moestro
