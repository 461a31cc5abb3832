// A rank whose device is a GPU: the launches of services/prefill/stream/cuda over the rank's stripes, and over rows of
// all ranks for its experts. Attention is un-absorbed whatever form the run names. A tile of attention is some heads of
// all of the rank's rows, for which keys and values are expanded part by part.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/model/binding.h"
#include "services/prefill/distributed/rank_kernels.h"
#include "services/prefill/stream/cuda/activations.h"
#include "services/prefill/stream/cuda/attention.h"
#include "services/prefill/stream/cuda/feed_forward.h"
#include "services/prefill/stream/cuda/inputs.h"
#include "services/prefill/stream/cuda/pass.h"
#include "services/prefill/stream/cuda/results.h"

namespace moestro {

class CudaRankKernels final : public RankKernels {
 public:
  // UNIMPLEMENTED if the kernels do not have the model's shapes.
  static absl::Status CheckSupported(const ModelSpec& spec);

  // As CudaCompute.
  CudaRankKernels(device::Device& device, const ModelSpec& spec, const ModelWeights& weights)
      : device_(device), spec_(spec), weights_(weights), inputs_(spec, weights) {}

  int64_t ActivationBytes(const RankRun& run) const override;
  absl::Status Begin(const RankRun& run) override;
  void End() override;
  device::Kernel Plain(const Step& step, std::span<const StagedModule> modules) override;
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;

  device::Kernel ProjectKv(const Step& step, const StagedModule& attention, uint16_t* kv) override;
  int64_t attention_tiles() const override;
  device::Kernel BeginAttention(const Step& step, const StagedModule& attention, int64_t tile) override;
  device::Kernel AttendTo(const Step& step, const StagedModule& attention, int64_t tile, const uint16_t* kv,
                          std::vector<IndexRange> blocks) override;
  device::Kernel FinishAttention(const Step& step, const StagedModule& attention, int64_t tile) override;

  device::Kernel Route(const Step& step, const StagedModule& router, uint16_t* x, ExpertChoice* choices) override;
  device::Kernel Sort(std::span<const ExpertChoice> choices, int64_t per_row, std::span<float> sums) override;
  device::Kernel Experts(const Step& step, std::span<const StagedModule> experts, const uint16_t* x,
                         float* sums) override;
  device::Kernel AddUp(std::vector<const float*> parts) override;

  device::Kernel CountPairs(const ExpertChoice* choices) override;
  absl::StatusOr<PairLists> Pairs() const override;
  device::Kernel Pack(const uint16_t* x, const ExpertChoice* choices, uint16_t* pair_x, int32_t* pair_experts) override;
  device::Kernel SortPairs(std::span<const int32_t> experts, std::span<float> sums) override;
  device::Kernel WeighPairs(const ExpertChoice* choices, const float* sums) override;
  device::Kernel Copy(uint8_t* to, const uint8_t* from, int64_t bytes) override;

 private:
  // Of the rank's rows; kv: where the layer's keys and values are.
  CudaPass PassOf(uint16_t* kv = nullptr) const;
  IndexRange Heads(int64_t tile) const;
  AttentionWeights AttentionOf(const Step& step, const StagedModule& attention) const;
  // Parts of the blocks that some of the rank's rows see and that fit what is expanded at once.
  std::vector<KvPart> PartsOf(const uint16_t* kv, std::span<const IndexRange> blocks);
  // A kernel that launches nothing if the rank has no rows.
  template <typename Work>
  device::Kernel OfRows(const char* name, Work work) const;
  // Zeroes sums and plans how `routed_` goes to experts.
  device::Kernel SortRouted(std::span<float> sums) const;

  device::Device& device_;
  const ModelSpec& spec_;
  const ModelWeights& weights_;

  // Of the run. What streams copy from and to stays until its end.
  RankRun run_;
  std::array<CudaStripe, ZigZagSplit::kStripes> stripes_;
  CudaActivations activations_;
  CudaInputs inputs_;
  CudaResults results_;
  bool has_parts_ = false;                  // of the tile: something has been attended to
  RoutedRows routed_;                       // of the layer: what this rank's experts get
  std::unique_ptr<device::Stream> copies_;  // between host and device, while nothing is computed
};

}  // namespace moestro
