// Which kernels this process uses: the best table the CPU can run, or the one that MOESTRO_ISA names.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kernels/cpu/kernels.h"

namespace moestro {

// Reads the environment variable MOESTRO_ISA ("ref", "avx2", "avx512", "avx512_bf16", "amx"; unset or empty =
// best available). A name that is not compiled in, or that this CPU lacks, is INVALID_ARGUMENT: never a silent
// fallback.
absl::StatusOr<const CpuKernels*> SelectKernels();

// The choice itself: `forced` may be empty; `available` is not, and is in ascending order of speed.
absl::StatusOr<const CpuKernels*> ChooseKernels(std::string_view forced,
                                                const std::vector<const CpuKernels*>& available,
                                                const std::vector<std::string_view>& compiled);

}  // namespace moestro
