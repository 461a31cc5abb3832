// Ranks on simulated devices: nothing is moved, time is counted. An operation begins when the last rank has come and
// takes, for each rank, what its own bytes take on its link; both directions of a link work at once.
#pragma once

#include <memory>
#include <vector>

#include "common/collective/communicator.h"

namespace moestro::collective {

struct SimLink {
  double bytes_per_second = 0;  // of one direction, from one device to another
  double seconds = 0;           // before the first byte arrives
};

// One for each of the devices, in this order; they may be used by different threads. The devices outlive them.
std::vector<std::unique_ptr<Communicator>> NewSimGroup(const SimLink& link, std::span<device::Device* const> devices);

}  // namespace moestro::collective
