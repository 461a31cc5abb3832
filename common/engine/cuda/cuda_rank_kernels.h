// A rank whose device is a GPU: a prompt's launches over the rank's stripes, and over rows of all ranks for its
// experts. Attention is un-absorbed. A tile of attention is some heads of all of the rank's rows, for which keys and
// values are expanded part by part.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/engine/cuda/activations.h"
#include "common/engine/cuda/attention.h"
#include "common/engine/cuda/feed_forward.h"
#include "common/engine/cuda/head.h"
#include "common/engine/cuda/inputs.h"
#include "common/engine/cuda/rows.h"
#include "common/engine/cuda/supported.h"
#include "common/engine/rank_kernels.h"
#include "common/model/binding.h"

namespace moestro::engine {

class CudaRankKernels final : public RankKernels {
 public:
  // As CudaPrefill. REQUIRES a spec that CheckRanksSupported accepts.
  CudaRankKernels(device::Device& device, const weights::ModelSpec& spec, const model::ModelWeights& weights,
                  Int8Activations setting = Int8Activations::kPublished, bool fp8_inputs = false,
                  int64_t least_tile_rows = kCudaTileRows)
      : device_(device),
        spec_(spec),
        weights_(weights),
        coded_(TakesCodes(spec, weights, setting)),
        fp8_inputs_(fp8_inputs),
        least_tile_rows_(least_tile_rows),
        inputs_(spec, weights) {}

  int64_t ActivationBytes(const RankShare& share) const override;
  absl::Status CheckForm(model::MlaForm form) const override { return CheckUnabsorbed(spec_, form); }
  absl::Status Begin(const RankShare& share) override;
  void End() override;
  device::Kernel Embed() override;
  device::Kernel Dense(const StagedModule& dense) override;
  device::Kernel SharedExpert(const StagedModule& router) override;
  float* residuals() const override { return activations_.residual; }
  device::Kernel Head(const StagedModule& slice) override;
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;

  device::Kernel ProjectKv(const StagedModule& attention, uint16_t* kv) override;
  int64_t attention_tiles() const override;
  device::Kernel BeginAttention(const StagedModule& attention, int64_t tile) override;
  device::Kernel AttendTo(const StagedModule& attention, int64_t tile, const uint16_t* kv,
                          std::vector<IndexRange> blocks) override;
  device::Kernel FinishAttention(const StagedModule& attention, int64_t tile) override;

  device::Kernel Route(const StagedModule& router, uint16_t* x, model::ExpertChoice* choices) override;
  device::Kernel Clear(std::span<float> sums) override;
  device::Kernel Sort(std::span<const model::ExpertChoice> choices, int64_t per_row) override;
  device::Kernel Experts(std::span<const StagedModule> experts, const uint16_t* x, float* sums) override;
  device::Kernel AddExperts(const StagedModule& router, std::vector<float*> parts) override;

  device::Kernel CountPairs(const model::ExpertChoice* choices) override;
  absl::StatusOr<PairLists> Pairs() const override;
  device::Kernel Pack(const uint16_t* x, const model::ExpertChoice* choices, uint16_t* pair_x,
                      int32_t* pair_experts) override;
  device::Kernel SortPairs(std::span<const int32_t> experts) override;
  device::Kernel CombinePairs(const model::ExpertChoice* choices, const float* sums, float* totals) override;
  device::Kernel Copy(uint8_t* to, const uint8_t* from, int64_t bytes) override;

 private:
  CudaSizes Sizes(const RankShare& share) const;
  // Of the rank's rows; kv: where the layer's keys and values are.
  CudaRows Rows(uint16_t* kv = nullptr) const;
  IndexRange Heads(int64_t tile) const;
  // Parts of the blocks that some of the rank's rows see and that fit what is expanded at once.
  std::vector<KvPart> PartsOf(const uint16_t* kv, std::span<const IndexRange> blocks);
  // A kernel that launches nothing if the rank has no rows.
  template <typename Work>
  device::Kernel OfRows(const char* name, Work work) const;
  // Plans how `routed_` goes to experts.
  device::Kernel SortRouted() const;

  device::Device& device_;
  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  const bool coded_;
  const bool fp8_inputs_;
  const int64_t least_tile_rows_;

  // Of the run. What streams copy from and to stays until its end.
  RankShare share_;
  std::array<CudaStripe, RankShare::kStripes> stripes_;
  CudaActivations activations_;
  CudaInputs inputs_;
  CudaResults results_;
  bool has_parts_ = false;                  // of the tile: something has been attended to
  RoutedRows routed_;                       // what was sorted last
  std::unique_ptr<device::Stream> copies_;  // between host and device, while nothing is computed
};

}  // namespace moestro::engine
