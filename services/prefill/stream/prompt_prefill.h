// A prompt computed with weights that stream: on one device (stream_prefill.h) or on several
// (../multi_device_prefill.h).
#pragma once

#include <functional>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/math.h"
#include "common/kv/pages.h"
#include "common/model/engine.h"
#include "services/prefill/stream/timeline.h"

namespace moestro::prefill {

struct StreamEvents {
  std::function<void(IndexRange rows, int64_t layer)> on_layer = {};  // it is done for the rows of a pass
  std::function<void(IndexRange rows)> on_pass = {};  // all layers are, and the KV of these rows is in host memory
  std::function<void()> on_step = {};                 // a module has been computed: the run goes on
  // Unless empty: [rows, hidden_size], for what the last layer leaves. What on_pass names is there. With Engine::Logits
  // any number of rows have logits.
  std::span<float> residuals = {};
  // Above 0: the run begins at this layer. The layers before have left their KV in the pages, and `residuals`.
  int64_t first_layer = 0;
};

class PromptPrefill {  // one run at a time
 public:
  virtual ~PromptPrefill() = default;

  // The form in which prompts are computed that may have any: this one, or where the kernels do not have it the other.
  virtual model::MlaForm FormFor(model::MlaForm wanted) const = 0;

  // OK if a prompt whose new rows stand at these positions can be run now. RESOURCE_EXHAUSTED if the devices are too
  // small for it, UNAVAILABLE if there is none at the moment.
  virtual absl::Status CheckFits(IndexRange positions, model::MlaForm form) = 0;

  // The rows' KV and logits, as Engine::Forward computes them in one call; several devices round differently, and after
  // a failure may begin again. All callbacks come from the calling thread. Errors: CheckFits', `interrupted`'s (within
  // about a layer), and what fails on the way; then, too, nothing of the run uses rows or pages any more. At most
  // kLogitRows rows want logits, all in the last pass. UNIMPLEMENTED if the kernels do not have the form.
  virtual absl::Status Run(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages,
                           model::MlaForm form, absl::FunctionRef<absl::Status()> interrupted,
                           const StreamEvents& events,
                           absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) = 0;

  // From the next run on: may use what belongs to decode while that has nothing to do.
  virtual void UseWholeMachine(bool /*whole*/) {}

  // Of the last run.
  virtual StreamCounters run_counters() const = 0;
  // Its timeline. INVALID_ARGUMENT names the file that cannot be written.
  virtual absl::Status WriteTrace(const std::string& path) const = 0;
};

}  // namespace moestro::prefill
