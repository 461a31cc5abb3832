// The part of `moestro simulate` that is about several devices.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/device/sim/hardware.h"
#include "services/prefill/stream/simulate.h"

namespace moestro {

struct SimulateRanksFlags {
  std::string model;  // one of PublishedModels()
  std::vector<int64_t> tokens;
  MemoryLimits limits;
  DType activations = DType::kBF16;  // StepLoad's
  int ranks = 2;
  bool paper = false;
  bool json = false;
};

// What the simulation multiplies, as a line.
std::string ProductsLine(DType activations);
// The limits with every expert a launch of its own, as "Cloud-grade SLOs for local MoE" computes them (figure 5).
MemoryLimits InPapersWay(MemoryLimits limits);

// Prints prompts of each length on one device and on several, with standard EP and with SmallEP, and a layer with
// experts step by step. A way in which a length does not fit the devices is skipped, with a line that says why; if no
// length fits in any way, that is the error. The layer is that of 20K tokens; its ways are skipped likewise.
absl::Status SimulateSeveral(const device::HardwareSpec& hardware, const SimulateRanksFlags& flags);

}  // namespace moestro
