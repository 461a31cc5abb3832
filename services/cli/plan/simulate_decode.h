// `moestro simulate --decode`: predicts the time of decode steps on a machine described by a file. Attention runs on
// its GPU and experts on its CPU, as one batch and as two alternating batches. Runs the decode role's lanes on a
// simulated device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/cli/plan/hardware_file.h"
#include "services/cli/plan/paper_claims.h"

namespace moestro::cli {

struct SimulateDecodeFlags {
  std::string model;
  std::vector<int64_t> batch = {1, 2, 4, 6};
  std::vector<int64_t> context = {1024, 32768};
  bool paper = false;  // also compares with the paper's figures
  bool json = false;
};

// The figures of section 4.3 of "Cloud-grade SLOs for local MoE", beside simulated ones: with the rates of the kernels
// here, and with the one that was fitted to the paper.
absl::StatusOr<PaperComparison> CompareDecode(const GpuMachine& machine);

// Prints the result. INVALID_ARGUMENT names the flag, or the figure that the machine lacks.
absl::Status SimulateDecode(const GpuMachine& machine, const SimulateDecodeFlags& flags);

}  // namespace moestro::cli
