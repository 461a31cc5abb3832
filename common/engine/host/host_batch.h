// The device's part of a large batch's step on a device whose memory and kernels are the host's: the engine's own code,
// with workers and activations of its own. Routed experts lie where `weights` says; all other weights, and host KV
// pages, are used where they are. Several devices are the domains of its workers: each multiplies with its rows of the
// experts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/engine/batch_compute.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/attention/rope.h"
#include "common/model/binding.h"
#include "common/model/context.h"
#include "common/model/head.h"
#include "common/platform/worker_pool.h"

namespace moestro::engine {

class HostBatch final : public BatchCompute {
 public:
  // Spec, weights and kernels outlive it. max_rows: of a step. The stream's own thread is one of `threads` workers, or
  // of as many as there are devices.
  HostBatch(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
            int64_t max_rows, int threads, int devices = 1);
  ~HostBatch() override;

  absl::Status CheckForm(model::MlaForm) const override { return absl::OkStatus(); }
  void Begin(std::span<const MicroBatch> micro_batches, const AttentionIo& io) override;
  absl::Status Embed(device::Stream& stream) override;
  absl::Status PreAttention(int64_t layer, size_t micro_batch, device::Stream& stream) override;
  absl::Status Attend(int64_t layer, size_t micro_batch, std::span<const kv::KvPages> pages,
                      device::Stream& stream) override;
  absl::Status PostAttention(int64_t layer, size_t micro_batch, device::Stream& stream) override;
  absl::Status Logits(std::span<const model::EngineRow> rows, std::span<const int64_t> places, device::Stream& stream,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moestro::engine
