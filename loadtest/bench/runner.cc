#include "loadtest/bench/runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/kernels/dispatch.h"
#include "common/platform/cpu/cpu_features.h"
#include "common/report/build_info.h"
#include "common/report/number.h"
#include "loadtest/bench/probes/select.h"

namespace moestro::bench {
namespace {

constexpr RoundTimer::Options kLayerTiming = {.rounds = 9, .min_sample_seconds = 0.1};
constexpr RoundTimer::Options kQuickTiming = {.rounds = 3, .min_sample_seconds = 0.0001};
// Choosing the way of reading needs few rounds.
constexpr int kCalibrationRounds = 3;

RoundTimer::Options Timing(const BenchOptions& options) {
  RoundTimer::Options timing = options.preset == "quick" ? kQuickTiming : kLayerTiming;
  if (options.rounds > 0) timing.rounds = options.rounds;
  return timing;
}

absl::StatusOr<Preset> FindPreset(const BenchOptions& options, const Machine& machine) {
  if (options.preset != "layer" && options.preset != "quick") {
    return absl::InvalidArgumentError(absl::StrCat("--preset \"", options.preset, "\" is unknown; use layer or quick"));
  }
  Preset preset = options.preset == "layer" ? LayerPreset(machine.l2_bytes, machine.l3_bytes) : QuickPreset();
  if (options.experts > 0) preset.moe.experts = options.experts;
  if (options.model_bytes > 0) preset.model.memory_bytes = options.model_bytes;
  return preset;
}

absl::StatusOr<std::vector<Benchmark>> Select(const Preset& preset, const std::string& filter) {
  std::vector<Benchmark> benchmarks;
  AddCeilingBenchmarks(preset, benchmarks);
  AddGemvBenchmarks(preset, benchmarks);
  AddTable1Benchmarks(preset, benchmarks);
  AddGemmBenchmarks(preset, benchmarks);
  AddElementwiseBenchmarks(preset, benchmarks);
  AddAttentionBenchmarks(preset, benchmarks);
  AddBatchBenchmarks(preset, benchmarks);
  AddMoeLayerBenchmarks(preset, benchmarks);
  AddEndToEndBenchmarks(preset, benchmarks);
  AddInt8Benchmarks(preset, benchmarks);
  AddMlaBenchmarks(preset, benchmarks);
  AddKvStoreBenchmarks(preset, benchmarks);
  AddFp8ConvertBenchmarks(preset, benchmarks);
  std::erase_if(benchmarks, [&](const Benchmark& b) { return b.id().find(filter) == std::string::npos; });
  if (benchmarks.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--filter \"", filter, "\": no benchmark's name contains it; see --list"));
  }
  return benchmarks;
}

std::string Summarise(const Row& row) {
  std::string text = absl::StrCat(row.name, ": ", ShortNumber(row.rate.median), " ", row.unit);
  if (row.reference) absl::StrAppend(&text, ", ", ShortNumber(row.ratio.median), " of ", row.reference->name);
  if (row.target) absl::StrAppend(&text, " (target ", ShortNumber(*row.target), ": ", Verdict(row), ")");
  return text;
}

bool IsSkip(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status);
}

void Append(Findings found, Findings* all) {
  std::ranges::move(found.rows, std::back_inserter(all->rows));
  std::ranges::move(found.skipped, std::back_inserter(all->skipped));
}

}  // namespace

absl::StatusOr<std::vector<Benchmark>> SelectBenchmarks(const BenchOptions& options) {
  MOE_ASSIGN_OR_RETURN(const Preset preset, FindPreset(options, DescribeMachine()));
  return Select(preset, options.filter);
}

absl::StatusOr<BenchReport> DescribeRun(const BenchOptions& options) {
  BenchReport report;
  report.machine = DescribeMachine();
  MOE_RETURN_IF_ERROR(SelectBenchmarks(options).status());
  MOE_ASSIGN_OR_RETURN(const CpuKernels* const kernels, SelectKernels());
  report.machine.kernels_isa = std::string(kernels->isa);
  const RoundTimer::Options timing = Timing(options);
  report.settings = {.preset = options.preset,
                     .threads = options.threads > 0 ? options.threads : report.machine.cores,
                     .rounds = timing.rounds,
                     .min_sample_seconds = timing.min_sample_seconds,
                     .filter = options.filter};
  return report;
}

absl::StatusOr<BenchReport> RunBenchmarks(const BenchOptions& options,
                                          const std::function<void(const std::string& line)>& progress) {
  MOE_ASSIGN_OR_RETURN(BenchReport report, DescribeRun(options));
  report.sections = ReportSections();
  MOE_ASSIGN_OR_RETURN(const Preset preset, FindPreset(options, report.machine));
  MOE_ASSIGN_OR_RETURN(std::vector<Benchmark> benchmarks, Select(preset, options.filter));

  const RoundTimer::Options timing = Timing(options);
  const RoundTimer timer(timing);
  WorkerPool pool(report.settings.threads);
  MOE_ASSIGN_OR_RETURN(const CpuKernels* const kernels, SelectKernels());
  const CpuFeatures cpu = DetectCpuFeatures();
  Ceilings ceilings(pool, SelectProbes(cpu, kernels->isa), SelectVectorProbes(cpu), SelectByteProbes(cpu));
  WeightPool weights(pool, preset.pool_bytes);
  BenchContext context = {.preset = preset,
                          .pool = pool,
                          .kernels = *kernels,
                          .timer = timer,
                          .ceilings = ceilings,
                          .weights = weights,
                          .has_avx512_bf16 = cpu.avx512_bf16,
                          .has_fp8_conversions = cpu.avx512_vbmi && cpu.avx512_gfni};

  progress("finding the fastest way to read");
  MOE_RETURN_IF_ERROR(weights.Prepare(DType::kF8E4M3));
  ceilings.Calibrate(RoundTimer({.rounds = std::min(kCalibrationRounds, timing.rounds),
                                 .min_sample_seconds = timing.min_sample_seconds}),
                     weights.data(), weights.size());

  for (size_t i = 0; i < benchmarks.size(); ++i) {
    const std::string id = benchmarks[i].id();
    progress(absl::StrFormat("[%d/%d] %s", i + 1, benchmarks.size(), id));
    auto found = benchmarks[i].run(context);
    benchmarks[i].run = nullptr;  // frees shared data after its last user
    if (!found.ok() && !IsSkip(found.status())) return Annotate(found.status(), id);
    Findings findings;
    if (found.ok()) {
      findings = *std::move(found);
    } else {
      findings.skipped.push_back({benchmarks[i].name, std::string(found.status().message())});
    }
    for (const Row& row : findings.rows) progress("  " + Summarise(row));
    for (const Skipped& item : findings.skipped)
      progress(absl::StrCat("  not measured: ", item.name, ": ", item.reason));
    const PageUse pages = ReadPageUse();
    if (pages.anonymous_bytes > report.machine.pages.anonymous_bytes) report.machine.pages = pages;
    const auto section = std::ranges::find(report.sections, benchmarks[i].section, &BenchSection::id);
    Append(std::move(findings), &section->findings);
  }
  std::erase_if(report.sections, [](const BenchSection& section) {
    return section.findings.rows.empty() && section.findings.skipped.empty();
  });

  report.machine.probes_isa = ceilings.probes().isa;
  report.machine.dot_instruction = ceilings.probes().dot_instruction;
  report.machine.read_ahead = ceilings.read_ahead();
  report.date = Today();
  return report;
}

}  // namespace moestro::bench
