// Selects this process's kernels: the best table that the CPU can run, or the table named by MOESTRO_ISA.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kernels/cpu/kernels.h"

namespace moestro {

// Reads the environment variable MOESTRO_ISA ("ref", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx";
// unset or empty = best available). INVALID_ARGUMENT for a name that is not compiled in, or that this CPU lacks: never
// a silent fallback.
absl::StatusOr<const CpuKernels*> SelectKernels();

// The same table with this setting.
absl::StatusOr<CpuKernels> SelectKernels(Int8Activations setting);

// The words of the flag --int8-activations, in the order of Int8Activations, and its help. Roles that compute for the
// same requests need the same setting: else bits depend on the role that computed a token. The KV pool checks it.
inline constexpr std::array<std::string_view, 3> kInt8ActivationsWords = {"published", "all", "bf16"};
inline constexpr std::string_view kInt8ActivationsHelp =
    "Weights whose inputs are rounded to 8 bits. published: those of INT8 checkpoints, which are published so; all: "
    "four- to eight-bit formats of blocks (GGUF, INT4, MXFP4) too, faster and less exact; bf16: none. Prefill and "
    "decode "
    "need the same: prefill refuses prompts of a decode that has another. A GPU rounds those of "
    "INT8 checkpoints at most";

// The flag with its word, as a user gives it.
std::string Int8ActivationsFlag(Int8Activations setting);

// The choice itself. `forced` may be empty; `available` must not be, and is in ascending order of speed.
absl::StatusOr<const CpuKernels*> ChooseKernels(std::string_view forced,
                                                const std::vector<const CpuKernels*>& available,
                                                const std::vector<std::string_view>& compiled);

}  // namespace moestro
