// What a step computes on the host: PromptForward's functions, bound to staged weights.
#pragma once

#include <functional>
#include <span>

#include "absl/status/status.h"
#include "common/model/binding.h"
#include "common/model/prompt_forward.h"
#include "services/prefill/stream/compute.h"

namespace moestro {

// For a pass that has begun. All but the modules outlive the result. REQUIRES: no step of an exchange.
std::function<absl::Status()> HostStepWork(const ModelSpec& spec, const ModelWeights& weights, MlaForm form,
                                           const Step& step, std::span<const StagedModule> modules,
                                           PromptForward& forward);

}  // namespace moestro
