// The device's part of a decode step by the kernels of common/kernels/cuda, on a device that runs them: a GPU, or in
// tests the model of one. Dense weights stay there, and KV pages as far as there is room. Attention is absorbed, and a
// step that names the other form is refused; results agree with the engine's to the tolerance between devices, not to
// the bit. A row's bits depend on the tokens before it alone, as the engine's.
//
// Routed experts that the device holds go through a launch in groups of up to cuda::kMaxMatrices. One that is still
// being loaded begins a group.
//
// In a step nothing is allocated, and the host waits for the device where lanes wait for choices, and for the logits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/engine/cuda/backend.h"
#include "common/engine/cuda/device_pages.h"
#include "common/engine/cuda/device_weights.h"
#include "common/engine/cuda/head.h"
#include "common/engine/cuda/inputs.h"
#include "common/engine/cuda/rows.h"
#include "common/engine/cuda/supported.h"
#include "common/engine/decode_compute.h"
#include "common/model/attention/rope.h"

namespace moestro::engine {

class CudaDecode final : public DecodeCompute {
 public:
  // Copies the weights. Device, spec and weights, which point into host memory, outlive it. RESOURCE_EXHAUSTED says
  // what does not fit into device memory. REQUIRES a spec that CheckDecodeSupported accepts.
  static absl::StatusOr<std::unique_ptr<CudaDecode>> Create(device::Device& device, const weights::ModelSpec& spec,
                                                            const model::ModelWeights& weights,
                                                            const CudaDecodeOptions& options);
  ~CudaDecode() override;

  absl::Status CheckForm(model::MlaForm form) const override { return CheckAbsorbed(spec_, form); }
  void Begin(int lane, int64_t first_row, const model::CheckedBatch& batch) override;
  absl::Status Embed(int lane, device::Stream& stream) override;
  absl::Status Attend(int lane, int64_t layer, device::Stream& stream) override;
  absl::Status Shared(int lane, int64_t layer, device::Stream& stream) override;
  absl::Status Combine(int lane, int64_t layer, device::Stream& stream) override;
  absl::Status HotExperts(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                          device::Stream& stream) override;
  void Abandon(int lane) override { pages_.LetGo(lane, /*done=*/false); }
  int64_t most_pages() const override { return pages_.places(); }
  ExpertIo expert_io(int lane) const override;
  bool ReadSums(int lane, const float* host, int64_t rows) override;
  bool HandsOver(int lane, const ExpertIo& host, int64_t rows) override;
  bool IsHandedOver(int lane) override;
  // Also writes what the step adds to the cache into the pool's pages.
  absl::Status Logits(std::span<const model::EngineRow> rows, device::Stream& stream,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;

  // Pages that were copied to the device so far. Thread-safe.
  int64_t copied_pages() const { return pages_.copied_pages(); }

 private:
  struct LaneState;
  struct HotTiles;
  CudaDecode(const device::Device& device, const weights::ModelSpec& spec, const model::ModelWeights& weights,
             bool coded, DeviceWeights device_weights, device::Memory pages, const kv::KvGeometry& geometry,
             int64_t places);
  LaneState& Lane(int lane) const { return *lanes_[static_cast<size_t>(lane)]; }
  CudaRows RowsOf(const LaneState& state) const;
  absl::Status RunAttend(const LaneState& state, void* native) const;
  absl::Status RunCombine(LaneState& state, void* native) const;
  absl::Status EncodeHot(int64_t rows, const uint16_t* x, void* native) const;
  // A group of the tiles' experts.
  absl::Status RunHot(size_t group, std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                      void* native) const;
  // What the lane's rows have added to the cache, into the pool's pages.
  void StoreEntries(const LaneState& state);

  const device::Device& device_;
  const weights::ModelSpec& spec_;
  const model::ModelWeights& host_weights_;
  const bool coded_;
  const model::Rope rope_;
  const DeviceWeights weights_;
  DevicePages pages_;
  device::Memory residual_;  // F32 [rows, hidden] of all lanes; each works on its part
  std::optional<StepHead> head_;
  std::unique_ptr<HotTiles> hot_;  // null without hot_rows
  std::vector<std::unique_ptr<LaneState>> lanes_;
};

}  // namespace moestro::engine
