#include "services/prefill/distributed/simulate_ranks.h"

#include <algorithm>
#include <memory>
#include <optional>
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

// Weights get what exchanges, and copies of what is cached, leave of the bus: over a run, all take turns.
double CopyRate(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                const model::ModelWeights& weights, model::MlaForm form, IndexRange tokens, int ranks,
                roofline::ExpertParallelism experts) {
  double streamed = 0;
  for (const engine::Module& module : engine::ListModules(spec, weights, form, int64_t{1} << 28)) {
    const double share = module.kind == engine::ModuleKind::kExpert ? 1.0 / ranks : 1;
    streamed += share * static_cast<double>(module.image.bytes);
  }
  const std::vector<int64_t> rows(static_cast<size_t>(ranks), tokens.size() / ranks);
  const roofline::ExpertTraffic traffic =
      experts == roofline::ExpertParallelism::kSmall
          ? roofline::SmallEpTraffic(spec, rows, 0)
          : roofline::StandardEpTraffic(spec, roofline::EvenPairs(spec, rows), ranks, 0);
  const auto moe_layers = static_cast<double>(spec.num_moe_layers());
  const double received =
      moe_layers * static_cast<double>(traffic.dispatch.received + traffic.combine.received) +
      static_cast<double>(spec.num_layers *
                          (roofline::RingTraffic(spec.kv_dim(), rows, 0).received + 2 * spec.kv_dim() * tokens.begin));
  return hardware.copy_bytes_per_second * streamed / (streamed + received);
}

// The ranks of one pass.
struct SimRanks {
  SimRanks(const device::HardwareSpec& hardware, double copy_rate, const weights::ModelSpec& spec,
           const model::ModelWeights& weights, const MemoryLimits& limits, int ranks,
           roofline::ExpertParallelism experts, const engine::CostOptions& costs) {
    device::HardwareSpec shared = hardware;
    shared.copy_bytes_per_second = copy_rate;
    std::vector<RankSetup> setups;
    for (int rank = 0; rank < ranks; ++rank) {
      pointers.push_back(devices.emplace_back(device::NewSimDevice(shared)).get());
      kernels.push_back(std::make_unique<engine::SimRankKernels>(spec, weights, costs));
      setups.push_back({pointers.back(), kernels.back().get()});
    }
    const auto new_group = [this, link = LinkOf(hardware)](int) {
      return std::make_unique<SimRankGroup>(link, pointers);
    };
    prefill.emplace(spec, weights, std::move(setups),
                    DistributedPrefill::Options{.experts = experts, .limits = limits, .new_group = new_group});
  }
  SimRanks(const SimRanks&) = delete;
  SimRanks& operator=(const SimRanks&) = delete;

  std::vector<std::unique_ptr<device::Device>> devices;
  std::vector<device::Device*> pointers;
  std::vector<std::unique_ptr<engine::SimRankKernels>> kernels;
  std::optional<DistributedPrefill> prefill;
};

void AddExchanges(const RankReport& pass, RankReport& sum) {
  for (int i = 0; i < collective::kOperations; ++i) {
    const collective::OperationCounters& from = pass.exchanges[i];
    collective::OperationCounters& to = sum.exchanges[i];
    to = {to.calls + from.calls, to.sent_bytes + from.sent_bytes, to.received_bytes + from.received_bytes,
          to.seconds + from.seconds};
  }
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
                                             const engine::CostOptions& costs, int64_t cached) {
  const model::ModelWeights weights = roofline::ShapesOnly(spec, linear);
  const auto ranks_with = [&](double copy_rate) {
    return std::make_unique<SimRanks>(hardware, copy_rate, spec, weights, limits, ranks, experts, costs);
  };
  SimulatedRanks result;
  MOE_ASSIGN_OR_RETURN(result.passes,
                       ranks_with(hardware.copy_bytes_per_second)->prefill->Passes({cached, cached + tokens}, form));
  for (int64_t pass = 0; pass < result.passes; ++pass) {
    const IndexRange part = EvenPart(tokens, pass, result.passes);
    const IndexRange positions{cached + part.begin, cached + part.end};
    const auto group = ranks_with(CopyRate(hardware, spec, weights, form, positions, ranks, experts));
    std::vector<model::EngineRow> rows(static_cast<size_t>(part.size()));
    for (int64_t i = 0; i < part.size(); ++i) {
      rows[static_cast<size_t>(i)].position = static_cast<int32_t>(positions.begin + i);
    }
    rows.back().needs_logits = pass + 1 == result.passes;
    MOE_RETURN_IF_ERROR(group->prefill->Run(
        rows, {}, form, [] { return absl::OkStatus(); }, {}, [](int64_t, std::span<const float>) {}));
    std::vector<RankReport> reports = group->prefill->reports();
    const auto seconds = [](const RankReport& report) { return report.pipeline.counters.wall_seconds; };
    const StreamCounters slowest = std::ranges::max_element(reports, {}, seconds)->pipeline.counters;
    for (size_t rank = 0; pass > 0 && rank < reports.size(); ++rank) AddExchanges(result.ranks[rank], reports[rank]);
    result.ranks = std::move(reports);
    result.wall_seconds += slowest.wall_seconds;
    result.exchange_seconds += slowest.exchange_seconds;
    result.exchange_wait_seconds += slowest.exchange_wait_seconds;
    const ZigZagSplit split(positions.begin, positions.end, ranks);
    result.imbalance = std::max(result.imbalance, split.Imbalance());
  }
  return result;
}

}  // namespace moestro::prefill
