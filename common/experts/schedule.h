// Where each expert of a layer is computed, and which ones are loaded to the device for that.
//
// A pass has three timelines: the CPU and the device compute, and the bus loads experts, each one at a time. A layer
// ends when CPU and device have ended (HybriMoE, section IV-B, Eq. 2).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/experts/cache_policy.h"
#include "common/experts/expert_costs.h"

namespace moestro::experts {

struct LayerState {
  std::span<const ExpertUse> uses = {};  // in ascending id
  const ExpertCosts& costs;
  int64_t most_loads = 0;  // of a pass: each needs a place on the device
  double bus_busy = 0;     // seconds until earlier loads are done, which inputs of the device wait for too
  double device_busy = 0;  // seconds until the device has computed the shared expert

  double host_seconds(int32_t rows) const { return costs.host_beside * costs.host.At(rows); }  // beside the device
  double device_start() const { return std::max(bus_busy, device_busy) + costs.device_start; }
};

// Places of experts in LayerState::uses. Each is in `host` or in `device`, once.
struct SchedulePlan {
  std::vector<int32_t> host;
  std::vector<int32_t> device;  // in the order in which the device computes: those that it holds, then those of `loads`
  std::vector<int32_t> loads;   // in the order on the bus
  // Seconds since the pass began; 0 without work.
  double host_end = 0;
  double device_end = 0;
  double bus_end = 0;  // of `loads`, or of what was on the bus

  double makespan() const { return std::max(host_end, device_end); }
  void Reserve(int64_t experts);
  void Clear();
};

// Computes the plan's ends.
void SetEnds(const LayerState& state, SchedulePlan& plan);

}  // namespace moestro::experts
