#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/report/build_info.h"
#include "common/report/files.h"
#include "loadtest/bench/report/compare.h"
#include "loadtest/bench/runner.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct BenchFlags {
  bench::BenchOptions options;
  bool quick = false;
  bool list = false;
  std::string json_file;
  std::string out_dir;
  std::string compare_file;  // an older report
  std::string against_file;  // compared with compare_file, instead of a run
};

constexpr char kFooter[] =
    "--compare names every row whose median fell by more than 5 % and by more than 2 deviations, and then exits with\n"
    "code 1. The median is that of a row's ratio to its reference, measured in the same rounds, because rates move\n"
    "with the machine. Rows without a reference (ceilings, other libraries' kernels) are shown, not judged. The\n"
    "deviation of a row in a report is the range of its n rounds, largest less smallest, divided by the expected\n"
    "range of n normal values of deviation 1 (1.69 for 3 rounds, 2.33 for 5, 2.70 for 7, 2.97 for 9, 3.08 for 10\n"
    "and more). The deviation of a comparison is the root mean square of both. Missing and new rows are listed. A\n"
    "report of another kind of CPU (name, family, model, instructions), table of kernels, preset or number of\n"
    "threads is refused with exit code 2, before anything is measured.";

// If a report cannot be written, this fails before minutes of measuring instead of after them.
absl::Status PrepareReports(const BenchFlags& flags) {
  if (!flags.out_dir.empty()) MOE_RETURN_IF_ERROR(MakeReportDirectory("--out", flags.out_dir));
  return flags.json_file.empty() ? absl::OkStatus() : WriteReportFile("--json", flags.json_file, "");
}

absl::StatusOr<bench::BenchReport> ReadReport(const char* flag, const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  MOE_RETURN_IF_ERROR(Annotate(text.status(), flag));
  absl::StatusOr<bench::BenchReport> report = bench::ParseReport(*text);
  MOE_RETURN_IF_ERROR(Annotate(report.status(), absl::StrCat(flag, " ", path)));
  return report;
}

// A report is useless later if nobody can tell which sources it measured.
void WarnOfDirtyBuild(const bench::BenchReport& report) {
  const std::string& revision = report.machine.revision;
  if (!IsDirty(revision) && !revision.empty()) return;
  std::fprintf(stderr, "warning: built from %s: nobody can repeat this report; commit, build again, and measure then\n",
               revision.empty() ? "sources of unknown revision" : RevisionText(revision).c_str());
}

absl::Status Verdict(const std::string& name, const bench::ReportComparison& comparison) {
  const int64_t fell = comparison.Count(bench::Change::kFell);
  if (fell == 0) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(fell, fell == 1 ? " row" : " rows", " fell since ", name));
}

// REQUIRES: `before` is the older report, already read.
absl::Status CompareFiles(const BenchFlags& flags, const bench::BenchReport& before) {
  MOE_ASSIGN_OR_RETURN(const bench::BenchReport after, ReadReport("--against", flags.against_file));
  absl::StatusOr<bench::ReportComparison> comparison = bench::CompareReports(before, after);
  MOE_RETURN_IF_ERROR(Annotate(comparison.status(), absl::StrCat("--compare ", flags.compare_file)));
  PrintText(bench::ComparisonText(flags.compare_file, before, after, *comparison));
  if (!flags.json_file.empty()) {
    const std::string json = bench::ComparisonJson(before, after, *comparison).dump(2) + "\n";
    MOE_RETURN_IF_ERROR(WriteReportFile("--json", flags.json_file, json));
  }
  return Verdict(flags.compare_file, *comparison);
}

// `comparison`: JSON, null without --compare.
absl::Status WriteReports(const BenchFlags& flags, const bench::BenchReport& report, const nlohmann::json& comparison) {
  nlohmann::json written = bench::ReportJson(report);
  if (!comparison.is_null()) written["comparison"] = comparison;
  const std::string json = written.dump(2) + "\n";
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
  std::optional<bench::BenchReport> before;
  if (!flags.compare_file.empty()) {
    MOE_ASSIGN_OR_RETURN(before, ReadReport("--compare", flags.compare_file));
    if (!flags.against_file.empty()) return CompareFiles(flags, *before);
  }
  MOE_ASSIGN_OR_RETURN(const bench::BenchReport planned, bench::DescribeRun(flags.options));
  if (before) {
    MOE_RETURN_IF_ERROR(
        Annotate(bench::CheckComparable(*before, planned), absl::StrCat("--compare ", flags.compare_file)));
  }
  WarnOfDirtyBuild(planned);
  MOE_RETURN_IF_ERROR(PrepareReports(flags));
  const auto report =
      bench::RunBenchmarks(flags.options, [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  MOE_RETURN_IF_ERROR(report.status());
  std::fprintf(stderr, "%d targets reached, %d missed\n", static_cast<int>(report->passed()),
               static_cast<int>(report->missed()));
  WarnOfDirtyBuild(*report);
  if (!before) return WriteReports(flags, *report, nullptr);
  MOE_ASSIGN_OR_RETURN(const bench::ReportComparison comparison, bench::CompareReports(*before, *report));
  MOE_RETURN_IF_ERROR(WriteReports(flags, *report, bench::ComparisonJson(*before, *report, comparison)));
  std::fputs(bench::ComparisonText(flags.compare_file, *before, *report, comparison).c_str(), stderr);
  return Verdict(flags.compare_file, comparison);
}

}  // namespace

void AddBenchCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<BenchFlags>();
  FlagSet command = program.AddCommand(
      "bench", "Measure this machine's ceilings and every kernel as a ratio to its ceiling, as JSON and as a report");
  command
      .Add("--preset", flags->options.preset,
           "layer: DeepSeek-V3's shapes; quick: tiny shapes, with meaningless ratios")
      .OneOf({"layer", "quick"});
  command.AddSwitch("--quick", flags->quick, "Same as --preset quick");
  command.Add("--filter", flags->options.filter, "Run only benchmarks whose name contains this");
  command.AddSwitch("--list", flags->list, "Print the names and run nothing");
  command.Add("--threads", flags->options.threads, "Worker threads; 0: all cores").Range(0, 4096);
  command.Add("--rounds", flags->options.rounds, "Rounds of each benchmark; 0: the preset's").Range(0, 10000);
  command
      .Add("--experts", flags->options.experts,
           "Most experts of the MoE layer; 0: the preset's, or as many as half of the available memory holds")
      .Range(0, 4096);
  command.Add("--memory", flags->options.model_bytes, "Size of the end-to-end model, for example 8GiB; 0: the preset's")
      .AsBytes();
  command.Add("--json", flags->json_file,
              "File for the report's JSON, which includes the comparison if there is --compare; empty: stdout. With "
              "--against: file for the comparison's JSON; empty: none");
  command.Add("--out", flags->out_dir, "Directory for bench.md and bench.html; empty: neither");
  Flag compare = command.Add("--compare", flags->compare_file, "An older report's JSON, compared with this run");
  Flag against =
      command
          .Add("--against", flags->against_file, "A newer report's JSON, compared with --compare instead of measuring")
          .Needs(compare);
  for (const char* of_runs :
       {"--preset", "--quick", "--filter", "--list", "--threads", "--rounds", "--experts", "--memory", "--out"}) {
    command.Find(of_runs).Excludes(against);
  }
  command.Footer(kFooter);
  commands.push_back({command, [flags] { return Bench(*flags); }});
}

}  // namespace moestro::cli
