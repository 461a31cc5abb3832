// What prompts take in this role's steps, as it tells the router: measured when it starts, in a second or two.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/inference/prompt_costs.h"
#include "common/platform/shared_cores.h"
#include "common/roofline/prompt_forecast.h"
#include "services/decode/chunk_sizer.h"
#include "services/decode/forward_pass.h"

namespace moestro::decode {

// Of the layers of steps.
struct MeasuredLayers {
  bool alone = false;  // with all cores, not just the role's own
  roofline::LayerTimes times;
};

// With up to max_rows rows: first with the role's own cores, and then, while prefill computes nothing, with all. Errors
// are those of a forward pass. REQUIRES: no step runs.
absl::StatusOr<std::vector<MeasuredLayers>> MeasureSteps(ForwardPass& forward, int64_t max_rows, SharedCores& cores);

// The figures of one measurement: beside 0, 1, 2, 4, ... and max_batch sequences.
std::vector<PromptCost> CostsOf(const weights::ModelSpec& spec, const roofline::LayerTimes& times,
                                const ChunkSizer::Options& chunks, int64_t max_batch, bool alone);
// Those of all.
std::vector<PromptCost> CostsOf(const weights::ModelSpec& spec, std::span<const MeasuredLayers> measured,
                                const ChunkSizer::Options& chunks, int64_t max_batch);

}  // namespace moestro::decode
