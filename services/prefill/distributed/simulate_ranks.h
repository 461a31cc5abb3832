// How long a prefill over several devices would take on a machine that is not here: the same ranks, exchanges and
// pipelines on simulated devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/sim/hardware.h"
#include "services/prefill/distributed/rank_prefill.h"
#include "services/prefill/stream/simulate.h"

namespace moestro::prefill {

struct SimulatedRanks {
  int64_t passes = 0;             // DistributedPrefill::Passes
  std::vector<RankReport> ranks;  // in simulated seconds; exchanges are of all passes, the rest is of the last one
  // Of the slowest rank of each pass: in all, while exchanges were under way, and of that while it had nothing else to
  // do.
  double wall_seconds = 0;
  double exchange_seconds = 0;
  double exchange_wait_seconds = 0;
  double imbalance = 0;  // of attention: the greatest ZigZagSplit::Imbalance
};

// How a prompt of `tokens` new tokens is shared out.
struct RankShares {
  std::vector<int64_t> rows;  // by rank
  double imbalance = 0;       // of attention: ZigZagSplit::Imbalance
};
RankShares ShareOut(int64_t tokens, int ranks);

struct SimulatedDevice {
  device::HardwareSpec hardware;
  int64_t share = 1;  // RankSetup's
};

// A prompt of `tokens` new tokens, after `cached` cached ones, on these devices, a rank each, in as few passes as fit.
// Exchanges are as fast as the slowest device's bus.
absl::StatusOr<SimulatedRanks> SimulateRanks(std::span<const SimulatedDevice> devices, const weights::ModelSpec& spec,
                                             DType linear, model::MlaForm form, int64_t tokens,
                                             const MemoryLimits& limits, roofline::ExpertParallelism experts,
                                             const engine::CostOptions& costs = {}, int64_t cached = 0);
// The same on `ranks` devices that are such as `hardware` says.
absl::StatusOr<SimulatedRanks> SimulateRanks(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                             DType linear, model::MlaForm form, int64_t tokens,
                                             const MemoryLimits& limits, int ranks, roofline::ExpertParallelism experts,
                                             const engine::CostOptions& costs = {}, int64_t cached = 0);

}  // namespace moestro::prefill
