// `moestro simulate`: predicts the time of a streamed prefill on a machine described by a file. Runs the prefill role's
// pipeline on a simulated device. Its flags --decode and --cpu choose the other simulations.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/process/flag_check.h"
#include "services/cli/command.h"
#include "services/cli/output.h"
#include "services/cli/plan/hardware_file.h"
#include "services/cli/plan/paper_claims.h"
#include "services/cli/plan/simulate_cpu.h"
#include "services/cli/plan/simulate_decode.h"
#include "services/cli/plan/simulate_experts.h"
#include "services/cli/plan/simulate_ranks.h"
#include "services/cli/plan/stream_claims.h"
#include "services/prefill/stream/simulate.h"

namespace moestro::cli {

using prefill::PipelineReport;

namespace {

constexpr char kBf16Activations[] = "bf16";
constexpr char kFp8Activations[] = "fp8";
constexpr char kBuiltActivations[] = "auto";

struct SimulateFlags {
  std::string hardware;
  std::string model = "deepseek-v3";
  std::vector<int64_t> tokens;  // empty: all of kLengths that fit the model's context
  prefill::MemoryLimits limits;
  engine::CostOptions costs;
  std::string activations = kBuiltActivations;
  int ranks = 1;
  std::string trace_file;
  bool paper = false;
  bool json = false;
  bool decode = false;
  SimulateDecodeFlags decode_flags;
  bool cpu = false;
  SimulateCpuFlags cpu_flags;
  SimulateExpertsFlags experts_flags;
};

constexpr int64_t kLengths[] = {4096, 8192, 16384, 20480, 32768, 49152, 65536};

nlohmann::ordered_json RowJson(int64_t tokens, const prefill::SimulatedPrefill& simulated) {
  const prefill::StreamCounters& c = simulated.report.counters;
  return {{"tokens", tokens},
          {"ttft_seconds", c.wall_seconds},
          {"tokens_per_second", static_cast<double>(tokens) / c.wall_seconds},
          {"load_seconds", c.load_seconds},
          {"compute_seconds", c.compute_seconds},
          {"stall_seconds", c.stall_seconds},
          {"wall_over_longer", c.wall_seconds / std::max(c.load_seconds, c.compute_seconds)},
          {"bound", IsTransferBound(c) ? "transfer" : "compute"},
          {"streamed_bytes", c.streamed_bytes},
          {"passes", simulated.plan.passes},
          {"ring_slots", simulated.plan.ring_slots}};
}

void PrintTable(const nlohmann::ordered_json& rows) {
  PrintText("  tokens   TTFT s  tokens/s   load s  compute s  stalls s  bound     passes  ring\n");
  for (const auto& row : rows) {
    PrintText(absl::StrFormat("%8d %8.2f %9.0f %8.2f %10.2f %9.2f  %-9s %6d %5d\n", row["tokens"].get<int64_t>(),
                              row["ttft_seconds"].get<double>(), row["tokens_per_second"].get<double>(),
                              row["load_seconds"].get<double>(), row["compute_seconds"].get<double>(),
                              row["stall_seconds"].get<double>(), row["bound"].get<std::string>(),
                              row["passes"].get<int64_t>(), row["ring_slots"].get<int64_t>()));
  }
}

// The remedies in errors for prompts that do not fit. Several devices use one pass only.
constexpr const char* kOneDeviceRemedy =
    "raise levels.gpu.memory_bytes in the hardware file, or lower --tokens, --dense-bytes, --ring-slots or "
    "--min-pass-tokens";
constexpr const char* kRanksRemedy =
    "raise levels.gpu.memory_bytes in the hardware file or --ranks, or lower --tokens, --dense-bytes or --ring-slots";

// The limits of moestro-prefill.
absl::Status CheckLimits(const prefill::MemoryLimits& limits) {
  constexpr int64_t kMaxSlots = 4096;
  if (limits.ring_slots != 0 && (limits.ring_slots < 2 || limits.ring_slots > kMaxSlots)) {
    return absl::InvalidArgumentError(absl::StrCat("--ring-slots ", limits.ring_slots, ": must be 2 to ", kMaxSlots,
                                                   " (at least one to compute and one to load), or 0: as many as fit"));
  }
  constexpr int64_t kMaxBytes = int64_t{1} << 50;
  return CheckFlagRange("--dense-bytes", limits.dense_bytes, 1, kMaxBytes);
}

absl::Status CheckRanks(const SimulateFlags& flags) {
  if (flags.ranks == 1) return absl::OkStatus();
  if (!flags.trace_file.empty()) {
    return absl::InvalidArgumentError("--trace-file: works for one device only; omit --ranks");
  }
  if (flags.costs.expert_spread != 0) {
    return absl::InvalidArgumentError("--expert-spread: works for one device only; omit --ranks");
  }
  return absl::OkStatus();
}

absl::Status SimulateDecode(const SimulateFlags& flags) {
  SimulateDecodeFlags decode = flags.decode_flags;
  decode.model = flags.model;
  decode.paper = flags.paper;
  decode.json = flags.json;
  MOE_ASSIGN_OR_RETURN(const GpuMachine machine, ReadHardwareFile(flags.hardware));
  return SimulateDecode(machine, decode);
}

absl::Status SimulateCpu(const SimulateFlags& flags) {
  SimulateCpuFlags cpu = flags.cpu_flags;
  cpu.model = flags.model;
  if (!flags.tokens.empty()) cpu.tokens = flags.tokens;
  cpu.paper = flags.paper;
  cpu.json = flags.json;
  MOE_ASSIGN_OR_RETURN(const roofline::CpuMachine machine, ReadCpuMachineFile(flags.hardware));
  return SimulateCpu(machine, cpu);
}

absl::Status SimulateExperts(const SimulateFlags& flags) {
  SimulateExpertsFlags experts = flags.experts_flags;
  experts.model = flags.model;
  experts.json = flags.json;
  MOE_ASSIGN_OR_RETURN(const roofline::Machine machine, ReadLevels(flags.hardware));
  return SimulateExperts(machine, experts);
}

absl::Status Simulate(SimulateFlags flags) {
  if (!flags.experts_flags.recording.empty()) return SimulateExperts(flags);
  if (flags.decode) return SimulateDecode(flags);
  if (flags.cpu) return SimulateCpu(flags);
  MOE_RETURN_IF_ERROR(CheckLimits(flags.limits));
  MOE_RETURN_IF_ERROR(CheckRanks(flags));
  flags.limits.remedy = flags.ranks > 1 ? kRanksRemedy : kOneDeviceRemedy;
  MOE_ASSIGN_OR_RETURN(const GpuMachine machine, ReadHardwareFile(flags.hardware));
  if (flags.activations == kBuiltActivations) {
    flags.activations = machine.built_fp8 ? kFp8Activations : kBf16Activations;
  }
  if (flags.activations == kFp8Activations) flags.costs.activations = DType::kF8E4M3;
  const device::HardwareSpec& hardware = machine.For(flags.costs.activations);
  const weights::ModelSpec spec = checkpoint::PublishedModel(flags.model);
  if (flags.tokens.empty()) {
    std::copy_if(std::begin(kLengths), std::end(kLengths), std::back_inserter(flags.tokens),
                 [&](int64_t tokens) { return tokens <= spec.max_position_embeddings; });
  }
  for (const int64_t tokens : flags.tokens) {
    MOE_RETURN_IF_ERROR(CheckFlagRange("--tokens", tokens, 1, spec.max_position_embeddings));
  }
  if (flags.ranks > 1) {
    return SimulateSeveral(machine, {.model = flags.model,
                                     .tokens = flags.tokens,
                                     .limits = flags.limits,
                                     .activations = flags.costs.activations,
                                     .ranks = flags.ranks,
                                     .paper = flags.paper,
                                     .json = flags.json});
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  PipelineReport last;
  for (const int64_t tokens : flags.tokens) {
    MOE_ASSIGN_OR_RETURN(prefill::SimulatedPrefill simulated,
                         prefill::SimulatePrefill(hardware, spec, DType::kF8E4M3, model::MlaForm::kUnabsorbed, tokens,
                                                  flags.limits, flags.costs));
    rows.push_back(RowJson(tokens, simulated));
    last = std::move(simulated.report);
  }
  if (!flags.trace_file.empty()) {
    MOE_RETURN_IF_ERROR(
        Annotate(prefill::WriteChromeTrace(last.timeline, last.begin, flags.trace_file), "--trace-file"));
  }
  nlohmann::ordered_json claims = nlohmann::ordered_json::array();
  if (flags.paper) {
    const absl::StatusOr<PaperComparison> compared = CompareStream(machine, flags.limits, flags.costs);
    MOE_RETURN_IF_ERROR(Annotate(compared.status(), "--paper"));
    claims = PaperClaims(*compared);
  }
  if (flags.json) {
    PrintJson({{"hardware", hardware.name},
               {"model", flags.model},
               {"activations", flags.activations},
               {"kernel_rates", machine.origin},
               {"prefill", rows},
               {"paper", claims}},
              true);
    return absl::OkStatus();
  }
  PrintText(absl::StrCat(flags.model, ", FP8, streamed on ", hardware.name, "\n"));
  PrintText(ProductsLine(machine, flags.costs.activations));
  PrintTable(rows);
  if (flags.paper) PrintClaims(claims);
  return absl::OkStatus();
}

}  // namespace

void AddSimulateCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<SimulateFlags>();
  FlagSet command = program.AddCommand(
      "simulate",
      "Predict the time of a streamed prefill, of decode, or of both without a GPU, on a machine described by a file "
      "(deploy/hardware)");
  command.Add("hardware", flags->hardware, "JSON file with the machine's figures").Required();
  command.Add("--model", flags->model, "A published model; in FP8 but with --cpu").OneOf(checkpoint::PublishedModels());
  command
      .Add("--tokens", flags->tokens, "Prompt lengths; default: 4K to 64K, up to the model's context; with --cpu 1024")
      .Delimiter(',');
  command.Add("--ranks", flags->ranks, "Devices that share a prompt, each as described in the file").Range(1, 8);
  command.Add("--ring-slots", flags->limits.ring_slots,
              "Experts in GPU memory at once, at least two; 0: as many as fit");
  command.Add("--dense-bytes", flags->limits.dense_bytes, "GPU memory for weights that are not routed experts")
      .AsBytes();
  command.Add("--min-pass-tokens", flags->limits.min_pass_rows, "Shortest pass into which a prompt is cut")
      .Range(1, 1 << 30);
  command.Add("--experts-together", flags->limits.max_experts_together, "Most experts in one launch").Range(1, 4096);
  command
      .Add("--expert-spread", flags->costs.expert_spread,
           "Standard deviation over mean of the tokens per expert in a layer; one device only")
      .Range(0.0, 0.57);
  command
      .Add("--activations", flags->activations,
           "Type to which activations are rounded before products with FP8 weights. bf16: at the GPU's BF16 "
           "rate; fp8: at its FP8 rate; auto: as the kernels here do on such a GPU")
      .OneOf({kBuiltActivations, kBf16Activations, kFp8Activations});
  command.Add("--trace-file", flags->trace_file, "Timeline of the last prompt, for chrome://tracing");
  command.AddSwitch(
      "--paper", flags->paper,
      "Compare the paper's figures for DeepSeek-V3 on one RTX 5090, or two, with this implementation and with the "
      "paper's way (--activations fp8 --experts-together 1, all rows in one tile); with --decode, on RTX 5090 and 2x "
      "EPYC 9355; with --cpu, "
      "Table 1 of Intel's article on SGLang on two Xeon 6980P");
  Flag decode = command.AddSwitch("--decode", flags->decode,
                                  "Decode steps instead of a prompt: attention on the GPU, experts on the CPU, "
                                  "as one batch and as two alternating batches");
  command.Add("--batch", flags->decode_flags.batch, "With --decode: sequences that decode together")
      .Delimiter(',')
      .Needs(decode);
  command.Add("--context", flags->decode_flags.context, "With --decode: tokens that each sequence has")
      .Delimiter(',')
      .Needs(decode);
  Flag cpu = command.AddSwitch("--cpu", flags->cpu,
                               "A prompt and decode on a machine without a GPU (xeon-6980p-2s.json), by formulas");
  command.Add("--generate", flags->cpu_flags.generate, "With --cpu: tokens after the prompt").Needs(cpu);
  command.Add("--format", flags->cpu_flags.format, "With --cpu: of the weights")
      .OneOf(std::vector<std::string>(std::begin(kCpuFormats), std::end(kCpuFormats)))
      .Needs(cpu);
  command.Add("--sockets", flags->cpu_flags.sockets, "With --cpu: sockets that compute; default: all")
      .Range(1, 64)
      .Needs(cpu);
  cpu.Excludes(decode);
  Flag experts = command
                     .Add("--experts", flags->experts_flags.recording,
                          "A recording of routing (moestro-decode --routing-trace, moestro routing "
                          "make): what decode's schedules of experts would take, some of which the GPU "
                          "holds; at full rates of GPU, CPU and bus")
                     .Excludes(decode)
                     .Excludes(cpu);
  command
      .Add("--cache-ratio", flags->experts_flags.cache_ratios,
           "With --experts: shares of the experts that the GPU holds")
      .Delimiter(',')
      .Needs(experts);
  command.AddSwitch("--prompts", flags->experts_flags.prompts, "With --experts: passes that compute prompts, too")
      .Needs(experts);
  command.AddSwitch("--json", flags->json, "JSON");
  for (const char* of_gpus : {"--ranks", "--ring-slots", "--dense-bytes", "--min-pass-tokens", "--experts-together",
                              "--expert-spread", "--activations", "--trace-file"}) {
    command.Find(of_gpus).Excludes(cpu);
  }
  for (const char* of_prompts : {"--tokens", "--ranks", "--ring-slots", "--dense-bytes", "--min-pass-tokens",
                                 "--experts-together", "--expert-spread", "--activations", "--trace-file"}) {
    command.Find(of_prompts).Excludes(decode);
  }
  commands.push_back({command, [flags] { return Simulate(*flags); }});
}

}  // namespace moestro::cli
