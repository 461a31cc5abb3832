// What rows need on a GPU beside weights and pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/math.h"
#include "common/device/device.h"
#include "common/engine/prefill_compute.h"
#include "common/engine/rank_kernels.h"
#include "common/kernels/cuda/call.h"
#include "common/kernels/cuda/int8_inputs.h"
#include "common/kernels/cuda/routing.h"
#include "common/model/moe/gating.h"
#include "common/weights/model_spec.h"

namespace moestro::engine {

// Rows of a prompt that go together through what is wider than the residual: enough to fill a GPU, few enough that the
// routed rows' outputs (8 of 28 KB each for DeepSeek-V3) stay at 1 GB. More where memory is left (WithSpare): then each
// expert's weights are read less often, and its rows fill tiles better.
inline constexpr int64_t kCudaTileRows = 4096;
// Rows of a step whose attention is computed together: as many as sequences that decode, so that the splits' results of
// a long prompt's chunk stay small (100 MB for DeepSeek-V3).
inline constexpr int64_t kAttendRows = 8;
// Heads whose keys and values are expanded together: 8 KB a token. Even, for the kernel takes rows of q_b, 192 a head,
// from multiples of 128 on.
inline constexpr int64_t kCudaHeads = 16;
// Heads that a prompt's attention takes together: so many, or with grouped queries about so many in whole groups. All
// if a norm is over all of them.
inline int64_t HeadsTogether(const weights::ModelSpec& spec) {
  if (spec.attention_kind() == weights::AttentionKind::kLatent) return std::min(spec.num_heads, kCudaHeads);
  if (spec.norms_of_all_heads != 0) return spec.num_heads;
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  return std::min(spec.num_heads, std::max<int64_t>(kCudaHeads / group, 1) * group);
}
constexpr int64_t CudaStride(int64_t width) { return cuda::InputStride(width); }
// Rows of `chosen` experts each that go through experts together: as many choices as `tile_rows` rows of a prompt have.
inline int64_t RoutedTileRows(const weights::ModelSpec& spec, int64_t tile_rows, int64_t chosen) {
  return tile_rows * spec.experts_per_token / chosen;
}

// A pass of a prompt on one device, a rank's share of a prompt, or a lane's part of a step of decode.
enum class CudaUse { kPass, kShare, kStep };

struct CudaSizes {
  CudaUse use = CudaUse::kPass;
  int64_t rows = 0;                        // of the device
  int64_t expert_rows = 0;                 // of a prompt: those that its experts get, its own or those of all ranks
  int64_t part_tokens = 0;                 // of a prompt: those that are attended to at once, whole KV blocks
  bool coded = false;                      // I8 weights take their inputs as codes (TakesCodes)
  bool fp8_inputs = false;                 // of a prompt: FP8 weights take their inputs in FP8
  int64_t most_tile_rows = kCudaTileRows;  // of a prompt
  int64_t earlier_tokens = 0;              // of a pass: tokens before it whose latents are there at once, of a layer

  // Parts have the pass's rows and the tokens that share the first row's KV block.
  static CudaSizes OfPass(int64_t rows, bool coded = false, bool fp8_inputs = false) {
    return {CudaUse::kPass, rows, rows, RoundUp(rows + kv::kPageTokens - 1, kv::kPageTokens), coded, fp8_inputs};
  }
  static CudaSizes OfShare(const RankShare& share, bool coded = false, bool fp8_inputs = false) {
    return {CudaUse::kShare, share.own_rows(), share.all_rows(), share.part_tokens, coded, fp8_inputs};
  }
  static CudaSizes OfStep(int64_t rows, bool coded = false) {
    return {.use = CudaUse::kStep, .rows = rows, .coded = coded};
  }
};

// Pointers into device memory that this owns; null what its use has not. R = rows, P = part_tokens, T = min(max(R,
// expert_rows), most_tile_rows), or R of a step, H = hidden_size, N = num_heads, A = HeadsTogether, or N of a step, K =
// experts_per_token, E = num_experts, B = min(R, kAttendRows), Q = max(P, earlier_tokens).
class CudaActivations {
 public:
  static int64_t Bytes(const weights::ModelSpec& spec, const CudaSizes& sizes);
  // The sizes with what so many bytes more allow: first `earlier_tokens`, then tiles that are longer by doubling, until
  // all rows are one.
  static CudaSizes WithSpare(const weights::ModelSpec& spec, CudaSizes sizes, int64_t earlier_tokens,
                             int64_t spare_bytes);
  // Rows of a prompt that are one tile.
  static int64_t TileRows(const CudaSizes& sizes) {
    return std::min(std::max(sizes.rows, sizes.expert_rows), sizes.most_tile_rows);
  }
  // RESOURCE_EXHAUSTED if it does not fit.
  static absl::StatusOr<CudaActivations> Allocate(device::Device& device, const weights::ModelSpec& spec,
                                                  const CudaSizes& sizes);

  CudaActivations() = default;

  int64_t tile_rows = 0;       // T
  int64_t part_tokens = 0;     // P
  int64_t earlier_tokens = 0;  // Q

  uint16_t* x = nullptr;  // BF16 [R, CudaStride(H)]: every norm's output
  // [R, Int8Stride(H)]: the same in codes; null: all inputs stay BF16. Other inputs of I8 weights are coded in place.
  uint16_t* codes = nullptr;
  // F32 [R, H]: of the layer's routed experts; in a prompt so far, and before the first layer the embeddings
  float* sums = nullptr;

  // Attention.
  float* projected = nullptr;       // [T, the wider of kv_dim + q_lora_rank and A * qk_head_dim]; keys, then values
  uint16_t* query_input = nullptr;  // [R, CudaStride(q_lora_rank)]; null when q_lora_rank is 0
  uint16_t* queries = nullptr;      // [R, A, qk_head_dim], rotated
  uint16_t* attn_out = nullptr;     // [R, CudaStride(N * v_head_dim)]
  // Of a prompt: [R, A, v_head_dim] and [R, A], the total and what is added to it. Of a step: the first alone,
  // [B, kMaxSplits, N, kv_lora_rank, or v_head_dim with grouped queries] and [B, kMaxSplits, N].
  float* partial[2] = {};
  float* log_sum[2] = {};

  // MLPs and router.
  float* normed = nullptr;                 // [T, H]: what the router reads
  float* router_logits = nullptr;          // [T, E]
  model::ExpertChoice* choices = nullptr;  // [R, K] of a pass or a step; ranks keep theirs where they exchange them
  float* shared_gates = nullptr;           // [R]: logits of the shared expert's gate; null when there is none
  uint16_t* gated = nullptr;  // [T, ..] of a dense or shared MLP, or [T * K, CudaStride(moe_intermediate_size)]

  // Of a prompt.
  uint8_t* fp8_codes = nullptr;          // the inputs of a launch in FP8; null: they stay BF16
  int32_t* tokens = nullptr;             // [R], where embeddings are gathered on the device
  float* residual = nullptr;             // [R, H]
  float* cosine = nullptr;               // [R, rotated_dims() / 2]
  float* sine = nullptr;                 // [R, rotated_dims() / 2]
  uint16_t* latents[kKvBuffers] = {};    // [P, kv_dim] of a pass: from its first row's KV block on
  uint16_t* earlier = nullptr;           // [Q, kv_dim] of a pass: tokens before
  uint16_t* expanded = nullptr;          // [P, A, qk_nope_head_dim + v_head_dim]; null with grouped queries
  cuda::RoutingPlan pairs;               // of a share: of the R * K choices
  std::vector<cuda::RoutingPlan> plans;  // of T * K choices of the expert_rows each
  float* expert_out = nullptr;           // [T * K, H]
  uint16_t* routed_codes = nullptr;  // [T * K, Int8Stride(H)] of a share: what its experts get, if `codes` is not null
  int32_t* has_nan = nullptr;        // [num_layers]: whether the layer's scores are
  uint16_t* head_input = nullptr;    // [kLogitRows, CudaStride(H)]
  float* logits = nullptr;           // [kLogitRows, vocab_size]

  // Of a step.
  uint16_t* latent_queries = nullptr;  // [R, N, kv_lora_rank], then what they attended to; null with grouped queries
  uint16_t* entries = nullptr;         // [num_layers, rows of the step, kv_dim]: what the step adds to the cache
  float* shared = nullptr;             // [R, H]: the shared expert's outputs

 private:
  template <typename Take>
  void Visit(const weights::ModelSpec& spec, const CudaSizes& sizes, const Take& take);
  template <typename Take>
  void VisitPrompt(const weights::ModelSpec& spec, const CudaSizes& sizes, const Take& take);
  template <typename Take>
  void VisitStep(const weights::ModelSpec& spec, int64_t rows, const Take& take);

  std::vector<device::Memory> memory_;
};

}  // namespace moestro::engine
