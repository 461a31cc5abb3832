// What layers of the model take on a device that their weights stream to: a few layers, streamed once with few rows and
// once with many.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/engine/prefill_compute.h"
#include "common/roofline/prompt_forecast.h"
#include "services/prefill/stream/stream_prefill.h"

namespace moestro::prefill {

struct StreamMeasureOptions {
  std::vector<int64_t> rows = {};  // of the prompts, in ascending order; the last is also run after `before` tokens
  int64_t before = 4096;
  model::MlaForm form = model::MlaForm::kUnabsorbed;
  double budget_seconds = 1;  // on the device's clock: no further prompt begins after this long
};

// Streams a prompt until the first layer with experts is done, or the first of all in a model without. Tokens and pages
// as roofline::MeasureLayers has them. Errors are those of StreamPrefill::Run.
absl::StatusOr<roofline::LayerTimes> MeasureStream(StreamPrefill& prefill, const weights::ModelSpec& spec,
                                                   const StreamMeasureOptions& options);

}  // namespace moestro::prefill
