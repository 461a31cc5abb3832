// What a lane needs in device memory beside weights and pages.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/model/router.h"
#include "common/weights/model_spec.h"

namespace moestro {

// Rows whose attention is computed together: as many as sequences that decode, so that the splits' results of a long
// prompt's chunk stay small (64 MB for DeepSeek-V3).
inline constexpr int64_t kAttendRows = 8;

// Pointers into device memory that this owns. R: rows of a step, A = min(R, kAttendRows), H = hidden_size, N =
// num_heads, K = experts_per_token, E = num_experts; stride(n): cuda::InputStride(n).
class DecodeActivations {
 public:
  static int64_t Bytes(const ModelSpec& spec, int64_t rows);
  // RESOURCE_EXHAUSTED if it does not fit.
  static absl::StatusOr<DecodeActivations> Allocate(device::Device& device, const ModelSpec& spec, int64_t rows);

  // Handed over.
  uint16_t* x = nullptr;            // BF16 [R, H]: every norm's output
  ExpertChoice* choices = nullptr;  // [R, K]
  float* sums = nullptr;            // [R, H]

  // Attention.
  float* projected =
      nullptr;  // [R, the widest of q_lora_rank, kv_dim, N * qk_head_dim]; keys, then values, of all rows
  uint16_t* query_input = nullptr;  // [R, stride(q_lora_rank)]; null when q_lora_rank is 0
  uint16_t* queries = nullptr;      // [R, N, qk_head_dim], rotated
  uint16_t* latents = nullptr;      // [R, N, kv_lora_rank]: queries in the latent space, then what they attended to;
                                    // null with grouped queries
  float* partial = nullptr;         // [A, kMaxSplits, N, kv_lora_rank, or v_head_dim with grouped queries]
  float* log_sum = nullptr;         // [A, kMaxSplits, N]
  uint16_t* attended = nullptr;     // [R, stride(N * v_head_dim)]
  uint16_t* entries = nullptr;      // [num_layers, rows of the step, kv_dim]: what the step adds to the cache

  // MLPs and router.
  float* normed = nullptr;         // [R, H]: what the router reads
  float* router_logits = nullptr;  // [R, E]
  uint16_t* gated = nullptr;       // [R, stride(intermediate_size or shared_intermediate_size)]
  float* shared = nullptr;         // [R, H]: the shared expert's outputs

 private:
  template <typename Take>
  void Visit(const ModelSpec& spec, int64_t rows, const Take& take);

  std::vector<device::Memory> memory_;
};

}  // namespace moestro
