#include "common/engine/host/host_prefill.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::engine {

PromptForward::Options HostPrefill::OptionsFor(int64_t pass_rows) const {
  return {.max_rows = pass_rows, .tile_rows = std::min(tile_rows_, pass_rows)};
}

int64_t HostPrefill::ActivationBytes(int64_t pass_rows) const {
  return PromptForwardBytes(spec_, pool_.threads(), OptionsFor(pass_rows));
}

absl::Status HostPrefill::Begin(const PromptRun& run) {
  MOE_RETURN_IF_ERROR(CheckRun(spec_, run));
  run_ = run;
  forward_ = std::make_unique<PromptForward>(spec_, kernels_, pool_, OptionsFor(run.max_pass_rows()));
  return BeginPass(run.passes - 1);  // the one that can fail
}

absl::Status HostPrefill::BeginPass(int64_t pass) {
  const IndexRange rows = run_.PassRows(pass);
  return forward_->Begin(run_.rows.subspan(rows.begin, rows.size()), run_.pages, run_.form);
}

absl::Status HostPrefill::Launch(const LayerStep& step, std::span<const StagedModule> modules, device::Stream& stream,
                                 const std::atomic<bool>& stopped) {
  MOE_RETURN_IF_ERROR(
      stream.Launch({.name = StepName(step.kind),
                     .cost = {},
                     .run = [work = WorkOf(step, modules), layer = step.layer, &stopped](void*) -> absl::Status {
                       if (stopped) return absl::CancelledError("the run has been given up");
                       return Annotate(work(), absl::StrFormat("layer %d", layer));
                     }}));
  return MoveResiduals(spec_, step, run_.first_layer, run_.PassResiduals(step.pass), forward_->residuals(), stream);
}

std::function<absl::Status()> HostPrefill::WorkOf(const LayerStep& step, std::span<const StagedModule> modules) {
  // Functions that cannot fail.
  const auto always_ok = [](auto work) {
    return [work = std::move(work)] {
      work();
      return absl::OkStatus();
    };
  };
  switch (step.kind) {
    case StepKind::kEmbed:
      return [this, pass = step.pass] {
        MOE_RETURN_IF_ERROR(BeginPass(pass));
        forward_->Embed(weights_.embedding);
        return absl::OkStatus();
      };
    case StepKind::kAttention:
      return always_ok([this, layer = step.layer, w = modules[0].Attention(spec_, run_.form, weights_)] {
        forward_->Attention(layer, w);
      });
    case StepKind::kDense:
      return always_ok([this, w = modules[0].FeedForward(spec_, weights_)] { forward_->Dense(w); });
    case StepKind::kRoute:
      return [this, w = modules[0].FeedForward(spec_, weights_)] { return forward_->Route(w); };
    case StepKind::kExperts:
      return always_ok([this, experts = StagedExperts(weights_, modules), first = modules[0].module->index] {
        forward_->Experts({experts, first});
      });
    case StepKind::kDispatch:
    case StepKind::kCombine:
      break;
    case StepKind::kSharedExpert:
      return always_ok([this, w = modules[0].FeedForward(spec_, weights_)] { forward_->SharedExpert(w.dense); });
    case StepKind::kHead:
      return always_ok([this, slice = modules[0].Head(weights_), norm = modules[0].FinalNorm(weights_)] {
        if (norm != nullptr) forward_->FinalNorm(norm);
        forward_->Head(slice);
      });
  }
  MOE_CHECK(false);
  return nullptr;
}

absl::Status HostPrefill::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const int64_t first = run_.PassRows(run_.passes - 1).begin;
  return forward_->Logits([&](int64_t row, std::span<const float> logits) { on_logits(first + row, logits); });
}

}  // namespace moestro::engine
