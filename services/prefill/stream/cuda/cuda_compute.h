// The steps of a streamed run by the kernels of common/kernels/cuda, on a device that runs them: a GPU, or in tests the
// model of one. Attention is un-absorbed whatever form the run names; results agree with the engine's to the tolerance
// between devices, not to the bit.
//
// Within a pass the host waits for the device only where tokens before it are copied there: which experts were chosen
// is known on the device only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/device/device.h"
#include "common/model/binding.h"
#include "services/prefill/stream/compute.h"
#include "services/prefill/stream/cuda/activations.h"
#include "services/prefill/stream/cuda/inputs.h"
#include "services/prefill/stream/cuda/pass.h"
#include "services/prefill/stream/cuda/results.h"

namespace moestro {

class CudaCompute final : public StreamCompute {
 public:
  // UNIMPLEMENTED if the kernels do not have the model's shapes.
  static absl::Status CheckSupported(const ModelSpec& spec);

  // All outlive it. `weights` point into host memory; embeddings are copied from there row by row. REQUIRES a spec that
  // CheckSupported accepts.
  CudaCompute(device::Device& device, const ModelSpec& spec, const ModelWeights& weights)
      : device_(device), spec_(spec), weights_(weights), inputs_(spec, weights) {}

  int64_t ActivationBytes(int64_t pass_rows) const override {
    return CudaActivations::Bytes(spec_, CudaSizes::OfPass(pass_rows));
  }
  absl::Status Begin(const PromptRun& run) override;
  absl::Status Launch(const Step& step, std::span<const StagedModule> modules, device::Stream& stream,
                      const std::atomic<bool>& stopped) override;
  absl::Status Store(const Step& step, device::Stream& stream) override;
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;
  void End() override { activations_ = {}; }

 private:
  // Puts a step's launches on its stream, in one piece or several with copies between.
  using Work = std::function<absl::Status(cuda::Stream stream)>;
  using Enqueue = absl::FunctionRef<absl::Status(Work work)>;

  CudaPass PassOf(const Step& step) const;
  absl::Status Attention(const Step& step, const AttentionWeights& w, device::Stream& stream, Enqueue enqueue);
  // Tokens that are in the run's pages to `to`, BF16 [tokens, kv_dim]. Returns when they are there.
  absl::Status LoadLatents(int64_t layer, IndexRange tokens, uint16_t* to, device::Stream& stream) const;

  device::Device& device_;
  const ModelSpec& spec_;
  const ModelWeights& weights_;

  // Of the run. What streams copy from and to stays until its end.
  PromptRun run_;
  CudaActivations activations_;
  CudaInputs inputs_;
  CudaResults results_;
};

}  // namespace moestro
