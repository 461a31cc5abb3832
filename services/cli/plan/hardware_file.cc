#include "services/cli/plan/hardware_file.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/text/json/json.h"

namespace moestro::cli {
namespace {

constexpr int kVersion = 2;

// All numbers that a file may have. A command needs some of them.
constexpr const char* kNumbers[] = {
    "levels.gpu.count",
    "levels.gpu.memory_bytes",
    "levels.gpu.memory_bytes_per_second",
    "levels.gpu.processors",
    "levels.gpu.fp8_flops_per_second",
    "levels.gpu.bf16_flops_per_second",
    "levels.gpu.launch_seconds",
    "levels.gpu.fp8_linear_fraction",
    "levels.gpu.bf16_linear_fraction",
    "levels.gpu.attention_fraction",
    "levels.gpu.memory_fraction",
    "levels.gpu.decode_memory_fraction",
    "levels.cpu.count",
    "levels.cpu.cores",
    "levels.cpu.memory_bytes",
    "levels.cpu.memory_bytes_per_second",
    "levels.cpu.read_bytes_per_second",
    "levels.cpu.bf16_flops_per_second",
    "levels.cpu.int8_ops_per_second",
    "levels.cpu.memory_fraction",
    "levels.cpu.experts_memory_fraction",
    "levels.cpu.fp8_decode_fraction",
    "levels.cpu.int8_decode_fraction",
    "levels.cpu.bf16_decode_fraction",
    "levels.cpu.fp8_linear_fraction",
    "levels.cpu.int8_linear_fraction",
    "levels.cpu.bf16_linear_fraction",
    "levels.cpu.attention_fraction",
    "levels.cpu.phase_seconds",
    "levels.dimm.count",
    "levels.dimm.memory_bytes_per_second",
    "levels.dimm.host_bytes_per_second",
    "levels.dimm.bf16_flops_per_second",
    "links.bus.bytes_per_second",
    "links.bus.seconds",
    "links.dimm.count",
    "links.dimm.bytes_per_second",
    "links.sockets.bytes_per_second",
    "kernels.fp8_flops_per_second",
    "kernels.fp8_linear_fraction",
    "kernels.bf16_linear_fraction",
    "kernels.attention_fraction",
    "kernels.decode_memory_fraction",
    "kernels.decode_attention_fraction",
    "measured.fp8_linear_fraction",
    "measured.bf16_linear_fraction",
    "measured.attention_fraction",
    "measured.decode_memory_fraction",
    "measured.decode_attention_fraction",
};
constexpr const char* kTexts[] = {"name", "kernels.origin"};

struct Fields {
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;

  bool HasAnyOf(const std::string& prefix) const {
    return std::ranges::any_of(numbers, [&](const auto& number) { return number.first.starts_with(prefix); }) ||
           std::ranges::any_of(texts, [&](const auto& text) { return text.first.starts_with(prefix); });
  }
};

bool IsOneOf(const auto& paths, const std::string& path) { return std::ranges::find(paths, path) != std::end(paths); }

absl::Status Collect(const nlohmann::json& object, const std::string& prefix, Fields* fields) {
  for (const auto& [key, value] : object.items()) {
    const std::string path = prefix + key;
    if (std::ranges::any_of(kNumbers, [&](const std::string& known) { return known.starts_with(path + "."); })) {
      if (!value.is_object()) return absl::InvalidArgumentError(absl::StrCat("'", path, "' must be an object"));
      MOE_RETURN_IF_ERROR(Collect(value, path + ".", fields));
    } else if (IsOneOf(kTexts, path)) {
      if (!value.is_string()) return absl::InvalidArgumentError(absl::StrCat("'", path, "' must be text"));
      fields->texts[path] = value.get<std::string>();
    } else if (IsOneOf(kNumbers, path)) {
      if (!value.is_number() || !(value.get<double>() > 0)) {
        return absl::InvalidArgumentError(absl::StrCat("'", path, "' must be a positive number"));
      }
      fields->numbers[path] = value.get<double>();
    } else {
      return absl::InvalidArgumentError(absl::StrCat("unknown field '", path, "'"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Fields> Parse(nlohmann::json json) {
  if (!json.contains("version")) {
    return absl::InvalidArgumentError(
        "'version' is missing. Version 1 had all fields in one object; to convert: set \"version\" to 2, move the "
        "GPU's to "
        "levels.gpu, those that begin with cpu_ to levels.cpu and those that begin with copy_ to links.bus, all "
        "without "
        "this beginning (deploy/hardware/README.md)");
  }
  if (json["version"] != kVersion) return absl::InvalidArgumentError(absl::StrCat("'version' must be ", kVersion));
  json.erase("version");
  Fields fields;
  MOE_RETURN_IF_ERROR(Collect(json, "", &fields));
  if (fields.texts["name"].empty()) return absl::InvalidArgumentError("'name' is missing");
  return fields;
}

// Where the numbers of these paths go.
using Targets = std::map<std::string, double*>;

absl::Status Take(const Fields& fields, const Targets& required, const Targets& optional = {}) {
  for (const auto& [path, number] : required) {
    if (!fields.numbers.contains(path)) return absl::InvalidArgumentError(absl::StrCat("'", path, "' is missing"));
    *number = fields.numbers.at(path);
  }
  for (const auto& [path, number] : optional) {
    if (fields.numbers.contains(path)) *number = fields.numbers.at(path);
  }
  return absl::OkStatus();
}

// Puts measured fractions in the place of estimated ones, and notes both.
void TakeMeasured(const Fields& fields, GpuMachine* machine) {
  if (!fields.HasAnyOf("measured.")) return;
  machine->origin = "measured";
  device::HardwareSpec& built = machine->built;
  const std::pair<const char*, double*> fractions[] = {{"fp8_linear_fraction", &built.fp8_linear_fraction},
                                                       {"bf16_linear_fraction", &built.bf16_linear_fraction},
                                                       {"attention_fraction", &built.attention_fraction},
                                                       {"decode_memory_fraction", &built.decode_memory_fraction},
                                                       {"decode_attention_fraction", &built.decode_attention_fraction}};
  for (const auto& [name, fraction] : fractions) {
    if (!fields.numbers.contains(absl::StrCat("kernels.", name))) continue;  // of FP8, which not all GPUs multiply
    KernelRate& rate = machine->rates.emplace_back(KernelRate{.name = name, .estimated = *fraction});
    if (const auto found = fields.numbers.find(absl::StrCat("measured.", name)); found != fields.numbers.end()) {
      rate.measured = *fraction = found->second;
    }
  }
}

absl::Status FillKernels(const Fields& fields, GpuMachine* machine) {
  device::HardwareSpec& built = machine->built;
  MOE_RETURN_IF_ERROR(Take(fields,
                           {{"kernels.bf16_linear_fraction", &built.bf16_linear_fraction},
                            {"kernels.attention_fraction", &built.attention_fraction},
                            {"kernels.decode_memory_fraction", &built.decode_memory_fraction},
                            {"kernels.decode_attention_fraction", &built.decode_attention_fraction}},
                           // The rate of the instruction that the kernels use, which may be faster than the one that
                           // the data sheet has in mind.
                           {{"kernels.fp8_flops_per_second", &built.fp8_flops_per_second},
                            {"kernels.fp8_linear_fraction", &built.fp8_linear_fraction}}));
  machine->built_fp8 = fields.numbers.contains("kernels.fp8_linear_fraction");
  if (machine->built_fp8 != fields.numbers.contains("kernels.fp8_flops_per_second")) {
    return absl::InvalidArgumentError("'kernels.fp8_flops_per_second' and 'kernels.fp8_linear_fraction' go together");
  }
  const auto origin = fields.texts.find("kernels.origin");
  machine->origin = origin == fields.texts.end() ? "" : origin->second;
  if (machine->origin != "estimated" && machine->origin != "measured") {
    return absl::InvalidArgumentError("'kernels.origin' must be \"estimated\" or \"measured\"");
  }
  TakeMeasured(fields, machine);
  return absl::OkStatus();
}

absl::Status Fill(const Fields& fields, GpuMachine* machine) {
  device::HardwareSpec& hardware = machine->paper_way;
  hardware.name = fields.texts.at("name");
  double cpus = 1;
  MOE_RETURN_IF_ERROR(Take(fields,
                           {{"levels.gpu.memory_bytes", &hardware.gpu_memory_bytes},
                            {"levels.gpu.memory_bytes_per_second", &hardware.gpu_memory_bytes_per_second},
                            {"levels.gpu.processors", &hardware.gpu_processors},
                            {"levels.gpu.fp8_flops_per_second", &hardware.fp8_flops_per_second},
                            {"levels.gpu.bf16_flops_per_second", &hardware.bf16_flops_per_second},
                            {"levels.gpu.launch_seconds", &hardware.launch_seconds},
                            {"levels.gpu.fp8_linear_fraction", &hardware.fp8_linear_fraction},
                            {"levels.gpu.bf16_linear_fraction", &hardware.bf16_linear_fraction},
                            {"levels.gpu.attention_fraction", &hardware.attention_fraction},
                            {"levels.gpu.memory_fraction", &hardware.memory_fraction},
                            {"links.bus.bytes_per_second", &hardware.copy_bytes_per_second},
                            {"links.bus.seconds", &hardware.copy_seconds}},
                           {{"levels.gpu.decode_memory_fraction", &hardware.decode_memory_fraction},
                            {"levels.cpu.count", &cpus},
                            {"levels.cpu.memory_bytes_per_second", &hardware.cpu_memory_bytes_per_second},
                            {"levels.cpu.experts_memory_fraction", &hardware.cpu_memory_fraction},
                            {"levels.cpu.cores", &hardware.cpu_cores},
                            {"levels.cpu.read_bytes_per_second", &hardware.cpu_read_bytes_per_second}}));
  for (double* of_one :
       {&hardware.cpu_memory_bytes_per_second, &hardware.cpu_cores, &hardware.cpu_read_bytes_per_second}) {
    *of_one *= cpus;
  }
  machine->built = hardware;
  return fields.HasAnyOf("kernels.") || fields.HasAnyOf("measured.") ? FillKernels(fields, machine) : absl::OkStatus();
}

absl::Status Fill(const Fields& fields, roofline::CpuMachine* machine) {
  machine->name = fields.texts.at("name");
  machine->sockets = 1;
  return Take(fields,
              {{"levels.cpu.memory_bytes_per_second", &machine->memory_bytes_per_second},
               {"levels.cpu.bf16_flops_per_second", &machine->bf16_flops_per_second},
               {"levels.cpu.int8_ops_per_second", &machine->int8_ops_per_second},
               {"levels.cpu.memory_fraction", &machine->memory_fraction},
               {"levels.cpu.fp8_decode_fraction", &machine->fp8_decode_fraction},
               {"levels.cpu.int8_decode_fraction", &machine->int8_decode_fraction},
               {"levels.cpu.bf16_decode_fraction", &machine->bf16_decode_fraction},
               {"levels.cpu.fp8_linear_fraction", &machine->fp8_linear_fraction},
               {"levels.cpu.int8_linear_fraction", &machine->int8_linear_fraction},
               {"levels.cpu.bf16_linear_fraction", &machine->bf16_linear_fraction},
               {"levels.cpu.attention_fraction", &machine->attention_fraction},
               {"levels.cpu.phase_seconds", &machine->phase_seconds},
               {"links.sockets.bytes_per_second", &machine->link_bytes_per_second}},
              {{"levels.cpu.count", &machine->sockets}});
}

absl::Status Fill(const Fields& fields, roofline::Machine* machine) {
  machine->name = fields.texts.at("name");
  double devices = 1, hosts = 1;
  roofline::Level &device = machine->device, &host = machine->host;
  MOE_RETURN_IF_ERROR(Take(fields,
                           {{"levels.gpu.memory_bytes", &device.memory_bytes},
                            {"levels.gpu.memory_bytes_per_second", &device.memory_bytes_per_second},
                            {"levels.gpu.bf16_flops_per_second", &device.flops_per_second},
                            {"levels.cpu.memory_bytes", &host.memory_bytes},
                            {"levels.cpu.memory_bytes_per_second", &host.memory_bytes_per_second},
                            {"levels.cpu.bf16_flops_per_second", &host.flops_per_second},
                            {"links.bus.bytes_per_second", &machine->link_bytes_per_second}},
                           {{"levels.gpu.count", &devices}, {"levels.cpu.count", &hosts}}));
  const auto together = [](double units, roofline::Level& level) {
    level.memory_bytes *= units;
    level.memory_bytes_per_second *= units;
    level.flops_per_second *= units;
  };
  together(devices, device);
  together(hosts, host);
  machine->devices = static_cast<int64_t>(devices);
  return absl::OkStatus();
}

absl::Status Fill(const Fields& fields, NearDataMachine* machine) {
  machine->name = fields.texts.at("name");
  experts::DomainRates& rates = machine->rates;
  double gpu_fraction = 0, cpu_fraction = 0, dimms = 0, link = 0;
  MOE_RETURN_IF_ERROR(Take(fields, {{"levels.gpu.memory_bytes", &machine->gpu_memory_bytes},
                                    {"levels.gpu.memory_bytes_per_second", &rates.gpu.bytes_per_second},
                                    {"levels.gpu.bf16_flops_per_second", &rates.gpu.flops_per_second},
                                    {"levels.gpu.memory_fraction", &gpu_fraction},
                                    {"levels.cpu.memory_bytes_per_second", &rates.cpu.bytes_per_second},
                                    {"levels.cpu.bf16_flops_per_second", &rates.cpu.flops_per_second},
                                    {"levels.cpu.bf16_linear_fraction", &cpu_fraction},
                                    {"levels.dimm.count", &dimms},
                                    {"levels.dimm.memory_bytes_per_second", &rates.dimm.bytes_per_second},
                                    {"levels.dimm.host_bytes_per_second", &rates.dimm_host_bytes_per_second},
                                    {"levels.dimm.bf16_flops_per_second", &rates.dimm.flops_per_second},
                                    {"links.bus.bytes_per_second", &rates.bus_bytes_per_second},
                                    {"links.dimm.count", &machine->dimm_links},
                                    {"links.dimm.bytes_per_second", &link}}));
  if (dimms < 1 || dimms > experts::kMostDimms) {
    return absl::InvalidArgumentError(
        absl::StrCat("'levels.dimm.count' is ", dimms, ", expected 1 to ", experts::kMostDimms));
  }
  rates.gpu.bytes_per_second *= gpu_fraction;
  rates.cpu.flops_per_second *= cpu_fraction;
  rates.dimms = static_cast<int64_t>(dimms);
  rates.link_bytes_per_second = machine->dimm_links * link;
  return absl::OkStatus();
}

template <typename Machine>
absl::StatusOr<Machine> ReadMachine(const std::string& path) {
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, text::ParseJsonObject(text, path));
  absl::StatusOr<Fields> fields = Parse(json);
  MOE_RETURN_IF_ERROR(Annotate(fields.status(), path));
  Machine machine;
  MOE_RETURN_IF_ERROR(Annotate(Fill(*fields, &machine), path));
  return machine;
}

}  // namespace

absl::StatusOr<GpuMachine> ReadHardwareFile(const std::string& path) { return ReadMachine<GpuMachine>(path); }

absl::StatusOr<roofline::CpuMachine> ReadCpuMachineFile(const std::string& path) {
  return ReadMachine<roofline::CpuMachine>(path);
}

absl::StatusOr<roofline::Machine> ReadLevels(const std::string& path) { return ReadMachine<roofline::Machine>(path); }

absl::StatusOr<NearDataMachine> ReadNearDataMachine(const std::string& path) {
  return ReadMachine<NearDataMachine>(path);
}

}  // namespace moestro::cli
