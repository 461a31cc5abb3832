// Ranks on simulated devices: nothing is moved, time is counted. An operation begins when the last rank arrives. For
// each rank it takes the time of the rank's bytes on its link; both directions of a link work concurrently.
#pragma once

#include <memory>
#include <vector>

#include "common/collective/communicator.h"

namespace moestro::collective {

struct SimLink {
  double bytes_per_second = 0;  // per direction, from one device to another
  double seconds = 0;           // latency
};

// One communicator per device, in this order; different threads may use them. The devices must outlive them.
std::vector<std::unique_ptr<Communicator>> NewSimGroup(const SimLink& link, std::span<device::Device* const> devices);

}  // namespace moestro::collective
