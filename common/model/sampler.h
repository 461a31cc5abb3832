// Turning logits into a token. Stateless: the random number of a token depends on the seed and the token's index only,
// so that a request resumed on another process goes on exactly as it would have.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/inference/types.h"

namespace moestro {

// INVALID_ARGUMENT names the field.
absl::Status ValidateSampling(const Sampling& params);

// `index`: 0 for the first generated token of the request. -inf logits are never chosen. INTERNAL if no finite logit.
absl::StatusOr<Token> Sample(std::span<const float> logits, const Sampling& params, uint64_t index);

// The log-probability of `id`, and the `top` most likely tokens in descending order (ties: lower id first).
struct LogprobResult {
  float logprob = 0;
  std::vector<Token> top;
};
LogprobResult ComputeLogprobs(std::span<const float> logits, int32_t id, int32_t top);

}  // namespace moestro
