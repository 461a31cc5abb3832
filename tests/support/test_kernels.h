// The kernel table of a test. CTest runs a test marked EVERY_ISA once for each name in MOESTRO_TEST_ISAS
// (tests/CMakeLists.txt), with MOESTRO_ISA set to that name.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kernels/cpu/kernels.h"

namespace moestro {

// The `amx` table, computed by a scalar model of the tile instructions.
inline constexpr std::string_view kAmxOnModel = "amx_on_model";

// Null if the CPU lacks the vector instructions that the `amx` kernels use besides tiles.
const CpuKernels* AmxOnModel();

// The `avx_vnni` table, whose kernels are compiled for a CPU that has their instruction in AVX-512 only.
inline constexpr std::string_view kAvxVnniInEvex = "avx_vnni_in_evex";

// Null if the CPU lacks AVX512_VNNI.
const CpuKernels* AvxVnniInEvex();

// Whether the CPU runs the `amx` table itself. Then only the tests of kernels take the model too, which they compare
// with the tiles bit by bit: all others would compute the same numbers, 15 to 90 times as slowly.
bool HasTiles();

// The table named by MOESTRO_ISA, kAmxOnModel included; without it the CPU's best table. FAILED_PRECONDITION if the CPU
// lacks it, INVALID_ARGUMENT if there is no such table.
absl::StatusOr<const CpuKernels*> SelectTestKernels();

// The same for a running test. every_isa_main.cc checks earlier, and skips the test without such a table.
const CpuKernels& TestKernels();

// While it lives, TestKernels() has this setting.
class ScopedInt8Activations {
 public:
  explicit ScopedInt8Activations(Int8Activations setting);
  ~ScopedInt8Activations();
  ScopedInt8Activations(const ScopedInt8Activations&) = delete;
  ScopedInt8Activations& operator=(const ScopedInt8Activations&) = delete;
};

// The tables that this CPU can run, or two of them (tables_to_test.h), for tests that compare them: without those that
// differ from the table before in coded inputs only. Their bits are the same, which the tests of kernels check.
std::vector<const CpuKernels*> DistinctKernels();

// These, and, unless they are but two, kAmxOnModel if the CPU has no tiles.
std::vector<const CpuKernels*> EveryTestKernels();

// A table with another setting.
inline CpuKernels WithSetting(CpuKernels kernels, Int8Activations setting) {
  kernels.int8_activations = setting;
  return kernels;
}

}  // namespace moestro
