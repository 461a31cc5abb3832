// An engine against one golden case: the logits of every position, and the greedy tokens.
#pragma once

#include "common/weights/segment.h"
#include "tests/common/model/golden_case.h"

namespace moestro::model {

// Prompt in chunks of 16, then each greedy token, in both forms of attention. Every logit is within the tolerance
// (tolerance.h; the prompts were chosen so that rounding changes no choice of experts), every greedy token the largest.
void ExpectGolden(const weights::WeightSegment& segment, const GoldenCase& golden);

}  // namespace moestro::model
