// The steps of a streamed run on a device whose memory and kernels are the host's: prompt_forward.h on
// staged weights, on the engine's workers. KV pages are written where they are.
#pragma once

#include <memory>

#include "common/engine/host/prompt_forward.h"
#include "common/engine/prefill_compute.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/binding.h"
#include "common/platform/worker_pool.h"

namespace moestro::engine {

class HostPrefill final : public PrefillCompute {
 public:
  // All outlive it. `weights` point into host memory; the embedding is read there, row by row. The pool is free while a
  // run is on.
  HostPrefill(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
              WorkerPool& pool, int64_t tile_rows)
      : spec_(spec), weights_(weights), kernels_(kernels), pool_(pool), tile_rows_(tile_rows) {}

  int64_t ActivationBytes(int64_t pass_rows) const override;
  absl::Status CheckForm(model::MlaForm) const override { return absl::OkStatus(); }
  absl::Status Begin(const PromptRun& run) override;
  absl::Status Launch(const LayerStep& step, std::span<const StagedModule> modules, device::Stream& stream,
                      const std::atomic<bool>& stopped) override;
  absl::Status Store(const LayerStep&, device::Stream&) override { return absl::OkStatus(); }
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;
  void End() override { forward_.reset(); }

 private:
  PromptForward::Options OptionsFor(int64_t pass_rows) const;
  // What the step computes, bound to the staged weights. REQUIRES: no step of an exchange.
  std::function<absl::Status()> WorkOf(const LayerStep& step, std::span<const StagedModule> modules);
  absl::Status BeginPass(int64_t pass);

  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  const CpuKernels& kernels_;
  WorkerPool& pool_;
  const int64_t tile_rows_;
  PromptRun run_;
  std::unique_ptr<PromptForward> forward_;  // of the run
};

}  // namespace moestro::engine
