// Reads a machine's figures from a file: deploy/hardware/README.md.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/device/sim/hardware.h"
#include "common/roofline/cpu_seconds.h"

namespace moestro::cli {

// JSON, one field for each of HardwareSpec; those for decode may be absent. INVALID_ARGUMENT names the file and the
// field: absent, unknown, or not a positive number. NOT_FOUND names an unreadable file.
absl::StatusOr<device::HardwareSpec> ReadHardwareFile(const std::string& path);
// The same for a machine without a GPU: every field of CpuMachine must be there.
absl::StatusOr<roofline::CpuMachine> ReadCpuMachineFile(const std::string& path);

}  // namespace moestro::cli
