// Routers with sigmoid or softmax scores: each token's experts and their weights.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/weights/model_spec.h"

namespace moestro::model {

struct ExpertChoice {
  int32_t expert = 0;
  float weight = 0;
};

// What a layer's router said of consecutive rows.
struct LayerRouting {
  int64_t layer = 0;
  int64_t first_row = 0;                  // of the pass
  std::span<const ExpertChoice> choices;  // [rows, experts_per_token], ascending ids in each row
  const uint16_t* x = nullptr;            // BF16 [rows, hidden_size]: the experts' input; the router's, rounded
};

// Scores are sigmoid(logits), or softmax(logits) if softmax_router. The bias affects the choice only. The
// num_expert_groups contiguous groups are ranked by the sum of their two largest biased scores, or by the largest if
// largest_of_group, and the best experts_topk_groups stay. Of their experts, the experts_per_token with the largest
// biased scores are chosen. Ties go to the lower id, for groups and experts. Weights are the unbiased scores, divided
// by their sum if norm_topk_prob, times routed_scaling_factor.
//
// logits: F32 [num_experts]. bias: the same, or empty: none. chosen: [experts_per_token], written in ascending id.
// REQUIRES a spec that CheckSpec (binding.h) accepts. INTERNAL if a biased score is NaN. Thread-safe.
absl::Status ChooseExperts(const weights::ModelSpec& spec, std::span<const float> logits, std::span<const float> bias,
                           std::span<ExpertChoice> chosen);

// The experts that were next to be chosen: those with the largest biased scores beside `chosen`, whatever their group.
// Their weights are those that they would have beside the chosen ones: the same divisor and factor. `next`: at most
// num_experts - experts_per_token, written in ascending id. The router's other arguments as above; a NaN comes last and
// weighs 0. Thread-safe.
void NextExperts(const weights::ModelSpec& spec, std::span<const float> logits, std::span<const float> bias,
                 std::span<const ExpertChoice> chosen, std::span<ExpertChoice> next);

// 1 / (1 + exp(-x))
float Sigmoid(float x);

}  // namespace moestro::model
