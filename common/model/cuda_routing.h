// A model's routing as the CUDA kernels are told it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/kernels/cuda/routing.h"
#include "common/weights/model_spec.h"

namespace moestro {

// UNIMPLEMENTED if the kernels do not have so many experts, or so many of a token.
inline absl::Status CheckCudaRouting(const ModelSpec& spec) {
  if (spec.num_experts <= cuda::kMaxExperts && spec.experts_per_token <= cuda::kMaxChosen &&
      spec.num_expert_groups <= cuda::kMaxGroups) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrFormat(
      "the CUDA kernels route to at most %d of %d experts in %d groups, not to %d of %d in %d", cuda::kMaxChosen,
      cuda::kMaxExperts, cuda::kMaxGroups, spec.experts_per_token, spec.num_experts, spec.num_expert_groups));
}

// The rule of router.h for these logits. Where the choices go, the caller adds.
inline cuda::ChooseExpertsArgs ChoiceOf(const ModelSpec& spec, const float* logits, const float* bias, int64_t rows) {
  return {.logits = logits,
          .bias = bias,
          .rows = rows,
          .experts = spec.num_experts,
          .chosen = spec.experts_per_token,
          .score = spec.softmax_router != 0 ? cuda::RouterScore::kSoftmax : cuda::RouterScore::kSigmoid,
          .groups = spec.num_expert_groups,
          .kept_groups = spec.experts_topk_groups,
          .rank = cuda::GroupRank::kTwoLargest,
          .normalise = spec.norm_topk_prob != 0,
          .scale = static_cast<float>(spec.routed_scaling_factor)};
}

}  // namespace moestro
