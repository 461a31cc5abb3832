// The kernel table that a test computes with. CTest runs a test that says EVERY_ISA once for each name in
// MOESTRO_TEST_ISAS (tests/CMakeLists.txt), with MOESTRO_ISA set to it.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kernels/cpu/kernels.h"

namespace moestro {

// The table of `amx`, computed by a scalar model of the tile instructions.
inline constexpr std::string_view kAmxOnModel = "amx_on_model";

// Null where the CPU lacks the vector instructions that the kernels of `amx` use beside tiles.
const CpuKernels* AmxOnModel();

// What MOESTRO_ISA names, kAmxOnModel too; without it the best that the CPU has. FAILED_PRECONDITION if the CPU lacks
// it, INVALID_ARGUMENT if there is no such table.
absl::StatusOr<const CpuKernels*> SelectTestKernels();

// The same for a test that runs: every_isa_main.cc, which checks before, skips it where there is no such table.
const CpuKernels& TestKernels();

// All that this CPU can compute: for tests that compare tables with each other.
std::vector<const CpuKernels*> EveryTestKernels();

}  // namespace moestro
