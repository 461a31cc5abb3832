// Ranks of one machine, threads or processes, with any devices. Every byte goes through host memory, pinned if the
// device supports it. Copies go chunk by chunk, so that both directions overlap.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "common/collective/communicator.h"
#include "common/collective/shared/region.h"
#include "common/device/host/clock.h"

namespace moestro::collective {

struct SharedOptions {
  // How long an awaited rank may show no sign of life (Beat, or a chunk).
  double timeout_seconds = 4;
  const device::Clock* clock = &device::SteadyClock();  // must outlive the communicator
};

// Joins the region's group as `rank`; leaves it at destruction. One thread must join, run all operations and leave: a
// thread that ends earlier counts as a dead rank. Region and device must outlive it. ALREADY_EXISTS if the rank has
// joined before, even if it is dead; OUT_OF_RANGE if there is no such rank. Registers the region's memory with the
// device, if possible.
absl::StatusOr<std::unique_ptr<Communicator>> JoinRegion(const Region& region, int rank, device::Device& device,
                                                         const SharedOptions& options = {});

}  // namespace moestro::collective
