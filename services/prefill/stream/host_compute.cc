#include "services/prefill/stream/host_compute.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "services/prefill/stream/costs.h"
#include "services/prefill/stream/host_steps.h"

namespace moestro {

PromptForward::Options HostCompute::OptionsFor(int64_t pass_rows) const {
  return {.max_rows = pass_rows, .tile_rows = std::min(tile_rows_, pass_rows)};
}

int64_t HostCompute::ActivationBytes(int64_t pass_rows) const {
  return PromptForwardBytes(spec_, pool_.threads(), OptionsFor(pass_rows));
}

absl::Status HostCompute::Begin(const PromptRun& run) {
  MOE_RETURN_IF_ERROR(CheckRun(spec_, run));
  run_ = run;
  forward_ = std::make_unique<PromptForward>(spec_, kernels_, pool_, OptionsFor(run.max_pass_rows()));
  return BeginPass(run.passes - 1);  // the one that can fail
}

absl::Status HostCompute::BeginPass(int64_t pass) {
  const IndexRange rows = run_.PassRows(pass);
  return forward_->Begin(run_.rows.subspan(rows.begin, rows.size()), run_.pages, run_.form);
}

absl::Status HostCompute::Launch(const Step& step, std::span<const StagedModule> modules, device::Stream& stream,
                                 const std::atomic<bool>& stopped) {
  return stream.Launch({.name = StepName(step.kind),
                        .cost = StepCost(spec_, weights_, run_, step, modules),
                        .run = [work = WorkOf(step, modules), layer = step.layer, &stopped](void*) -> absl::Status {
                          if (stopped) return absl::CancelledError("the run has been given up");
                          return Annotate(work(), absl::StrFormat("layer %d", layer));
                        }});
}

std::function<absl::Status()> HostCompute::WorkOf(const Step& step, std::span<const StagedModule> modules) {
  std::function<absl::Status()> work = HostStepWork(spec_, weights_, run_.form, step, modules, *forward_);
  if (step.kind != StepKind::kEmbed) return work;
  return [this, pass = step.pass, work = std::move(work)] {
    MOE_RETURN_IF_ERROR(BeginPass(pass));
    return work();
  };
}

absl::Status HostCompute::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const int64_t first = run_.PassRows(run_.passes - 1).begin;
  return forward_->Logits([&](int64_t row, std::span<const float> logits) { on_logits(first + row, logits); });
}

}  // namespace moestro
