// `moestro paper`: a paper's figures beside this implementation's.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "services/cli/command.h"
#include "services/cli/output.h"
#include "services/cli/paper/hybrimoe/hybrimoe.h"
#include "services/cli/paper/moe_lightning/moe_lightning.h"
#include "services/cli/paper/osdi/osdi.h"
#include "services/cli/paper/report.h"
#include "services/cli/paper/trimoe/trimoe.h"

namespace moestro::cli {
namespace {

struct OsdiFlags {
  std::string figure;
  std::string out_dir;
  std::string hardware = "deploy/hardware/rtx5090-epyc9355.json";
  std::string cpu = "deploy/hardware/epyc-9355-2s.json";
  std::string measured_file;
};

absl::StatusOr<OsdiInput> ReadInput(const OsdiFlags& flags) {
  OsdiInput input;
  absl::StatusOr<GpuMachine> node = ReadHardwareFile(flags.hardware);
  MOE_RETURN_IF_ERROR(Annotate(node.status(), "--hardware"));
  input.node = *std::move(node);
  absl::StatusOr<roofline::CpuMachine> cpu = ReadCpuMachineFile(flags.cpu);
  MOE_RETURN_IF_ERROR(Annotate(cpu.status(), "--cpu"));
  input.cpu = *std::move(cpu);
  if (flags.measured_file.empty()) return input;
  absl::StatusOr<std::string> text = ReadFile(flags.measured_file);
  MOE_RETURN_IF_ERROR(Annotate(text.status(), "--measured"));
  absl::StatusOr<bench::BenchReport> measured = bench::ParseReport(*text);
  MOE_RETURN_IF_ERROR(Annotate(measured.status(), absl::StrCat("--measured ", flags.measured_file)));
  input.measured = *std::move(measured);
  return input;
}

absl::Status Show(const PaperReport& report, const std::string& out_dir) {
  PrintText(ReportText(report));
  return out_dir.empty() ? absl::OkStatus() : WriteReport(report, out_dir);
}

absl::Status Osdi(const OsdiFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const OsdiInput input, ReadInput(flags));
  MOE_ASSIGN_OR_RETURN(const PaperReport report, MakeOsdiReport(input, flags.figure));
  return Show(report, flags.out_dir);
}

struct MoeLightningFlags {
  std::string figure;
  std::string out_dir;
  std::string machines = "deploy/hardware";
};

absl::Status MoeLightning(const MoeLightningFlags& flags) {
  absl::StatusOr<MoeLightningMachines> machines = ReadMoeLightningMachines(flags.machines);
  MOE_RETURN_IF_ERROR(Annotate(machines.status(), "--machines"));
  return Show(MakeMoeLightningReport(*machines, flags.figure), flags.out_dir);
}

void AddMoeLightning(FlagSet& paper, std::vector<Command>& commands) {
  const auto flags = std::make_shared<MoeLightningFlags>();
  FlagSet command = paper.AddCommand(
      "moe-lightning",
      "\"MoE-Lightning: High-Throughput MoE Inference on Memory-constrained GPUs\" (ASPLOS '25), by formulas");
  command.Add("--figure", flags->figure, "Only this figure").OneOf(MoeLightningFigures());
  command.Add("--out", flags->out_dir, "Directory for claims.csv, points.csv and index.html; empty: none");
  command.Add("--machines", flags->machines, "Directory of the paper's machines (deploy/hardware)");
  commands.push_back({command, [flags] { return MoeLightning(*flags); }});
}

struct HybriMoEFlags {
  std::string figure;
  std::string out_dir;
  std::string machine = "deploy/hardware/a6000-xeon5220r.json";
};

absl::Status HybriMoE(const HybriMoEFlags& flags) {
  const absl::StatusOr<roofline::Machine> machine = ReadLevels(flags.machine);
  MOE_RETURN_IF_ERROR(Annotate(machine.status(), "--hardware"));
  return Show(MakeHybriMoEReport(*machine, flags.figure), flags.out_dir);
}

void AddHybriMoE(FlagSet& paper, std::vector<Command>& commands) {
  const auto flags = std::make_shared<HybriMoEFlags>();
  FlagSet command = paper.AddCommand("hybrimoe",
                                     "\"HybriMoE: Hybrid CPU-GPU Scheduling and Cache Management for Efficient MoE "
                                     "Inference\" (DAC '25), by replays of recordings");
  command.Add("--figure", flags->figure, "Only this figure").OneOf(HybriMoEFigures());
  command.Add("--out", flags->out_dir, "Directory for claims.csv, points.csv and index.html; empty: none");
  command.Add("--hardware", flags->machine, "JSON file of the paper's machine (deploy/hardware)");
  commands.push_back({command, [flags] { return HybriMoE(*flags); }});
}

struct TriMoeFlags {
  std::string figure;
  std::string out_dir;
  std::string machines = "deploy/hardware";
  std::string contention = "internal";
};

absl::Status TriMoe(const TriMoeFlags& flags) {
  absl::StatusOr<NearDataMachine> machine = ReadTriMoeMachine(flags.machines);
  MOE_RETURN_IF_ERROR(Annotate(machine.status(), "--machines"));
  const auto contention = flags.contention == "internal" ? experts::Contention::kInternal : experts::Contention::kHost;
  return Show(MakeTriMoeReport(*machine, contention, flags.figure), flags.out_dir);
}

void AddTriMoe(FlagSet& paper, std::vector<Command>& commands) {
  const auto flags = std::make_shared<TriMoeFlags>();
  FlagSet command = paper.AddCommand(
      "trimoe",
      "\"TriMoE: Augmenting GPU with AMX-Enabled CPU and DIMM-NDP for High-Throughput MoE Inference via Offloading\", "
      "by plans on its machine");
  command.Add("--figure", flags->figure, "Only this figure or table").OneOf(TriMoeFigures());
  command.Add("--out", flags->out_dir, "Directory for claims.csv, points.csv and index.html; empty: none");
  command.Add("--machines", flags->machines, "Directory of the paper's machine (deploy/hardware)");
  command
      .Add("--contention", flags->contention,
           "What reads by GPU and CPU take from a DIMM's processor: the bytes at the DIMM's internal rate, or at "
           "the host's")
      .OneOf({"internal", "host"});
  commands.push_back({command, [flags] { return TriMoe(*flags); }});
}

}  // namespace

void AddPaperCommand(FlagSet& program, std::vector<Command>& commands) {
  FlagSet paper = program.AddCommand("paper", "A paper's figures beside this implementation's: misses first");
  paper.RequireCommands(1, 1);
  const auto flags = std::make_shared<OsdiFlags>();
  FlagSet command = paper.AddCommand(
      "osdi",
      "\"Achieving Cloud-Grade SLOs for Local Mixture-of-Experts Inference\" (OSDI '26), simulated on its node");
  command.Add("--figure", flags->figure, "Only this figure or table").OneOf(OsdiFigures());
  command.Add("--out", flags->out_dir, "Directory for claims.csv, points.csv and index.html; empty: none");
  command.Add("--hardware", flags->hardware, "JSON file of the node (deploy/hardware)");
  command.Add("--cpu", flags->cpu, "JSON file of the node's CPUs alone, as for simulate --cpu");
  command.Add("--measured", flags->measured_file,
              "JSON report of `moestro bench --filter table1`, for Table 1; empty: its rows stay open");
  commands.push_back({command, [flags] { return Osdi(*flags); }});
  AddMoeLightning(paper, commands);
  AddHybriMoE(paper, commands);
  AddTriMoe(paper, commands);
}

}  // namespace moestro::cli
