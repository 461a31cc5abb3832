#include "services/cli/plan/hardware_file.h"

#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/text/json/json.h"

namespace moestro::cli {
namespace {

using Fields = std::map<std::string, double*>;

// Sets the name and the numbers. `optional_numbers` may be absent.
absl::Status Fill(const nlohmann::json& json, const Fields& numbers, const Fields& optional_numbers,
                  const std::string& name_key, std::string* name) {
  Fields known = numbers;
  known.insert(optional_numbers.begin(), optional_numbers.end());
  for (const auto& [key, value] : json.items()) {
    if (key == name_key && value.is_string()) {
      *name = value.get<std::string>();
      continue;
    }
    const auto number = known.find(key);
    if (number == known.end()) return absl::InvalidArgumentError(absl::StrCat("unknown field '", key, "'"));
    if (!value.is_number() || !(value.get<double>() > 0)) {
      return absl::InvalidArgumentError(absl::StrCat("'", key, "' must be a positive number"));
    }
    *number->second = value.get<double>();
  }
  for (const auto& [key, number] : numbers) {
    if (!json.contains(key)) return absl::InvalidArgumentError(absl::StrCat("'", key, "' is missing"));
  }
  return name->empty() ? absl::InvalidArgumentError(absl::StrCat("'", name_key, "' is missing")) : absl::OkStatus();
}

absl::Status FillKernels(const nlohmann::json& json, GpuMachine* machine) {
  if (!json.is_object()) return absl::InvalidArgumentError("must be an object");
  device::HardwareSpec& built = machine->built;
  const Fields fractions = {{"bf16_linear_fraction", &built.bf16_linear_fraction},
                            {"attention_fraction", &built.attention_fraction},
                            {"decode_memory_fraction", &built.decode_memory_fraction},
                            {"decode_attention_fraction", &built.decode_attention_fraction}};
  // The rate of the instruction that the kernels use, which may be faster than the one that the data sheet has in mind.
  const Fields of_fp8 = {{"fp8_flops_per_second", &built.fp8_flops_per_second},
                         {"fp8_linear_fraction", &built.fp8_linear_fraction}};
  MOE_RETURN_IF_ERROR(Fill(json, fractions, of_fp8, "origin", &machine->origin));
  machine->built_fp8 = json.contains("fp8_linear_fraction");
  if (machine->built_fp8 != json.contains("fp8_flops_per_second")) {
    return absl::InvalidArgumentError("'fp8_flops_per_second' and 'fp8_linear_fraction' go together");
  }
  if (machine->origin == "estimated" || machine->origin == "measured") return absl::OkStatus();
  return absl::InvalidArgumentError("'origin' must be \"estimated\" or \"measured\"");
}

absl::Status Fill(nlohmann::json json, GpuMachine* machine) {
  device::HardwareSpec* const hardware = &machine->paper_way;
  constexpr char kKernels[] = "kernels";
  const nlohmann::json kernels = json.value(kKernels, nlohmann::json());
  json.erase(kKernels);
  const Fields numbers = {{"gpu_memory_bytes", &hardware->gpu_memory_bytes},
                          {"gpu_memory_bytes_per_second", &hardware->gpu_memory_bytes_per_second},
                          {"gpu_processors", &hardware->gpu_processors},
                          {"fp8_flops_per_second", &hardware->fp8_flops_per_second},
                          {"bf16_flops_per_second", &hardware->bf16_flops_per_second},
                          {"copy_bytes_per_second", &hardware->copy_bytes_per_second},
                          {"copy_seconds", &hardware->copy_seconds},
                          {"launch_seconds", &hardware->launch_seconds},
                          {"fp8_linear_fraction", &hardware->fp8_linear_fraction},
                          {"bf16_linear_fraction", &hardware->bf16_linear_fraction},
                          {"attention_fraction", &hardware->attention_fraction},
                          {"memory_fraction", &hardware->memory_fraction}};
  const Fields optional_numbers = {{"decode_memory_fraction", &hardware->decode_memory_fraction},
                                   {"cpu_memory_bytes_per_second", &hardware->cpu_memory_bytes_per_second},
                                   {"cpu_memory_fraction", &hardware->cpu_memory_fraction},
                                   {"cpu_cores", &hardware->cpu_cores},
                                   {"cpu_read_bytes_per_second", &hardware->cpu_read_bytes_per_second}};
  MOE_RETURN_IF_ERROR(Fill(json, numbers, optional_numbers, "name", &hardware->name));
  machine->built = *hardware;
  return kernels.is_null() ? absl::OkStatus() : Annotate(FillKernels(kernels, machine), kKernels);
}

absl::Status Fill(const nlohmann::json& json, roofline::CpuMachine* machine) {
  const Fields numbers = {{"sockets", &machine->sockets},
                          {"memory_bytes_per_second", &machine->memory_bytes_per_second},
                          {"bf16_flops_per_second", &machine->bf16_flops_per_second},
                          {"int8_ops_per_second", &machine->int8_ops_per_second},
                          {"link_bytes_per_second", &machine->link_bytes_per_second},
                          {"memory_fraction", &machine->memory_fraction},
                          {"fp8_decode_fraction", &machine->fp8_decode_fraction},
                          {"int8_decode_fraction", &machine->int8_decode_fraction},
                          {"bf16_decode_fraction", &machine->bf16_decode_fraction},
                          {"fp8_linear_fraction", &machine->fp8_linear_fraction},
                          {"int8_linear_fraction", &machine->int8_linear_fraction},
                          {"bf16_linear_fraction", &machine->bf16_linear_fraction},
                          {"attention_fraction", &machine->attention_fraction},
                          {"phase_seconds", &machine->phase_seconds}};
  return Fill(json, numbers, {}, "name", &machine->name);
}

template <typename Machine>
absl::StatusOr<Machine> ReadMachine(const std::string& path) {
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, text::ParseJsonObject(text, path));
  Machine machine;
  MOE_RETURN_IF_ERROR(Annotate(Fill(json, &machine), path));
  return machine;
}

}  // namespace

absl::StatusOr<GpuMachine> ReadHardwareFile(const std::string& path) { return ReadMachine<GpuMachine>(path); }

absl::StatusOr<roofline::CpuMachine> ReadCpuMachineFile(const std::string& path) {
  return ReadMachine<roofline::CpuMachine>(path);
}

}  // namespace moestro::cli
