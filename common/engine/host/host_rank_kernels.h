// A rank whose device is the host: prompt_forward.h on staged weights, on workers of the rank's own.
#pragma once

#include <memory>
#include <vector>

#include "common/engine/host/prompt_forward.h"
#include "common/engine/rank_kernels.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/binding.h"
#include "common/model/moe/expert_plan.h"
#include "common/platform/worker_pool.h"

namespace moestro::engine {

class HostRankKernels final : public RankKernels {
 public:
  // As HostPrefill; the pool is this rank's alone while a run is on.
  HostRankKernels(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
                  WorkerPool& pool, int64_t tile_rows)
      : spec_(spec), weights_(weights), kernels_(kernels), pool_(pool), tile_rows_(tile_rows) {}

  int64_t ActivationBytes(const RankShare& share) const override;
  absl::Status CheckForm(model::MlaForm) const override { return absl::OkStatus(); }
  absl::Status Begin(const RankShare& share) override;
  void End() override { forward_.reset(); }
  device::Kernel Embed() override;
  device::Kernel Dense(const StagedModule& dense) override;
  device::Kernel SharedExpert(const StagedModule& router) override;
  float* residuals() const override { return forward_->residuals(); }
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
  absl::StatusOr<PairLists> Pairs() const override { return pairs_; }
  device::Kernel Pack(const uint16_t* x, const model::ExpertChoice* choices, uint16_t* pair_x,
                      int32_t* pair_experts) override;
  device::Kernel SortPairs(std::span<const int32_t> experts) override;
  device::Kernel CombinePairs(const model::ExpertChoice* choices, const float* sums, float* totals) override;
  device::Kernel Copy(uint8_t* to, const uint8_t* from, int64_t bytes) override;

 private:
  PromptForward::Options OptionsFor(int64_t own_rows) const;
  // The layer's KV as pages of one layer.
  kv::KvPages LayerKv(const uint16_t* kv) const;
  // A kernel that does nothing if the rank has no rows, and that cannot fail.
  template <typename Work>
  device::Kernel OfRows(const char* name, Work work) const;
  // pair -> where it lies: calls visit(pair, row, choice) for the rank's pairs in the order of Pack.
  template <typename Visit>
  void ForPairs(const model::ExpertChoice* choices, Visit visit) const;

  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  const CpuKernels& kernels_;
  WorkerPool& pool_;
  const int64_t tile_rows_;

  // Of the run.
  RankShare share_;
  std::vector<uint32_t> page_numbers_;  // 0, 1, 2, ...: the layer's KV lies in the order of positions
  std::unique_ptr<PromptForward> forward_;
  model::ExpertPlan plan_;  // of the layer: rows of this rank's experts
  PairLists pairs_;         // of the layer
};

}  // namespace moestro::engine
