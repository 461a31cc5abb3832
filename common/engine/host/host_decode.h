// The device's part of a step on a device whose memory and kernels are the host's: the engine's own code, with workers
// and activations of its own for each lane. Weights and KV pages are used where they lie.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/engine/decode_compute.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/attention/rope.h"
#include "common/model/binding.h"
#include "common/model/context.h"
#include "common/model/head.h"
#include "common/platform/worker_pool.h"

namespace moestro::engine {

class HostDecode final : public DecodeCompute {
 public:
  // Spec, weights and kernels outlive it. max_rows: of all lanes together; hot_rows: of a step whose HotExperts are
  // asked for. Each lane has `threads` workers, of which the stream's own thread is one.
  HostDecode(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
             int64_t max_rows, int threads, int64_t hot_rows = 0);
  ~HostDecode() override;

  absl::Status CheckForm(model::MlaForm) const override { return absl::OkStatus(); }
  void Begin(int lane, int64_t first_row, const model::CheckedBatch& batch) override;
  absl::Status Embed(int lane, device::Stream& stream) override;
  absl::Status Attend(int lane, int64_t layer, device::Stream& stream) override;
  absl::Status Shared(int lane, int64_t layer, device::Stream& stream) override;
  absl::Status Combine(int lane, int64_t layer, device::Stream& stream) override;
  absl::Status HotExperts(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                          device::Stream& stream) override;
  ExpertIo expert_io(int lane) const override;
  absl::Status Logits(std::span<const model::EngineRow> rows, device::Stream& stream,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;

 private:
  struct LaneState;
  struct HotState;
  absl::Status RunAttend(LaneState& state, int64_t layer);
  void RunShared(LaneState& state, const model::MlpWeights& mlp);
  void RunCombine(LaneState& state, const model::MlpWeights& mlp);

  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  const CpuKernels& kernels_;
  const model::Rope rope_;
  const model::RowBuffers rows_;  // of all lanes; each works on its part
  model::HeadBuffers head_;
  std::vector<std::unique_ptr<LaneState>> lanes_;
  std::unique_ptr<HotState> hot_;  // null without hot_rows
};

}  // namespace moestro::engine
