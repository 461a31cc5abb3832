#include "tests/support/test_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "common/base/check.h"
#include "common/kernels/cpu/avx512/kernels.h"
#include "common/kernels/cpu/avx512_vnni/kernels.h"
#include "common/kernels/cpu/hand_over.h"
#include "common/kernels/dispatch.h"
#include "common/platform/cpu/cpu_features.h"
#include "tests/common/kernels/amx/on_model.h"
#include "tests/common/kernels/avx_vnni/in_evex.h"
#include "tests/support/tables_to_test.h"

namespace moestro {

const CpuKernels* AmxOnModel() {
  const CpuFeatures cpu = DetectCpuFeatures();
  if (!cpu.avx512_vbmi || !cpu.avx512_vnni || !cpu.avx512_gfni) return nullptr;
  static const CpuKernels table = [] {
    const std::vector<const CpuKernels*> tables = AvailableKernels();
    CpuKernels kernels = **std::ranges::find(tables, "avx512_vnni", &CpuKernels::isa);
    kernels.isa = kAmxOnModel;
    kernels.linear = OwnOrBefore<MultipliesInBf16, amx::LinearOnModel, avx512::Linear>;
    kernels.linear_add = OwnOrBefore<MultipliesInBf16, amx::LinearAddOnModel, avx512::LinearAdd>;
    kernels.linear_coded = ManyCodedOrBefore<amx::LinearCodedOnModel, avx512_vnni::LinearCoded>;
    kernels.attend_token = amx::AttendTokenOnModel;
    return kernels;
  }();
  return &table;
}

const CpuKernels* AvxVnniInEvex() {
  if (!DetectCpuFeatures().avx512_vnni) return nullptr;
  static const CpuKernels table = [] {
    const std::vector<const CpuKernels*> tables = AvailableKernels();
    CpuKernels kernels = **std::ranges::find(tables, "avx2", &CpuKernels::isa);
    kernels.isa = kAvxVnniInEvex;
    kernels.encode_inputs = avx_vnni::EncodeInputsInEvex;
    kernels.linear_coded = avx_vnni::LinearCodedInEvex;
    return kernels;
  }();
  return &table;
}

bool HasTiles() {
  return std::ranges::any_of(AvailableKernels(), [](const CpuKernels* table) { return table->isa == "amx"; });
}

absl::StatusOr<const CpuKernels*> SelectTestKernels() {
  const char* const setting = std::getenv("MOESTRO_ISA");
  const std::string_view name = setting == nullptr ? "" : setting;
  const std::vector<std::string_view> compiled = CompiledKernels();
  if (name == kAmxOnModel) {
    if (AmxOnModel() != nullptr) return AmxOnModel();
  } else {
    const absl::StatusOr<const CpuKernels*> kernels = SelectKernels();
    if (kernels.ok() || !std::ranges::count(compiled, name)) return kernels;
  }
  return absl::FailedPreconditionError("this CPU lacks the instructions of " + std::string(name));
}

namespace {

CpuKernels& Chosen() {
  static CpuKernels chosen = [] {
    const absl::StatusOr<const CpuKernels*> kernels = SelectTestKernels();
    MOE_CHECK(kernels.ok());
    return **kernels;
  }();
  return chosen;
}

}  // namespace

const CpuKernels& TestKernels() { return Chosen(); }

ScopedInt8Activations::ScopedInt8Activations(Int8Activations setting) { Chosen().int8_activations = setting; }
ScopedInt8Activations::~ScopedInt8Activations() { Chosen().int8_activations = Int8Activations::kPublished; }

std::vector<const CpuKernels*> DistinctKernels() {
  std::vector<const CpuKernels*> tables = AvailableKernels();
  const auto repeats = std::ranges::unique(tables, {}, &CpuKernels::linear);
  tables.erase(repeats.begin(), repeats.end());
  if (OnlyTheBestTables() && tables.size() > 2) tables.erase(tables.begin() + 1, tables.end() - 1);
  return tables;
}

std::vector<const CpuKernels*> EveryTestKernels() {
  std::vector<const CpuKernels*> tables = DistinctKernels();
  if (AmxOnModel() != nullptr && !HasTiles() && !OnlyTheBestTables()) tables.push_back(AmxOnModel());
  return tables;
}

}  // namespace moestro
