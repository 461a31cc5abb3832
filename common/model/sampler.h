// Turns logits into a token. Stateless: a token's random number depends only on the seed and the token's index, so a
// request resumed on another process continues with the same tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/inference/types.h"

namespace moestro::model {

// For a vocabulary of `token_count` ids. INVALID_ARGUMENT names the field.
absl::Status ValidateSampling(const Sampling& params, int64_t token_count);

// The request's next token. `tokens`: the prompt, then the tokens generated so far; `index`: the number of these, which
// is the index of the next. REQUIRES: index <= tokens.size(), and params are valid for the logits' vocabulary.
//
// In this order: logit_bias, repetition_penalty, frequency_penalty, presence_penalty and the mask on a copy of the
// logits (none is made without them); temperature; min_p, top_k and top_p; the draw. Log-probabilities are those of
// `logits`. Never chooses -inf logits. INTERNAL if no logit is finite.
//
// `mask`: what a constraint allows after `tokens`: bit id % 32 of word id / 32 is set for each id that may follow.
// Empty = every id. REQUIRES: empty, or a bit for each logit.
absl::StatusOr<Token> SampleNext(std::span<const float> logits, std::span<const int32_t> tokens, const Sampling& params,
                                 uint64_t index, std::span<const uint32_t> mask = {});

// The log-probability of `id`, and the `top` most likely tokens in descending order (ties: lower id first).
struct LogprobResult {
  float logprob = 0;
  std::vector<TokenAlternative> top;
};
LogprobResult ComputeLogprobs(std::span<const float> logits, int32_t id, int32_t top);

}  // namespace moestro::model
