#include "services/cli/plan/hardware_file.h"

#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/text/json/json.h"

namespace moestro::cli {
namespace {

absl::Status Fill(const nlohmann::json& json, device::HardwareSpec* hardware) {
  const std::map<std::string, double*> numbers = {
      {"gpu_memory_bytes", &hardware->gpu_memory_bytes},
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
  const std::map<std::string, double*> optional_numbers = {
      {"decode_memory_fraction", &hardware->decode_memory_fraction},
      {"cpu_memory_bytes_per_second", &hardware->cpu_memory_bytes_per_second},
      {"cpu_memory_fraction", &hardware->cpu_memory_fraction}};
  std::map<std::string, double*> known = numbers;
  known.insert(optional_numbers.begin(), optional_numbers.end());
  for (const auto& [key, value] : json.items()) {
    if (key == "name" && value.is_string()) {
      hardware->name = value.get<std::string>();
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
  return hardware->name.empty() ? absl::InvalidArgumentError("'name' is missing") : absl::OkStatus();
}

}  // namespace

absl::StatusOr<device::HardwareSpec> ReadHardwareFile(const std::string& path) {
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, text::ParseJsonObject(text, path));
  device::HardwareSpec hardware;
  MOE_RETURN_IF_ERROR(Annotate(Fill(json, &hardware), path));
  return hardware;
}

}  // namespace moestro::cli
