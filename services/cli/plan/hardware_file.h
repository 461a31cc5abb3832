// Reads a machine's figures from a file: deploy/hardware/README.md.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/device/sim/hardware.h"
#include "common/roofline/cpu_seconds.h"
#include "common/tensor/dtype.h"

namespace moestro::cli {

struct GpuMachine {
  device::HardwareSpec built;      // with the fractions that this project's kernels reach
  device::HardwareSpec paper_way;  // with the file's other fractions
  std::string origin;              // of the kernels' fractions: "estimated" or "measured"; empty: the file has none
  bool built_fp8 = false;          // whether this project's kernels multiply FP8 on this GPU

  // What the kernels here do with inputs of FP8 weights.
  DType BuiltActivations() const { return built_fp8 ? DType::kF8E4M3 : DType::kBF16; }
  const device::HardwareSpec& For(DType activations) const {
    return activations == DType::kF8E4M3 && !built_fp8 ? paper_way : built;
  }
};

// JSON, one field for each of HardwareSpec; those for decode may be absent, and `kernels`, an object with the fractions
// that this project's kernels reach. INVALID_ARGUMENT names the file and the field: absent, unknown, or not a positive
// number. NOT_FOUND names an unreadable file.
absl::StatusOr<GpuMachine> ReadHardwareFile(const std::string& path);
// The same for a machine without a GPU: every field of CpuMachine must be there.
absl::StatusOr<roofline::CpuMachine> ReadCpuMachineFile(const std::string& path);

}  // namespace moestro::cli
