// Runs a schedule: "Cloud-grade SLOs for local MoE", section 3.1. Three threads with a device stream each.
//
//   loader     waits until the memory is released, puts the module's copies on the load stream, records ON
//   model      waits for ON (recorded: on the host; reached: on the compute stream), launches the step, records OFF
//   unloader   waits for OFF, stores a layer's KV, releases the memory: the weights are forgotten, the segment keeps
//   them
//
// The model thread is the caller's. README.md: who waits for what, and why nothing hangs.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/device/device.h"
#include "common/engine/prefill_compute.h"
#include "services/prefill/stream/schedule.h"
#include "services/prefill/stream/timeline.h"

namespace moestro::prefill {

struct PipelineReport {
  StreamCounters counters;
  Timeline timeline;  // of the steps that were done
  double begin = 0;   // on the device's clock
  bool ended_early = false;
};

// A run that goes on to its end.
inline bool NeverEndsEarly(const Step& /*next*/) { return false; }

// `interrupted` is asked before every step and every few milliseconds, on_released called for every step that is done,
// in order; both by the calling thread. Returns the first failure of any thread or stream; then, too, all threads have
// ended, nothing is on a stream, and all memory is back. `compute` has begun its run. `ends_before` is asked once
// before every step; true: OK as soon as all steps before it are done.
absl::Status RunPipeline(device::Device& device, const Schedule& schedule, engine::StepCompute& compute,
                         absl::FunctionRef<absl::Status()> interrupted,
                         absl::FunctionRef<void(const Step& step)> on_released, PipelineReport* report,
                         absl::FunctionRef<bool(const Step& next)> ends_before = NeverEndsEarly);

}  // namespace moestro::prefill
