// How far the tasks of a MoE layer have come, for the tasks that wait for them. Allocated once.
#pragma once

#include <vector>

#include "common/platform/countdown.h"
#include "common/weights/model_spec.h"

namespace moestro {

struct ExpertProgress {
  Countdown gathered;  // its input rows
  Countdown gated;     // its groups of silu(gate x) * up x
};

struct MoeProgress {
  explicit MoeProgress(const ModelSpec& spec) : experts(spec.num_experts) {}

  Countdown normed;                     // rows
  Countdown scored;                     // tasks of router logits
  std::vector<ExpertProgress> experts;  // by place among the experts that have rows
  Countdown always_gated;               // groups of the dense MLP or shared expert
};

}  // namespace moestro
