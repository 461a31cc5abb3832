// The steps of a streamed run by the kernels of common/kernels/cuda, on a device that runs them: a GPU, or in tests the
// model of one. Attention is un-absorbed, and a run that names the other form is refused; results agree with the
// engine's to the tolerance between devices, not to the bit.
//
// Within a pass the host waits for the device only before it gathers a layer's earlier tokens: those of the layer
// before must have been copied. Which experts were chosen is known on the device only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/device/device.h"
#include "common/device/pinned_buffer.h"
#include "common/engine/cuda/activations.h"
#include "common/engine/cuda/head.h"
#include "common/engine/cuda/inputs.h"
#include "common/engine/cuda/rows.h"
#include "common/engine/cuda/supported.h"
#include "common/engine/prefill_compute.h"
#include "common/model/binding.h"

namespace moestro::engine {

class CudaPrefill final : public PrefillCompute {
 public:
  // All outlive it. `weights` point into host memory, from which embeddings are taken. REQUIRES a spec that
  // CheckPrefillSupported accepts. fp8_inputs: inputs of FP8 weights are rounded to FP8 (fp8_inputs.h), on a device
  // that multiplies FP8. least_tile_rows: of a pass that has more, where no memory is left for longer tiles.
  CudaPrefill(device::Device& device, const weights::ModelSpec& spec, const model::ModelWeights& weights,
              Int8Activations setting = Int8Activations::kPublished, bool fp8_inputs = false,
              int64_t least_tile_rows = kCudaTileRows)
      : device_(device),
        spec_(spec),
        weights_(weights),
        coded_(TakesCodes(spec, weights, setting)),
        fp8_inputs_(fp8_inputs),
        least_tile_rows_(least_tile_rows),
        inputs_(spec, weights) {}

  int64_t ActivationBytes(int64_t pass_rows) const override { return CudaActivations::Bytes(spec_, Sizes(pass_rows)); }
  absl::Status CheckForm(model::MlaForm form) const override { return CheckUnabsorbed(spec_, form); }
  absl::Status Begin(const PromptRun& run) override;
  absl::Status Launch(const LayerStep& step, std::span<const StagedModule> modules, device::Stream& stream,
                      const std::atomic<bool>& stopped) override;
  absl::Status Store(const LayerStep& step, device::Stream& stream) override;
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;
  void End() override;

 private:
  CudaSizes Sizes(int64_t pass_rows) const {
    CudaSizes sizes = CudaSizes::OfPass(pass_rows, coded_, fp8_inputs_);
    sizes.most_tile_rows = least_tile_rows_;
    return sizes;
  }

  // Puts a step's launches on its stream, in one piece or several with copies between.
  using Work = std::function<absl::Status(cuda::Stream stream)>;
  using Enqueue = absl::FunctionRef<absl::Status(Work work)>;

  CudaRows RowsOf(const LayerStep& step) const;
  // The layer's latents that are on the device, from the first row's KV block on.
  uint16_t* LatentsOf(const LayerStep& step) const;
  absl::Status Attention(const LayerStep& step, const model::AttentionWeights& w, device::Stream& stream,
                         Enqueue enqueue);
  // Tokens before a pass of one layer, in pinned memory; see Attention.
  absl::Status GatherEarlier(int64_t layer, IndexRange tokens);

  device::Device& device_;
  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  const bool coded_;
  const bool fp8_inputs_;
  const int64_t least_tile_rows_;

  // Of the run. What streams copy from and to stays until its end.
  PromptRun run_;
  CudaActivations activations_;
  CudaInputs inputs_;
  CudaResults results_;
  // A layer's KV on its way, [tokens, kv_dim]: from the pages, tokens before a pass; to the pages, a pass's.
  std::optional<device::PinnedBuffer<uint16_t>> gathered_;
  std::optional<device::PinnedBuffer<uint16_t>> computed_;
  std::unique_ptr<device::Event> gathered_copied_;
  bool is_gathered_ = false;  // and gathered_copied_ recorded
};

}  // namespace moestro::engine
