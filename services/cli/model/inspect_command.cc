#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/checkpoint/model_location.h"
#include "common/report/number.h"
#include "services/cli/command.h"
#include "services/cli/model/inspect.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct InspectFlags {
  std::string path;
  std::string segment;
  std::string instance = "default";
  double bandwidth = 0;
  double gflops = 0;
  bool verify = false;
  bool directory = false;
  bool json = false;
};

constexpr char kFooter[] =
    "Parameters are those that are served: with embedding and head, without multi-token prediction. Parameters on\n"
    "disk include it, where the model has it. Active are those that a token multiplies: the embedding does not count,\n"
    "of which a token reads one row, but the head does. Publishers count differently, so active parameters are told\n"
    "with the embedding, too. Speeds are estimates from rates of this machine, which real runs do not reach.";

std::string ValueText(const std::string& key, const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return ShortNumber(value.get<double>());
  if (!value.is_number_integer()) return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  const auto number = value.get<int64_t>();
  if (absl::StrContains(key, "bytes")) return absl::StrCat(HumanBytes(number), " (", number, ")");
  return absl::StrContains(key, "parameters") ? absl::StrCat(HumanCount(number), " (", number, ")")
                                              : absl::StrCat(number);
}

// One line per value, objects indented. A unit in an object's key applies to its values.
void PrintFields(const nlohmann::ordered_json& json, const std::string& unit, int indent) {
  for (const auto& [key, value] : json.items()) {
    if (value.is_object()) {
      PrintText(absl::StrFormat("%*s%s:\n", indent, "", key));
      PrintFields(value, key, indent + 2);
    } else {
      PrintText(
          absl::StrFormat("%*s%-*s %s\n", indent, "", 28 - indent, key, ValueText(absl::StrCat(unit, key), value)));
    }
  }
}

absl::Status Inspect(const InspectFlags& flags) {
  if (flags.verify && flags.segment.empty()) return absl::InvalidArgumentError("--verify: needs --segment NAME");
  if (flags.directory) {
    if (!flags.segment.empty()) return absl::InvalidArgumentError("--directory: needs a model, not --segment");
    MOE_ASSIGN_OR_RETURN(const checkpoint::ModelLocation location, checkpoint::LocateModel(flags.path));
    PrintText(location.path + "\n");
    return absl::OkStatus();
  }
  const InspectOptions options{.instance = flags.instance,
                               .memory_bytes_per_second = flags.bandwidth * 1e9,
                               .operations_per_second = flags.gflops * 1e9};
  MOE_ASSIGN_OR_RETURN(const nlohmann::ordered_json json, flags.segment.empty()
                                                              ? InspectCheckpoint(flags.path, options)
                                                              : InspectSegment(flags.segment, flags.verify));
  if (flags.json) {
    PrintText(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  } else {
    PrintFields(json, "", 0);
  }
  return absl::OkStatus();
}

}  // namespace

void AddInspectCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<InspectFlags>();
  FlagSet command = program.AddCommand(
      "inspect", "Describe a model, the memory it needs and its speed at best, or a segment in shared memory");
  FlagSet what = command.AddGroup("what", "Exactly one of");
  what.Add(
      "model", flags->path,
      "Directory of a checkpoint, a *.gguf file, a config.json alone, org/name in the cache of Hugging Face's tools, "
      "or a published model");
  what.Add("--segment", flags->segment, "Name of a weight segment (see 'moestro segments list')");
  what.RequireFlags(1, 1);
  command.AddSwitch("--verify", flags->verify, "With --segment: read all data and check the checksums");
  command.Add("--instance", flags->instance, "Node whose segments are searched for the checkpoint");
  command.Add("--bandwidth", flags->bandwidth, "Memory bandwidth that the estimate assumes, in GB/s; 0: measure it")
      .Range(0.0, 1e6);
  command
      .Add("--gflops", flags->gflops,
           "Multiplications and additions that the estimate assumes, in 10^9 a second; 0: measure them")
      .Range(0.0, 1e9);
  command.AddSwitch("--directory", flags->directory, "Print only the directory or *.gguf file of the model");
  command.AddSwitch("--json", flags->json, "JSON");
  command.Footer(kFooter);
  commands.push_back({command, [flags] { return Inspect(*flags); }});
}

}  // namespace moestro::cli
