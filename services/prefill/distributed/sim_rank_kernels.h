// Kernels that only cost: what a rank's device would compute.
#pragma once

#include <vector>

#include "common/model/binding.h"
#include "services/prefill/distributed/rank_kernels.h"
#include "services/prefill/stream/costs.h"

namespace moestro {

class SimRankKernels final : public RankKernels {
 public:
  // Both outlive it. Experts are taken to be chosen evenly.
  SimRankKernels(const ModelSpec& spec, const ModelWeights& weights) : spec_(spec), weights_(weights) {}

  int64_t ActivationBytes(const RankRun& run) const override;
  absl::Status Begin(const RankRun& run) override;
  void End() override {}
  device::Kernel Plain(const Step& step, std::span<const StagedModule> modules) override;
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)>) override {
    return absl::OkStatus();
  }

  device::Kernel ProjectKv(const Step& step, const StagedModule& attention, uint16_t* kv) override;
  int64_t attention_tiles() const override { return run_.own_rows() > 0 ? 1 : 0; }
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
  absl::StatusOr<PairLists> Pairs() const override { return ExpectedPairs(); }
  device::Kernel Pack(const uint16_t* x, const ExpertChoice* choices, uint16_t* pair_x, int32_t* pair_experts) override;
  device::Kernel SortPairs(std::span<const int32_t> experts, std::span<float> sums) override;
  device::Kernel WeighPairs(const ExpertChoice* choices, const float* sums) override;
  device::Kernel Copy(uint8_t* to, const uint8_t* from, int64_t bytes) override;

 private:
  PairLists ExpectedPairs() const;
  device::KernelCost Cost(const Step& step, std::span<const StagedModule> modules) const;

  const ModelSpec& spec_;
  const ModelWeights& weights_;
  RankRun run_;
  StepLoad load_;  // of the run's steps
};

}  // namespace moestro
