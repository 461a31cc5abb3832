// `moestro simulate`: what a streamed prefill would take on a machine described by a file. The only file of the command
// line that looks into the prefill role: its pipeline is what runs, on a simulated device.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/rpc/flag_check.h"
#include "services/cli/command.h"
#include "services/cli/hardware_file.h"
#include "services/cli/output.h"
#include "services/prefill/stream/simulate.h"

namespace moestro {
namespace {

struct SimulateFlags {
  std::string hardware;
  std::string model = "deepseek-v3";
  std::vector<int64_t> tokens = {4096, 8192, 16384, 20480, 32768, 49152, 65536};
  MemoryLimits limits;
  std::string trace_file;
  bool paper = false;
  bool json = false;
};

// What "Cloud-grade SLOs for local MoE" says in numbers of one RTX 5090, sections 3.1 and 4.2. The other lengths are in
// a plot without numbers.
constexpr int64_t kPaperTokens = 32768;         // within 30 s, which is
constexpr double kPaperTokensPerSecond = 1200;  // the throughput that is reached
constexpr int64_t kPaperTransferBoundTokens = 4096;
constexpr int64_t kPaperTurningPoint = 50000;  // "e.g. 50K": computing is the bottleneck, and the ring is shortened

// The published configurations.
ModelSpec DeepSeekV3() {
  ModelSpec spec;
  std::strcpy(spec.family, "deepseek_v3");
  spec.hidden_size = 7168;
  spec.num_layers = 61;
  spec.first_dense_layers = 3;
  spec.num_heads = 128;
  spec.q_lora_rank = 1536;
  spec.kv_lora_rank = 512;
  spec.qk_nope_head_dim = 128;
  spec.qk_rope_head_dim = 64;
  spec.v_head_dim = 128;
  spec.intermediate_size = 18432;
  spec.moe_intermediate_size = 2048;
  spec.num_experts = 256;
  spec.experts_per_token = 8;
  spec.num_shared_experts = 1;
  spec.num_expert_groups = 8;
  spec.experts_topk_groups = 4;
  spec.vocab_size = 129280;
  spec.token_count = 129280;
  spec.max_position_embeddings = 163840;
  return spec;
}

ModelSpec KimiK2() {
  ModelSpec spec = DeepSeekV3();
  std::strcpy(spec.family, "kimi_k2");
  spec.first_dense_layers = 1;
  spec.num_heads = 64;
  spec.num_experts = 384;
  spec.num_expert_groups = 1;
  spec.experts_topk_groups = 1;
  spec.vocab_size = 163840;
  spec.token_count = 163840;
  spec.max_position_embeddings = 131072;
  return spec;
}

bool IsTransferBound(const StreamCounters& counters) { return counters.load_seconds > counters.compute_seconds; }

nlohmann::ordered_json RowJson(int64_t tokens, const SimulatedPrefill& simulated) {
  const StreamCounters& c = simulated.report.counters;
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

// The paper's figures beside those of this simulation.
absl::StatusOr<nlohmann::ordered_json> CompareWithPaper(const device::HardwareSpec& hardware, const ModelSpec& spec,
                                                        const MemoryLimits& limits) {
  const auto simulate = [&](int64_t tokens) -> absl::StatusOr<StreamCounters> {
    MOE_ASSIGN_OR_RETURN(const SimulatedPrefill simulated,
                         SimulatePrefill(hardware, spec, DType::kF8E4M3, MlaForm::kUnabsorbed, tokens, limits));
    return simulated.report.counters;
  };
  constexpr int64_t kStep = 1024;
  int64_t transfer_bound = 0;  // in steps
  int64_t compute_bound = spec.max_position_embeddings / kStep;
  while (compute_bound - transfer_bound > 1) {
    const int64_t middle = (transfer_bound + compute_bound) / 2;
    MOE_ASSIGN_OR_RETURN(const StreamCounters counters, simulate(middle * kStep));
    (IsTransferBound(counters) ? transfer_bound : compute_bound) = middle;
  }
  MOE_ASSIGN_OR_RETURN(const StreamCounters whole, simulate(kPaperTokens));
  MOE_ASSIGN_OR_RETURN(const StreamCounters peak, simulate(compute_bound * kStep));
  MOE_ASSIGN_OR_RETURN(const StreamCounters small, simulate(kPaperTransferBoundTokens));
  nlohmann::ordered_json claims = nlohmann::ordered_json::array();
  const auto add = [&](const std::string& what, double paper, double here) {
    claims.push_back({{"what", what}, {"paper", paper}, {"simulated", here}, {"deviation", here / paper - 1}});
  };
  add("tokens/s, 32K tokens", kPaperTokensPerSecond, kPaperTokens / whole.wall_seconds);
  add("seconds, 32K tokens (30 at most)", kPaperTokens / kPaperTokensPerSecond, whole.wall_seconds);
  add("most tokens/s of any length", kPaperTokensPerSecond,
      static_cast<double>(compute_bound * kStep) / peak.wall_seconds);
  add("tokens from which computing takes longer", kPaperTurningPoint, static_cast<double>(compute_bound * kStep));
  add("4K tokens are transfer-bound (1: yes)", 1, IsTransferBound(small) ? 1 : 0);
  return claims;
}

absl::Status Simulate(const SimulateFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const device::HardwareSpec hardware, ReadHardwareFile(flags.hardware));
  const ModelSpec spec = flags.model == "kimi-k2" ? KimiK2() : DeepSeekV3();
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  PipelineReport last;
  for (const int64_t tokens : flags.tokens) {
    MOE_RETURN_IF_ERROR(CheckFlagRange("--tokens", tokens, 1, spec.max_position_embeddings));
    MOE_ASSIGN_OR_RETURN(SimulatedPrefill simulated,
                         SimulatePrefill(hardware, spec, DType::kF8E4M3, MlaForm::kUnabsorbed, tokens, flags.limits));
    rows.push_back(RowJson(tokens, simulated));
    last = std::move(simulated.report);
  }
  if (!flags.trace_file.empty()) {
    MOE_RETURN_IF_ERROR(Annotate(WriteChromeTrace(last.timeline, last.begin, flags.trace_file), "--trace-file"));
  }
  nlohmann::ordered_json claims = nlohmann::ordered_json::array();
  if (flags.paper) {
    MOE_ASSIGN_OR_RETURN(claims, CompareWithPaper(hardware, DeepSeekV3(), flags.limits));
  }
  if (flags.json) {
    PrintJson({{"hardware", hardware.name}, {"model", flags.model}, {"prefill", rows}, {"paper", claims}}, true);
    return absl::OkStatus();
  }
  PrintText(absl::StrCat(flags.model, ", FP8, streamed on ", hardware.name, "\n"));
  PrintTable(rows);
  if (flags.paper) PrintText("\nDeepSeek-V3 in the paper                       paper  simulated  deviation\n");
  for (const auto& claim : claims) {
    PrintText(absl::StrFormat("%-42s %9.1f %10.1f %+8.1f %%\n", claim["what"].get<std::string>(),
                              claim["paper"].get<double>(), claim["simulated"].get<double>(),
                              100 * claim["deviation"].get<double>()));
  }
  return absl::OkStatus();
}

}  // namespace

void AddSimulateCommand(CLI::App& app, std::vector<Command>& commands) {
  const auto flags = std::make_shared<SimulateFlags>();
  CLI::App* command = app.add_subcommand(
      "simulate", "How long a streamed prefill would take on a machine described by a file (deploy/hardware)");
  command->add_option("hardware", flags->hardware, "JSON file with the machine's numbers")->required();
  command->add_option("--model", flags->model, "Its published configuration, in FP8")
      ->check(CLI::IsMember({"deepseek-v3", "kimi-k2"}));
  command->add_option("--tokens", flags->tokens, "Prompt lengths")->delimiter(',');
  command->add_option("--ring-slots", flags->limits.ring_slots, "Experts in GPU memory at once; 0: as many as fit")
      ->check(CLI::Range(0, 4096));
  command->add_option("--dense-bytes", flags->limits.dense_bytes, "GPU memory for weights that are not routed experts")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  command->add_option("--min-pass-tokens", flags->limits.min_pass_rows, "A prompt is never cut into less")
      ->check(CLI::Range(1, 1 << 30));
  command->add_option("--trace-file", flags->trace_file, "Timeline of the last prompt, for chrome://tracing");
  command->add_flag("--paper", flags->paper, "Compare with the paper's figures for DeepSeek-V3 on one RTX 5090");
  command->add_flag("--json", flags->json, "JSON");
  commands.push_back({command, [flags] { return Simulate(*flags); }});
}

}  // namespace moestro
