#include "services/cli/plan/explain_batch.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/process/flag_check.h"
#include "common/report/number.h"
#include "common/roofline/intensity.h"
#include "common/roofline/policy_search.h"
#include "services/cli/model/inspect.h"
#include "services/cli/output.h"
#include "services/cli/plan/hardware_file.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::ordered_json;

// Of the published weights, as --format names it.
absl::StatusOr<std::string> PublishedFormat(const std::string& model) {
  // The rates do not matter here; given ones are not measured.
  MOE_ASSIGN_OR_RETURN(const Json facts,
                       InspectCheckpoint(model, {.memory_bytes_per_second = 1, .operations_per_second = 1}));
  const auto weights = facts.at("weights").get<std::string>();
  if (absl::StartsWith(weights, "FP8")) return "fp8";
  if (absl::StartsWith(weights, DTypeName(DType::kI8))) return "int8";
  if (weights == DTypeName(DType::kBF16)) return "bf16";
  return absl::InvalidArgumentError(
      absl::StrCat("--model ", model, ": its weights are ", weights, "; give --format bf16, fp8 or int8"));
}

DType TypeOf(const std::string& format) {
  return format == "fp8" ? DType::kF8E4M3 : format == "int8" ? DType::kI8 : DType::kBF16;
}

// Checks the flags, and replaces --format published.
absl::StatusOr<weights::ModelSpec> ReadSpec(ExplainBatchFlags& flags, const char* what) {
  absl::StatusOr<weights::ModelSpec> spec = ReadModelSpec(flags.model);
  MOE_RETURN_IF_ERROR(Annotate(spec.status(), absl::StrCat("--model ", flags.model)));
  MOE_RETURN_IF_ERROR(CheckHasExperts(*spec, flags.model, what));
  for (const auto& [flag, value] : {std::pair("--prompt", flags.prompt), std::pair("--context", flags.context)}) {
    MOE_RETURN_IF_ERROR(CheckFlagRange(flag, value, 1, spec->max_position_embeddings));
  }
  MOE_RETURN_IF_ERROR(CheckFlagRange("--generate", flags.generate, 2, spec->max_position_embeddings));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--micro-batch", flags.micro_batch, 1, roofline::kMostRequests));
  if (flags.format == kBatchFormats[0]) {
    MOE_ASSIGN_OR_RETURN(flags.format, PublishedFormat(flags.model));
  }
  return spec;
}

// A host alone, with the rates that `moestro inspect` measures.
absl::StatusOr<roofline::Machine> MeasureThisMachine(const std::string& model) {
  MOE_ASSIGN_OR_RETURN(const Json facts, InspectCheckpoint(model, {}));
  const Json& estimate = facts.at("estimate");
  roofline::Machine machine;
  machine.name = "this machine, as measured";
  machine.host = {.memory_bytes = facts.at("available_memory_bytes").get<double>(),
                  .memory_bytes_per_second = estimate.at("memory_bytes_per_second").get<double>(),
                  .flops_per_second = estimate.at("operations_per_second").get<double>()};
  machine.devices = 0;
  return machine;
}

Json LevelJson(const roofline::Level& level) {
  return {{"memory_bytes", level.memory_bytes},
          {"memory_bytes_per_second", level.memory_bytes_per_second},
          {"flops_per_second", level.flops_per_second}};
}

Json MachineJson(const roofline::Machine& machine) {
  Json json = {{"name", machine.name}, {"host", LevelJson(machine.host)}};
  if (machine.devices == 0) return json;
  json["devices"] = machine.devices;
  json["device"] = LevelJson(machine.device);
  json["link_bytes_per_second"] = machine.link_bytes_per_second;
  return json;
}

std::string MachineText(const roofline::Machine& machine) {
  const auto level = [](const roofline::Level& of) {
    return absl::StrFormat("%.1f GB, %.1f GB/s, %.1f TFLOP/s", of.memory_bytes / 1e9, of.memory_bytes_per_second / 1e9,
                           of.flops_per_second / 1e12);
  };
  std::string text = absl::StrCat("on ", machine.name, "\n  host    ", level(machine.host), "\n");
  if (machine.devices == 0) return text;
  return absl::StrCat(text, "  device  ", level(machine.device), "\n",
                      absl::StrFormat("  link    %.1f GB/s\n", machine.link_bytes_per_second / 1e9));
}

// What a computation attains here and there, if what it reads lies in the host's memory.
Json RooflineJson(const roofline::Machine& machine, const char* what, double device_intensity, double host_intensity) {
  const double link = machine.link_bytes_per_second;
  const double host = roofline::Attainable(machine.host, host_intensity);
  const double device = roofline::Attainable(machine.device, device_intensity, link, host_intensity);
  return {{"what", what},
          {"intensity", host_intensity},
          {"host_flops_per_second", host},
          {"device_flops_per_second", device},
          {"p1", roofline::FirstTurningPoint(machine.host, link, host_intensity)},
          {"p2", roofline::SecondTurningPoint(machine.device, link, device_intensity)},
          {"better", host >= device ? "host" : "device"}};
}

std::string MemoryText(const roofline::Machine& machine) {
  std::string text = absl::StrFormat("%.0f %% of %.1f GB of the host's memory", 100 * roofline::kHostMemoryShare,
                                     machine.host.memory_bytes / 1e9);
  if (machine.devices == 0) return text;
  return absl::StrCat(text, absl::StrFormat(" and %.0f %% of %.1f GB of the device's",
                                            100 * roofline::kDeviceMemoryShare, machine.device.memory_bytes / 1e9));
}

const char* Longest(const roofline::PolicyCost& cost) {
  if (cost.layer_seconds == cost.link_seconds) return "link";
  return cost.layer_seconds == cost.device_seconds ? "device" : "host";
}

// Why the batch is not larger by a micro-batch.
std::string WhyNotMore(const roofline::BatchModel& model, const roofline::Machine& machine,
                       const roofline::BatchWorkload& workload, const roofline::PolicyChoice& choice) {
  roofline::BatchPolicy more = choice.policy;
  // The smallest step of the search.
  (machine.devices == 0 ? more.micro_batch : more.micro_batches) += 1;
  if (more.requests() > roofline::kMostRequests) {
    return absl::StrCat("the search ends at ", roofline::kMostRequests, " requests");
  }
  if (model.WithBestShares(machine, workload, more)) {
    return absl::StrCat("more requests are not faster: the ", Longest(choice.cost), " is busy all the time");
  }
  const bool host =
      model.CostOf(machine, workload, more).host_bytes > roofline::kHostMemoryShare * machine.host.memory_bytes;
  return absl::StrFormat("more requests do not fit: %.0f %% of the %s's memory may be used",
                         100 * (host ? roofline::kHostMemoryShare : roofline::kDeviceMemoryShare),
                         host ? "host" : "device");
}

}  // namespace

absl::Status ExplainRoofline(ExplainBatchFlags flags) {
  constexpr char kWhat[] = "--explain roofline";
  if (flags.hardware.empty()) {
    return absl::InvalidArgumentError(
        "--explain roofline needs --hardware: a file of deploy/hardware with a GPU, a CPU and the bus between them");
  }
  MOE_ASSIGN_OR_RETURN(const weights::ModelSpec spec, ReadSpec(flags, kWhat));
  MOE_ASSIGN_OR_RETURN(const roofline::Machine machine, ReadLevels(flags.hardware));
  const DType format = TypeOf(flags.format);
  const roofline::WeightCount expert =
      roofline::CountModel(spec, format).layers[static_cast<size_t>(spec.MoeLayer(0))].expert;
  const auto rows = static_cast<double>(flags.micro_batch);
  const double attention = roofline::DecodeAttention(spec, 1, static_cast<double>(flags.context)).intensity();
  const double experts = roofline::DecodeExperts(spec, expert, rows).intensity();
  const double balance = roofline::BalanceIntensity(machine.device, machine.link_bytes_per_second, experts);
  const double of_a_row =
      roofline::DecodeExperts(spec, expert, 1).operations / (static_cast<double>(spec.num_experts) * expert.bytes);
  const Json json = {{"model", flags.model},
                     {"format", flags.format},
                     {"machine", MachineJson(machine)},
                     {"context", flags.context},
                     {"micro_batch", flags.micro_batch},
                     {"attention", RooflineJson(machine, "attention", attention, attention)},
                     {"experts", RooflineJson(machine, "experts", experts, experts)},
                     {"highest_p1", roofline::FirstTurningPoint(machine.host, machine.link_bytes_per_second,
                                                                std::numeric_limits<double>::infinity())},
                     {"balance_intensity", balance},
                     {"balance_requests", balance / of_a_row}};
  if (flags.json) {
    PrintJson(json, true);
    return absl::OkStatus();
  }
  PrintText(absl::StrCat(flags.model, ", ", flags.format, ", decode ", MachineText(machine)));
  PrintText("\n                        FLOP/byte  host GFLOP/s  device GFLOP/s      P1      P2  better on\n");
  for (const char* key : {"attention", "experts"}) {
    const Json& row = json.at(key);
    const std::string what = key == std::string("attention") ? absl::StrCat("attention, ", flags.context, " positions")
                                                             : absl::StrCat("experts, ", flags.micro_batch, " rows");
    PrintText(absl::StrFormat("%-24s %8.2f %13.1f %15.1f %7.1f %7.1f  %s\n", what, row.at("intensity").get<double>(),
                              row.at("host_flops_per_second").get<double>() / 1e9,
                              row.at("device_flops_per_second").get<double>() / 1e9, row.at("p1").get<double>(),
                              row.at("p2").get<double>(), row.at("better").get<std::string>()));
  }
  PrintText(
      absl::StrFormat("\nDevice: of what lies in the host's memory. Below P1 the link makes it slower than the host; "
                      "below P2 it waits\n"
                      "for the link. In micro-batches of %d rows the device reads %.0f requests' experts as long as "
                      "the link brings them.\n",
                      flags.micro_batch, balance / of_a_row));
  return absl::OkStatus();
}

absl::Status ExplainBatch(ExplainBatchFlags flags) {
  MOE_ASSIGN_OR_RETURN(const weights::ModelSpec spec, ReadSpec(flags, "--explain batch"));
  roofline::Machine machine;
  if (flags.hardware.empty()) {
    MOE_ASSIGN_OR_RETURN(machine, MeasureThisMachine(flags.model));
  } else {
    MOE_ASSIGN_OR_RETURN(machine, ReadLevels(flags.hardware));
  }
  const roofline::BatchModel model(spec, TypeOf(flags.format));
  const roofline::BatchWorkload workload = {.prompt = static_cast<double>(flags.prompt),
                                            .generate = static_cast<double>(flags.generate)};
  const std::optional<roofline::PolicyChoice> choice = roofline::SearchPolicy(model, machine, workload);
  if (!choice) {
    return absl::ResourceExhaustedError(
        absl::StrCat("--model ", flags.model, ": not even one request fits into ", MemoryText(machine)));
  }
  const roofline::BatchPolicy& policy = choice->policy;
  const roofline::PolicyCost& cost = choice->cost;
  const std::string why = WhyNotMore(model, machine, workload, *choice);
  if (flags.json) {
    PrintJson({{"model", flags.model},
               {"format", flags.format},
               {"machine", MachineJson(machine)},
               {"prompt", flags.prompt},
               {"generate", flags.generate},
               {"requests", policy.requests()},
               {"micro_batch", policy.micro_batch},
               {"micro_batches", policy.micro_batches},
               {"device_attention", policy.device_attention},
               {"device_experts", policy.device_experts},
               {"resident_weights", policy.resident_weights},
               {"resident_cache", policy.resident_cache},
               {"link_seconds", cost.link_seconds},
               {"device_seconds", cost.device_seconds},
               {"host_seconds", cost.host_seconds},
               {"step_seconds", cost.step_seconds},
               {"prefill_seconds", model.PrefillSeconds(machine, workload, policy)},
               {"tokens_per_second", cost.tokens_per_second},
               {"device_bytes", cost.device_bytes},
               {"host_bytes", cost.host_bytes},
               {"bound", Longest(cost)},
               {"why_not_more", why}},
              true);
    return absl::OkStatus();
  }
  PrintText(absl::StrFormat("%s, %s, prompts of %d tokens, %d generated, %s", flags.model, flags.format, flags.prompt,
                            flags.generate, MachineText(machine)));
  const double prefill = model.PrefillSeconds(machine, workload, policy);
  PrintText(absl::StrFormat("\n%d requests in %d micro-batches of %d: %.2f tokens/s, %.3f s a step\n",
                            policy.requests(), policy.micro_batches, policy.micro_batch, cost.tokens_per_second,
                            cost.step_seconds));
  if (machine.devices > 0) {
    PrintText(absl::StrFormat("attention on the %s, experts on the %s; %.1f %% of the experts stay on the device\n",
                              policy.device_attention ? "device" : "host", policy.device_experts ? "device" : "host",
                              100 * policy.resident_weights));
    PrintText(absl::StrFormat("a layer: link %.1f ms, device %.1f ms, host %.1f ms\n", 1e3 * cost.link_seconds,
                              1e3 * cost.device_seconds, 1e3 * cost.host_seconds));
    PrintText(absl::StrFormat("memory: device %s, host %s\n", HumanBytes(static_cast<int64_t>(cost.device_bytes)),
                              HumanBytes(static_cast<int64_t>(cost.host_bytes))));
  } else {
    PrintText(absl::StrFormat("a layer: %.1f ms; memory: %s\n", 1e3 * cost.host_seconds,
                              HumanBytes(static_cast<int64_t>(cost.host_bytes))));
  }
  PrintText(
      absl::StrFormat("%s\nPrefill before it: %.1f s. A model at full rates: nothing of it has run.\n", why, prefill));
  return absl::OkStatus();
}

}  // namespace moestro::cli
