// Passes over all logits of a row. A vocabulary has 100,000 tokens and more, and one thread samples for all sequences
// of a step, so these passes must not be what a step takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace moestro::model {

// Sum of exp((logit - maximum) / temperature), with the same bits on every CPU. Exact to 3e-6 of itself: an exponential
// is exact to 2.5e-7, 18 roundings of F32 at most add them before F64 does, and exponents are rounded twice, of which
// those of up to 12 count in sums of 160,000 terms. REQUIRES: no NaN; maximum is that of all logits, and finite;
// temperature above 0.
double SumOfExp(std::span<const float> logits, float maximum, float temperature = 1);

// The first id of the largest logit. None if a logit is NaN or infinite, or all are minus infinity.
std::optional<int32_t> LargestLogit(std::span<const float> logits);

bool HasNan(std::span<const float> logits);

}  // namespace moestro::model
