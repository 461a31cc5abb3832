// What prompts take in this role, as it tells the router: measured when it starts, in a second or two.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/inference/prompt_costs.h"
#include "common/model/engine.h"
#include "common/platform/shared_cores.h"
#include "common/roofline/prompt_forecast.h"
#include "services/prefill/config.h"

namespace moestro::prefill {

// Of the layers of a prompt in place.
struct InPlaceTimes {
  bool alone = false;  // with all cores, not just the role's own
  roofline::LayerTimes times;
};

// With the role's own cores and, while decode computes nothing, with all. `cores` are those of the engine's workers.
// Errors are those of a forward pass. REQUIRES: no prompt runs.
absl::StatusOr<std::vector<InPlaceTimes>> MeasureInPlace(MlaFormPolicy form, model::Engine& engine, SharedCores& cores);

// How many rows a pass should take (ChoosePassRows), at most as many as memory allows with these threads.
// kFewestPassRows if nothing was measured.
int64_t ChooseChunk(const weights::ModelSpec& spec, std::span<const InPlaceTimes> measured, int threads);

// The figures of all measurements, in passes of `chunk` rows.
std::vector<PromptCost> InPlaceCosts(const weights::ModelSpec& spec, std::span<const InPlaceTimes> measured,
                                     MlaFormPolicy form, int64_t chunk);

// The figures of one measurement of passes of `chunk` rows.
PromptCost InPlaceCost(const weights::ModelSpec& spec, const roofline::LayerTimes& times, MlaFormPolicy form,
                       int64_t chunk, bool alone);

// How a prompt streams.
struct StreamShape {
  model::MlaForm form = model::MlaForm::kUnabsorbed;
  roofline::PromptForecast::Streams streams;
};
// The figures of one measurement for each device, the first of those that share a prompt first: the slowest in its part
// decides. Those without one are taken to be as slow as the others. `shape`: of a prompt of so many tokens; nullopt:
// the devices are too small for it and for all longer ones.
PromptCost StreamedCost(const weights::ModelSpec& spec, std::span<const roofline::LayerTimes> times, bool alone,
                        absl::FunctionRef<std::optional<StreamShape>(int64_t tokens)> shape);

}  // namespace moestro::prefill
