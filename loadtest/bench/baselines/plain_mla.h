// Absorbed MLA of one head at a time over the latents as the cache holds them: no folding of heads into a matrix
// product, nothing packed. The form before the optimisations that the article on SGLang's CPU backend (Intel, 2025)
// lists for MLA; the article does not show its own. AVX-512 BF16 only: the caller must check the CPU first. Plain data
// only.
#pragma once

#include <cstdint>

namespace moestro::bench {

inline constexpr int64_t kPlainMlaKey = 576;     // DeepSeek's cached elements of a token
inline constexpr int64_t kPlainMlaLatent = 512;  // of which so many are its value

// scores[t] = query . rows[t] for t in [0, tokens), a multiple of 4. rows: BF16 [tokens, kPlainMlaKey].
void PlainMlaScores(const uint16_t* query, const uint16_t* rows, int64_t tokens, float* scores);
// sums += weights[t] * the latent of rows[t], for all t. weights: BF16. sums: F32 [kPlainMlaLatent].
void PlainMlaValues(const uint16_t* weights, const uint16_t* rows, int64_t tokens, float* sums);

}  // namespace moestro::bench
