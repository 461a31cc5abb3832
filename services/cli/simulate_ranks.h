// The part of `moestro simulate` that is about several devices.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/device/sim/hardware.h"
#include "services/prefill/stream/memory_plan.h"

namespace moestro {

struct SimulateRanksFlags {
  std::string model;  // one of PublishedModels()
  std::vector<int64_t> tokens;
  MemoryLimits limits;
  int ranks = 2;
  bool paper = false;
  bool json = false;
};

// Prints prompts of each length on one device and on several, with standard EP and with SmallEP, and a layer with
// experts step by step. Lengths that do not fit the devices are skipped, each with a line that says why; if none fits,
// that is the error. The layer is that of 20K tokens, and is skipped likewise.
absl::Status SimulateSeveral(const device::HardwareSpec& hardware, const SimulateRanksFlags& flags);

}  // namespace moestro
