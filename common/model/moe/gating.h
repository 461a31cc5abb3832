// The routers of DeepSeek-V3 and of Qwen3-MoE: which experts a token goes to, and with what weights.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/weights/model_spec.h"

namespace moestro {

struct ExpertChoice {
  int32_t expert = 0;
  float weight = 0;
};

// Scores are sigmoid(logits), or softmax(logits) if softmax_router. The bias takes part in the choice only: the
// num_expert_groups contiguous groups are ranked by the sum of their two largest biased scores, the best
// experts_topk_groups stay, and the experts_per_token experts with the largest biased scores among them are chosen.
// Ties go to the lower id, of group and expert alike. Weights are the unbiased scores, divided by their sum if
// norm_topk_prob, times routed_scaling_factor.
//
// logits: F32 [num_experts]. bias: the same, or empty: none. chosen: [experts_per_token], written in ascending order of
// expert ids. REQUIRES a spec that CheckSpec (binding.h) accepts. INTERNAL if a biased score is NaN. Thread-safe.
absl::Status ChooseExperts(const ModelSpec& spec, std::span<const float> logits, std::span<const float> bias,
                           std::span<ExpertChoice> chosen);

}  // namespace moestro
