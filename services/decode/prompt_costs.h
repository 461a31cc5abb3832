// What prompts take in this role's steps, as it tells the router: measured when it starts, in a second or two.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/inference/prompt_costs.h"
#include "common/platform/shared_cores.h"
#include "common/roofline/prompt_forecast.h"
#include "services/decode/chunk_sizer.h"
#include "services/decode/forward_pass.h"

namespace moestro::decode {

// With the role's own cores and with all, beside no decoding sequence, one, and more. Errors are those of a forward
// pass. REQUIRES: no step runs.
absl::StatusOr<std::vector<PromptCost>> MeasurePromptCosts(ForwardPass& forward, const ChunkSizer::Options& chunks,
                                                           int64_t max_batch, SharedCores& cores);

// The figures of one measurement: beside 0, 1, 2, 4, ... and max_batch sequences.
std::vector<PromptCost> CostsOf(const weights::ModelSpec& spec, const roofline::LayerTimes& times,
                                const ChunkSizer::Options& chunks, int64_t max_batch, bool alone);

}  // namespace moestro::decode
