// The device's part of a large batch's step by the kernels of common/kernels/cuda, on a device that runs them: a GPU,
// or in tests the model of one. The host attends. Results agree with the engine's to the tolerance between devices.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/device/device.h"
#include "common/device/pinned_buffer.h"
#include "common/engine/batch_compute.h"
#include "common/engine/cuda/activations.h"
#include "common/engine/cuda/device_weights.h"
#include "common/engine/cuda/head.h"
#include "common/engine/cuda/inputs.h"
#include "common/engine/cuda/rows.h"
#include "common/kernels/cpu/input_coding.h"

namespace moestro::engine {

class CudaBatch final : public BatchCompute {
 public:
  // Device memory that it takes: dense weights, activations and logits.
  static int64_t Bytes(const weights::ModelSpec& spec, const model::ModelWeights& weights, int64_t max_rows,
                       Int8Activations setting);
  // All outlive it. `weights` point into host memory; of `on_device` the routed experts count, which lie in device
  // memory. REQUIRES a spec that CheckPrefillSupported accepts: then rows of outputs are as far apart as the kernels
  // want them. Returns when the dense weights are there. RESOURCE_EXHAUSTED if the device is full.
  static absl::StatusOr<std::unique_ptr<CudaBatch>> Create(device::Device& device, const weights::ModelSpec& spec,
                                                           const model::ModelWeights& weights,
                                                           const model::ModelWeights& on_device, int64_t max_rows,
                                                           Int8Activations setting);

  absl::Status CheckForm(model::MlaForm form) const override;
  void Begin(std::span<const MicroBatch> micro_batches, const AttentionIo& io) override;
  absl::Status Embed(device::Stream& stream) override;
  absl::Status PreAttention(int64_t layer, size_t micro_batch, device::Stream& stream) override;
  // UNIMPLEMENTED.
  absl::Status Attend(int64_t layer, size_t micro_batch, std::span<const kv::KvPages> pages,
                      device::Stream& stream) override;
  absl::Status PostAttention(int64_t layer, size_t micro_batch, device::Stream& stream) override;
  absl::Status Logits(std::span<const model::EngineRow> rows, std::span<const int64_t> places, device::Stream& stream,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;

 private:
  CudaBatch(device::Device& device, const weights::ModelSpec& spec, const model::ModelWeights& weights,
            const model::ModelWeights& on_device, bool coded, DeviceWeights dense, CudaActivations activations,
            StepHead head, device::PinnedBuffer<int32_t> has_nan)
      : device_(device),
        spec_(spec),
        on_device_(on_device),
        coded_(coded),
        dense_(std::move(dense)),
        activations_(std::move(activations)),
        head_(std::move(head)),
        has_nan_(std::move(has_nan)),
        inputs_(spec, weights) {}

  CudaRows RowsOf(IndexRange rows) const;
  CudaRows RowsOf(const MicroBatch& batch) const {
    return RowsOf({batch.first_row, batch.first_row + batch.rows.size()});
  }
  absl::Status RunPreAttention(int64_t layer, const MicroBatch& batch, cuda::Stream stream) const;
  absl::Status RunPostAttention(int64_t layer, const MicroBatch& batch, cuda::Stream stream) const;

  device::Device& device_;
  const weights::ModelSpec& spec_;
  const model::ModelWeights& on_device_;
  const bool coded_;
  const DeviceWeights dense_;
  const CudaActivations activations_;
  const StepHead head_;
  const device::PinnedBuffer<int32_t> has_nan_;  // [num_layers]
  CudaInputs inputs_;

  // Of the step.
  std::span<const MicroBatch> micro_batches_;
  AttentionIo io_;
  std::vector<model::EngineRow> rows_;
};

}  // namespace moestro::engine
