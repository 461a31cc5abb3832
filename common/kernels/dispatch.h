// Selects this process's kernels: the best table that the CPU can run, or the table named by MOESTRO_ISA.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kernels/cpu/kernels.h"

namespace moestro {

// Reads the environment variable MOESTRO_ISA ("ref", "avx2", "avx512", "avx512_bf16", "amx"; unset or empty = best
// available). INVALID_ARGUMENT for a name that is not compiled in, or that this CPU lacks: never a silent fallback.
absl::StatusOr<const CpuKernels*> SelectKernels();

// The choice itself. `forced` may be empty; `available` must not be, and is in ascending order of speed.
absl::StatusOr<const CpuKernels*> ChooseKernels(std::string_view forced,
                                                const std::vector<const CpuKernels*>& available,
                                                const std::vector<std::string_view>& compiled);

}  // namespace moestro
