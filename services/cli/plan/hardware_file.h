// Reads a machine's figures from a file: deploy/hardware/README.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/sim/hardware.h"
#include "common/experts/domains/costs.h"
#include "common/roofline/cpu_seconds.h"
#include "common/roofline/roofline.h"
#include "common/tensor/dtype.h"

namespace moestro::cli {

// A fraction that this project's kernels reach, of a file that has measured ones.
struct KernelRate {
  std::string name;
  std::optional<double> measured = {};
  double estimated = 0;
};

struct GpuMachine {
  device::HardwareSpec built;      // with the fractions that this project's kernels reach
  device::HardwareSpec paper_way;  // with the file's other fractions
  std::string origin;              // of the kernels' fractions: "estimated" or "measured"; empty: the file has none
  bool built_fp8 = false;          // whether this project's kernels multiply FP8 on this GPU
  std::vector<KernelRate> rates;   // all of them, if one was measured; `built` has the measured ones

  // What the kernels here do with inputs of FP8 weights.
  DType BuiltActivations() const { return built_fp8 ? DType::kF8E4M3 : DType::kBF16; }
  const device::HardwareSpec& For(DType activations) const {
    return activations == DType::kF8E4M3 && !built_fp8 ? paper_way : built;
  }
};

// A device, a CPU, and processors on the CPU's DIMMs.
struct NearDataMachine {
  std::string name;
  double gpu_memory_bytes = 0;
  experts::DomainRates rates;  // with the fractions that the file has
  double dimm_links = 0;       // of each DIMM, to others
};

// JSON of version 2 (deploy/hardware/README.md): levels, links and, for GPUs, `kernels`, the fractions that this
// project's kernels reach, and `measured`, which take the place of those. Each function needs some of the fields; the
// file may have others. INVALID_ARGUMENT names the file and the field: absent, unknown, or not a positive number; or
// says how to convert a file of version 1. NOT_FOUND names an unreadable file.
absl::StatusOr<GpuMachine> ReadHardwareFile(const std::string& path);
// A machine whose CPUs compute all.
absl::StatusOr<roofline::CpuMachine> ReadCpuMachineFile(const std::string& path);
// A device and its host, at their full rates.
absl::StatusOr<roofline::Machine> ReadLevels(const std::string& path);
absl::StatusOr<NearDataMachine> ReadNearDataMachine(const std::string& path);

}  // namespace moestro::cli
