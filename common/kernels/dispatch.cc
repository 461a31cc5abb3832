#include "common/kernels/dispatch.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace moestro {

absl::StatusOr<const CpuKernels*> ChooseKernels(std::string_view forced,
                                                const std::vector<const CpuKernels*>& available,
                                                const std::vector<std::string_view>& compiled) {
  if (forced.empty()) return available.back();
  for (const CpuKernels* kernels : available) {
    if (kernels->isa == forced) return kernels;
  }
  const std::string setting = "MOESTRO_ISA=" + std::string(forced);
  if (std::find(compiled.begin(), compiled.end(), forced) != compiled.end()) {
    return absl::InvalidArgumentError(
        setting + ": this CPU lacks the instructions, or the system does not allow them; unset MOESTRO_ISA to use " +
        std::string(available.back()->isa));
  }
  std::string message = setting + ": no such kernels; use one of:";
  for (std::string_view name : compiled) message.append(" ").append(name);
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<const CpuKernels*> SelectKernels() {
  const char* forced = std::getenv("MOESTRO_ISA");
  return ChooseKernels(forced == nullptr ? "" : forced, AvailableKernels(), CompiledKernels());
}

absl::StatusOr<CpuKernels> SelectKernels(Int8Activations setting) {
  absl::StatusOr<const CpuKernels*> table = SelectKernels();
  if (!table.ok()) return table.status();
  CpuKernels kernels = **table;
  kernels.int8_activations = setting;
  return kernels;
}

std::string Int8ActivationsFlag(Int8Activations setting) {
  return "--int8-activations " + std::string(kInt8ActivationsWords[static_cast<size_t>(setting)]);
}

}  // namespace moestro
