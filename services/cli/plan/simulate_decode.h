// `moestro simulate --decode`: what decode steps would take on a machine described by a file, attention on its GPU and
// experts on its CPU, as one batch and as two that take turns. Looks into the decode role: its lanes are what runs, on
// a simulated device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/device/sim/hardware.h"

namespace moestro {

struct SimulateDecodeFlags {
  std::string model;
  std::vector<int64_t> batch = {1, 2, 4, 6};
  std::vector<int64_t> context = {1024, 32768};
  bool paper = false;  // also the paper's figures and their like here
  bool json = false;
};

// Prints. INVALID_ARGUMENT names the flag, or the number that the machine lacks.
absl::Status SimulateDecode(const device::HardwareSpec& hardware, const SimulateDecodeFlags& flags);

}  // namespace moestro
