// The benchmarks and their context. Each file of this folder that measures something adds its benchmarks here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kernels/cpu/kernels.h"
#include "common/platform/worker_pool.h"
#include "loadtest/bench/ceilings.h"
#include "loadtest/bench/memory.h"
#include "loadtest/bench/presets.h"
#include "loadtest/bench/report/report.h"
#include "loadtest/bench/timing.h"

namespace moestro::bench {

struct BenchContext {
  const Preset& preset;
  WorkerPool& pool;  // --threads
  const CpuKernels& kernels;
  const RoundTimer& timer;
  Ceilings& ceilings;
  WeightPool& weights;
  bool has_avx512_bf16 = false;
  bool has_fp8_conversions = false;  // what baselines/fp8_convert.h needs
};

// One line of progress, one or more rows of the report.
struct Benchmark {
  std::string section;  // Section::id
  std::string name;
  // FAILED_PRECONDITION (this machine or build cannot) and RESOURCE_EXHAUSTED (memory) skip it with their message. Any
  // other error ends the run.
  std::function<absl::StatusOr<Findings>(BenchContext& context)> run;

  std::string id() const { return section + "/" + name; }
};

// A row without a reference. unit: "GB/s" if the series' amounts are bytes, "GFLOP/s" if they are operations.
Row MakeRow(const std::string& name, int threads, const std::string& unit, const Series& series,
            const std::string& counted);
// Gives `row`, which was made from `subject`, its reference. CompareRates sets the ratio of the rates, CompareSpeeds
// that of the units per second (the same task done in another way).
void CompareRates(const Series& subject, const std::string& name, const Series& reference, std::optional<double> target,
                  Row* row);
// The reference is the rate of a unit of the subject's operations that also reads so many bytes, by the slower of these
// two alone.
void CompareRoofline(const Series& subject, double bytes_a_unit, const Series& read, const Series& dot,
                     std::optional<double> target, Row* row);
void CompareSpeeds(const Series& subject, const std::string& name, const Series& reference,
                   std::optional<double> target, Row* row);
Findings OneRow(Row row);

void AddCeilingBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddGemvBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddTable1Benchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddGemmBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddElementwiseBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddMoeLayerBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddAttentionBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddBatchBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddEndToEndBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddInt8Benchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddMlaBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddKvStoreBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);
void AddFp8ConvertBenchmarks(const Preset& preset, std::vector<Benchmark>& benchmarks);

// Titles and explanations of the sections, in the order of the report, without rows.
std::vector<BenchSection> ReportSections();

}  // namespace moestro::bench
