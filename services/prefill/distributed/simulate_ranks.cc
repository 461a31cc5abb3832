#include "services/prefill/distributed/simulate_ranks.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/status.h"
#include "common/collective/shared/region.h"
#include "common/collective/sim/sim_communicator.h"
#include "common/device/sim/sim_device.h"
#include "common/engine/sim/sim_rank_kernels.h"
#include "common/roofline/shapes.h"
#include "services/prefill/distributed/distributed_prefill.h"

namespace moestro::prefill {
namespace {

// Two streams of copies share a direction of the bus evenly: while weights stream, which is always, exchanges get half.
constexpr double kExchangeShare = 0.5;

class SimRankGroup final : public RankGroup {
 public:
  SimRankGroup(const collective::SimLink& link, std::span<device::Device* const> devices)
      : communicators_(collective::NewSimGroup(link, devices)) {}
  absl::StatusOr<std::unique_ptr<collective::Communicator>> Join(int rank, device::Device&) override {
    return std::move(communicators_[static_cast<size_t>(rank)]);
  }

 private:
  std::vector<std::unique_ptr<collective::Communicator>> communicators_;
};

// From a device to the host and from there to the other, the first slot by itself.
collective::SimLink LinkOf(const device::HardwareSpec& hardware) {
  const double rate = kExchangeShare * hardware.copy_bytes_per_second;
  return {rate, 2 * hardware.copy_seconds + static_cast<double>(collective::kDefaultSlotBytes) / rate};
}

// Weights get what exchanges leave of the bus: over a run, both take turns.
double CopyRate(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                const model::ModelWeights& weights, model::MlaForm form, int64_t tokens, int ranks,
                roofline::ExpertParallelism experts) {
  double streamed = 0;
  for (const engine::Module& module : engine::ListModules(spec, weights, form, int64_t{1} << 28)) {
    const double share = module.kind == engine::ModuleKind::kExpert ? 1.0 / ranks : 1;
    streamed += share * static_cast<double>(module.image.bytes);
  }
  const std::vector<int64_t> rows(static_cast<size_t>(ranks), tokens / ranks);
  const roofline::ExpertTraffic traffic =
      experts == roofline::ExpertParallelism::kSmall
          ? roofline::SmallEpTraffic(spec, rows, 0)
          : roofline::StandardEpTraffic(spec, roofline::EvenPairs(spec, rows), ranks, 0);
  const auto moe_layers = static_cast<double>(spec.num_moe_layers());
  const double received = moe_layers * static_cast<double>(traffic.dispatch.received + traffic.combine.received) +
                          static_cast<double>(spec.num_layers * roofline::RingTraffic(spec.kv_dim(), rows, 0).received);
  return hardware.copy_bytes_per_second * streamed / (streamed + received);
}

}  // namespace

RankShares ShareOut(int64_t tokens, int ranks) {
  const ZigZagSplit split(0, tokens, ranks);
  RankShares shares{.rows = {}, .imbalance = split.Imbalance()};
  for (int rank = 0; rank < ranks; ++rank) shares.rows.push_back(split.Rows(rank));
  return shares;
}

absl::StatusOr<SimulatedRanks> SimulateRanks(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                             DType linear, model::MlaForm form, int64_t tokens,
                                             const MemoryLimits& limits, int ranks, roofline::ExpertParallelism experts,
                                             DType activations, int64_t cached) {
  const model::ModelWeights weights = roofline::ShapesOnly(spec, linear);
  device::HardwareSpec shared = hardware;
  shared.copy_bytes_per_second = CopyRate(hardware, spec, weights, form, tokens, ranks, experts);
  std::vector<std::unique_ptr<device::Device>> devices;
  std::vector<device::Device*> pointers;
  std::vector<std::unique_ptr<engine::SimRankKernels>> kernels;
  std::vector<RankSetup> setups;
  for (int rank = 0; rank < ranks; ++rank) {
    pointers.push_back(devices.emplace_back(device::NewSimDevice(shared)).get());
    kernels.push_back(std::make_unique<engine::SimRankKernels>(spec, weights, activations));
    setups.push_back({pointers.back(), kernels.back().get()});
  }
  DistributedPrefill prefill(
      spec, weights, setups,
      {.experts = experts, .limits = limits, .new_group = [&](int) -> std::unique_ptr<RankGroup> {
         return std::make_unique<SimRankGroup>(LinkOf(hardware), pointers);
       }});
  std::vector<model::EngineRow> rows(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < tokens; ++i) rows[static_cast<size_t>(i)].position = static_cast<int32_t>(cached + i);
  rows.back().needs_logits = true;
  MOE_RETURN_IF_ERROR(prefill.Run(
      rows, {}, form, [] { return absl::OkStatus(); }, {}, [](int64_t, std::span<const float>) {}));
  SimulatedRanks result{prefill.reports(), 0, ZigZagSplit(cached, cached + tokens, ranks).Imbalance()};
  for (const RankReport& rank : result.ranks) {
    result.wall_seconds = std::max(result.wall_seconds, rank.pipeline.counters.wall_seconds);
  }
  return result;
}

}  // namespace moestro::prefill
