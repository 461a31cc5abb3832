#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/report/files.h"
#include "services/cli/bench/runner.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro {
namespace {

struct BenchFlags {
  bench::BenchOptions options;
  bool quick = false;
  bool list = false;
  std::string json_file;
  std::string out_dir;
};

// Fails before minutes of measuring, not after them, where a report cannot be written.
absl::Status PrepareReports(const BenchFlags& flags) {
  if (!flags.out_dir.empty()) MOE_RETURN_IF_ERROR(MakeReportDirectory("--out", flags.out_dir));
  return flags.json_file.empty() ? absl::OkStatus() : WriteReportFile("--json", flags.json_file, "");
}

absl::Status WriteReports(const BenchFlags& flags, const bench::Report& report) {
  const std::string json = bench::ReportJson(report).dump(2) + "\n";
  if (flags.json_file.empty()) {
    PrintText(json);
  } else {
    MOE_RETURN_IF_ERROR(WriteReportFile("--json", flags.json_file, json));
  }
  if (flags.out_dir.empty()) return absl::OkStatus();
  const std::filesystem::path out = flags.out_dir;
  MOE_RETURN_IF_ERROR(WriteReportFile("--out", out / "bench.md", bench::ReportMarkdown(report)));
  return WriteReportFile("--out", out / "bench.html", bench::ReportHtml(report));
}

absl::Status Bench(BenchFlags flags) {
  if (flags.quick) flags.options.preset = "quick";
  if (flags.list) {
    MOE_ASSIGN_OR_RETURN(const auto benchmarks, bench::SelectBenchmarks(flags.options));
    for (const bench::Benchmark& benchmark : benchmarks) PrintText(benchmark.id() + "\n");
    return absl::OkStatus();
  }
  MOE_RETURN_IF_ERROR(PrepareReports(flags));
  const auto report =
      bench::RunBenchmarks(flags.options, [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  MOE_RETURN_IF_ERROR(report.status());
  std::fprintf(stderr, "%d targets reached, %d missed\n", static_cast<int>(report->passed()),
               static_cast<int>(report->missed()));
  return WriteReports(flags, *report);
}

}  // namespace

void AddBenchCommand(CLI::App& app, std::vector<Command>& commands) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure this machine's ceilings and every kernel as a ratio to its ceiling, as JSON and as a report");
  command
      ->add_option("--preset", flags->options.preset,
                   "layer: DeepSeek-V3's shapes; quick: tiny ones, whose ratios mean nothing")
      ->check(CLI::IsMember({"layer", "quick"}));
  command->add_flag("--quick", flags->quick, "The same as --preset quick");
  command->add_option("--filter", flags->options.filter, "Only benchmarks whose name contains this");
  command->add_flag("--list", flags->list, "Print the names and run nothing");
  command->add_option("--threads", flags->options.threads, "Worker threads; 0: all cores")->check(CLI::Range(0, 4096));
  command->add_option("--rounds", flags->options.rounds, "Rounds of each benchmark; 0: the preset's")
      ->check(CLI::Range(0, 10000));
  command
      ->add_option("--experts", flags->options.experts,
                   "Experts of the MoE layer, at most; 0: the preset's, or what half of the available memory holds")
      ->check(CLI::Range(0, 4096));
  command
      ->add_option("--memory", flags->options.model_bytes,
                   "Size of the end-to-end model, for example 8GiB; 0: the preset's")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  command->add_option("--json", flags->json_file, "File for the JSON; empty: stdout");
  command->add_option("--out", flags->out_dir, "Directory for bench.md and bench.html; empty: neither");
  commands.push_back({command, [flags] { return Bench(*flags); }});
}

}  // namespace moestro
