// Kernels that only cost: what a rank's device would compute.
#pragma once

#include <vector>

#include "common/engine/rank_kernels.h"
#include "common/engine/sim/sim_prefill.h"
#include "common/model/binding.h"

namespace moestro::engine {

class SimRankKernels final : public RankKernels {
 public:
  // spec and weights outlive it. Experts are taken to be chosen evenly: no spread. Memory and tiles as SimPrefill's.
  SimRankKernels(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CostOptions& costs)
      : spec_(spec), weights_(weights), costs_(costs) {}

  int64_t ActivationBytes(const RankShare& share) const override;
  absl::Status CheckForm(model::MlaForm) const override { return absl::OkStatus(); }
  absl::Status Begin(const RankShare& share) override;
  void End() override {}
  device::Kernel Embed() override;
  device::Kernel Dense(const StagedModule& dense) override;
  device::Kernel SharedExpert(const StagedModule& router) override;
  float* residuals() const override { return nullptr; }
  device::Kernel Head(const StagedModule& slice) override;
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)>) override {
    return absl::OkStatus();
  }

  device::Kernel ProjectKv(const StagedModule& attention, uint16_t* kv) override;
  int64_t attention_tiles() const override { return share_.own_rows() > 0 ? 1 : 0; }
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
  absl::StatusOr<PairLists> Pairs() const override { return ExpectedPairs(); }
  device::Kernel Pack(const uint16_t* x, const model::ExpertChoice* choices, uint16_t* pair_x,
                      int32_t* pair_experts) override;
  device::Kernel SortPairs(std::span<const int32_t> experts) override;
  device::Kernel CombinePairs(const model::ExpertChoice* choices, const float* sums, float* totals) override;
  device::Kernel Copy(uint8_t* to, const uint8_t* from, int64_t bytes) override;

 private:
  CudaSizes Sizes(const RankShare& share) const;
  PairLists ExpectedPairs() const;
  // Sorts so many rows of `chosen` experts each, by which Experts cuts them.
  device::Kernel SortRows(int64_t rows, int64_t chosen);
  device::KernelCost Cost(StepKind kind, std::span<const StagedModule> modules) const;
  // A step that is one kernel.
  device::Kernel Whole(StepKind kind, std::span<const StagedModule> modules) const;

  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  const CostOptions costs_;
  RankShare share_;
  int64_t tile_rows_ = 0;    // of the run
  roofline::StepLoad load_;  // of the run's steps
};

}  // namespace moestro::engine
