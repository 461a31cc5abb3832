// Turns logits into a token. Stateless: a token's random number depends only on the seed and the token's index, so a
// request resumed on another process continues with the same tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/inference/types.h"

namespace moestro::model {

// INVALID_ARGUMENT names the field.
absl::Status ValidateSampling(const Sampling& params);

// `index`: 0 for the request's first generated token. Never chooses -inf logits. INTERNAL if no logit is finite.
absl::StatusOr<Token> Sample(std::span<const float> logits, const Sampling& params, uint64_t index);

// The log-probability of `id`, and the `top` most likely tokens in descending order (ties: lower id first).
struct LogprobResult {
  float logprob = 0;
  std::vector<Token> top;
};
LogprobResult ComputeLogprobs(std::span<const float> logits, int32_t id, int32_t top);

}  // namespace moestro::model
