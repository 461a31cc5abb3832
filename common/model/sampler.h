// Turning logits into a token. Stateless: the random number of a token depends on the seed and the token's index only,
// so that a request resumed on another process goes on exactly as it would have.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro {

struct SamplingParams {
  float temperature = 0;  // 0 = greedy (ties: lowest id)
  float top_p = 1;        // smallest set of most likely tokens whose probability reaches top_p
  int32_t top_k = 0;      // 0 = off
  uint64_t seed = 0;
};

// INVALID_ARGUMENT names the field.
absl::Status ValidateSamplingParams(const SamplingParams& params);

struct SampledToken {
  int32_t id = 0;
  float logprob = 0;  // natural log of the softmax over all valid tokens, before temperature and filters
};

// `index`: 0 for the first generated token of the request. -inf logits are never chosen. INTERNAL if no finite logit.
absl::StatusOr<SampledToken> Sample(std::span<const float> logits, const SamplingParams& params, uint64_t index);

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};
// The log-probability of `id`, and the `top` most likely tokens in descending order (ties: lower id first).
struct LogprobResult {
  float logprob = 0;
  std::vector<TokenLogprob> top;
};
LogprobResult ComputeLogprobs(std::span<const float> logits, int32_t id, int32_t top);

}  // namespace moestro
