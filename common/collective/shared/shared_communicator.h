// Ranks of one machine, threads or processes, with any devices: every byte goes to memory of the host, pinned where the
// device can, and from there to the other device. Chunk by chunk, so that both copies overlap.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "common/collective/communicator.h"
#include "common/collective/shared/region.h"
#include "common/device/host/clock.h"

namespace moestro::collective {

struct SharedOptions {
  // How long a rank that others wait for may show no sign of life (Beat, or a chunk).
  double timeout_seconds = 4;
  const device::Clock* clock = &device::SteadyClock();  // outlives the communicator
};

// Joins the region's group as `rank`; leaves it when it is destroyed, by the same thread, which must run all operations
// too: a thread that ends before counts as a dead rank. Region and device outlive it. ALREADY_EXISTS if the rank has
// joined before, also if it is dead; OUT_OF_RANGE if there is no such rank. The region's memory is registered with the
// device, if it can be.
absl::StatusOr<std::unique_ptr<Communicator>> JoinRegion(const Region& region, int rank, device::Device& device,
                                                         const SharedOptions& options = {});

}  // namespace moestro::collective
