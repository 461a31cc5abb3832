#include "services/prefill/stream/host_compute.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "services/prefill/stream/costs.h"

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
  const int64_t layer = step.layer;
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
      return always_ok([this, layer,
                        w = Staged(spec_, run_.form, weights_.layers[layer].attention, modules[0].module->image,
                                   modules[0].base)] { forward_->Attention(layer, w); });
    case StepKind::kDense:
      return always_ok([this, w = Staged(spec_, weights_.layers[layer].feed_forward, modules[0].module->image,
                                         modules[0].base)] { forward_->Dense(w); });
    case StepKind::kRoute:
      return [this, w = Staged(spec_, weights_.layers[layer].feed_forward, modules[0].module->image, modules[0].base)] {
        return forward_->Route(w);
      };
    case StepKind::kExperts: {
      std::vector<MlpWeights> experts;
      for (const StagedModule& m : modules) {
        experts.push_back(
            Staged(weights_.layers[layer].feed_forward.experts[m.module->index], m.module->image, m.base));
      }
      return always_ok([this, experts = std::move(experts), first = modules[0].module->index] {
        forward_->Experts({experts, first});
      });
    }
    case StepKind::kSharedExpert:
      return always_ok([this, w = Staged(spec_, weights_.layers[layer].feed_forward, modules[0].module->image,
                                         modules[0].base)] { forward_->SharedExpert(w.always); });
    case StepKind::kHead: {
      const Module& m = *modules[0].module;
      const PackedMatrix slice = Staged(SliceRows(weights_.head, m.first, m.rows), m.image, modules[0].base);
      const float* norm = nullptr;
      if (m.index == 0) {
        norm = reinterpret_cast<const float*>(
            m.image.Relocated(reinterpret_cast<const uint8_t*>(weights_.final_norm), modules[0].base));
      }
      return always_ok([this, slice, norm, first = m.first] {
        if (norm != nullptr) forward_->FinalNorm(norm);
        forward_->Head({slice, first});
      });
    }
  }
  MOE_CHECK(false);
  return nullptr;
}

absl::Status HostCompute::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const int64_t first = run_.PassRows(run_.passes - 1).begin;
  return forward_->Logits([&](int64_t row, std::span<const float> logits) { on_logits(first + row, logits); });
}

}  // namespace moestro
