// What layers of the model take on this machine: a few of them, run once with few rows and once with many. So a role
// learns at its start, in a second or two, what its prompts will take (prompt_forecast.h).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/model/engine.h"
#include "common/roofline/prompt_forecast.h"
#include "common/weights/model_spec.h"

namespace moestro::roofline {

// 1, 8, 24, 64 and `most`, as far as they are below it. Few rows cost more each, since each reads experts of its own,
// so the figures are close where they change most.
std::vector<int64_t> RowsToMeasure(int64_t most);

struct MeasureOptions {
  std::vector<int64_t> rows = {};  // of the passes, in ascending order; the last is also run after `before` tokens
  int64_t before = 2048;           // 0: attention to earlier tokens costs what products do
  std::vector<model::MlaForm> forms = {};  // the first also of the passes without earlier tokens
  double budget_seconds = 1;               // no further pass begins after this long
};

// Engine::Forward, or what stands for it: calls `interrupted` before every layer, and ends with its error.
using ForwardFn =
    absl::FunctionRef<absl::Status(const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted)>;

// Runs layers until two of those with experts are done, or two of all in a model without, and keeps the shorter time,
// which is the one that nothing disturbed. The tokens are consecutive ids, which go to many experts. The pages are
// zeroed memory for a few blocks of one sequence; those of earlier tokens are one page. `now`: seconds.
// Errors are the forward pass's own.
absl::StatusOr<LayerTimes> MeasureLayers(const weights::ModelSpec& spec, const MeasureOptions& options,
                                         ForwardFn forward, absl::FunctionRef<double()> now);

}  // namespace moestro::roofline
