#include "services/prefill/distributed/simulate_ranks.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "common/base/proportional_parts.h"
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
collective::SimLink LinkOf(std::span<const SimulatedDevice> devices) {
  double copy_rate = devices.front().hardware.copy_bytes_per_second;
  double copy_seconds = 0;
  for (const SimulatedDevice& device : devices) {
    copy_rate = std::min(copy_rate, device.hardware.copy_bytes_per_second);
    copy_seconds = std::max(copy_seconds, device.hardware.copy_seconds);
  }
  const double rate = kExchangeShare * copy_rate;
  return {rate, 2 * copy_seconds + static_cast<double>(collective::kDefaultSlotBytes) / rate};
}

ProportionalParts PartsOf(std::span<const SimulatedDevice> devices) {
  std::vector<int64_t> shares;
  for (const SimulatedDevice& device : devices) shares.push_back(device.share);
  return ProportionalParts(shares);
}

// Weights get what exchanges, and copies of what is cached, leave of the rank's bus: over a run, all take turns.
double CopyRate(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                const model::ModelWeights& weights, model::MlaForm form, IndexRange tokens,
                const ProportionalParts& ranks, int rank, roofline::ExpertParallelism experts) {
  double streamed = 0;
  for (const engine::Module& module : engine::ListModules(spec, weights, form, int64_t{1} << 28)) {
    const double share = module.kind == engine::ModuleKind::kExpert
                             ? static_cast<double>(ranks.share(rank)) / static_cast<double>(ranks.total())
                             : 1;
    streamed += share * static_cast<double>(module.image.bytes);
  }
  std::vector<int64_t> rows;
  for (int64_t each = 0; each < ranks.parts(); ++each) {
    rows.push_back(tokens.size() * ranks.share(each) / ranks.total());
  }
  // The first rank of this share stands for all: whole experts and rows aside, they exchange as much.
  int like = 0;
  while (ranks.share(like) != ranks.share(rank)) ++like;
  const roofline::ExpertTraffic traffic =
      experts == roofline::ExpertParallelism::kSmall
          ? roofline::SmallEpTraffic(spec, rows, like)
          : roofline::StandardEpTraffic(spec, roofline::EvenPairs(spec, ranks, rows), static_cast<int>(ranks.parts()),
                                        like);
  const auto moe_layers = static_cast<double>(spec.num_moe_layers());
  const double received =
      moe_layers * static_cast<double>(traffic.dispatch.received + traffic.combine.received) +
      static_cast<double>(spec.num_layers * (roofline::RingTraffic(spec.kv_dim(), rows, like).received +
                                             2 * spec.kv_dim() * tokens.begin));
  return hardware.copy_bytes_per_second * streamed / (streamed + received);
}

// The ranks of one pass.
struct SimRanks {
  // copy_rate: of weights to a rank's device.
  SimRanks(std::span<const SimulatedDevice> simulated, absl::FunctionRef<double(int rank)> copy_rate,
           const weights::ModelSpec& spec, const model::ModelWeights& weights, const MemoryLimits& limits,
           roofline::ExpertParallelism experts, const engine::CostOptions& costs) {
    std::vector<RankSetup> setups;
    for (int rank = 0; rank < std::ssize(simulated); ++rank) {
      const SimulatedDevice& each = simulated[static_cast<size_t>(rank)];
      device::HardwareSpec shared = each.hardware;
      shared.copy_bytes_per_second = copy_rate(rank);
      pointers.push_back(devices.emplace_back(device::NewSimDevice(shared)).get());
      kernels.push_back(std::make_unique<engine::SimRankKernels>(spec, weights, costs));
      setups.push_back({.device = pointers.back(), .kernels = kernels.back().get(), .share = each.share});
    }
    const auto new_group = [this, link = LinkOf(simulated)](int) {
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
  const ZigZagSplit split(0, tokens, ProportionalParts::Even(ranks));
  RankShares shares{.rows = {}, .imbalance = split.Imbalance()};
  for (int rank = 0; rank < ranks; ++rank) shares.rows.push_back(split.Rows(rank));
  return shares;
}

absl::StatusOr<SimulatedRanks> SimulateRanks(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                             DType linear, model::MlaForm form, int64_t tokens,
                                             const MemoryLimits& limits, int ranks, roofline::ExpertParallelism experts,
                                             const engine::CostOptions& costs, int64_t cached) {
  const std::vector<SimulatedDevice> devices(static_cast<size_t>(ranks), {.hardware = hardware});
  return SimulateRanks(devices, spec, linear, form, tokens, limits, experts, costs, cached);
}

absl::StatusOr<SimulatedRanks> SimulateRanks(std::span<const SimulatedDevice> devices, const weights::ModelSpec& spec,
                                             DType linear, model::MlaForm form, int64_t tokens,
                                             const MemoryLimits& limits, roofline::ExpertParallelism experts,
                                             const engine::CostOptions& costs, int64_t cached) {
  const model::ModelWeights weights = roofline::ShapesOnly(spec, linear);
  const ProportionalParts ranks = PartsOf(devices);
  const auto hardware = [&](int rank) -> const device::HardwareSpec& {
    return devices[static_cast<size_t>(rank)].hardware;
  };
  const auto ranks_with = [&](absl::FunctionRef<double(int rank)> copy_rate) {
    return std::make_unique<SimRanks>(devices, copy_rate, spec, weights, limits, experts, costs);
  };
  SimulatedRanks result;
  MOE_ASSIGN_OR_RETURN(result.passes, ranks_with([&](int rank) {
                                        return hardware(rank).copy_bytes_per_second;
                                      })->prefill->Passes({cached, cached + tokens}, form));
  for (int64_t pass = 0; pass < result.passes; ++pass) {
    const IndexRange part = EvenPart(tokens, pass, result.passes);
    const IndexRange positions{cached + part.begin, cached + part.end};
    const auto group = ranks_with(
        [&](int rank) { return CopyRate(hardware(rank), spec, weights, form, positions, ranks, rank, experts); });
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
