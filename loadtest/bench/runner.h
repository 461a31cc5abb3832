// A run of the benchmark: which benchmarks, in which order, and what becomes of their findings.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "loadtest/bench/benchmark.h"
#include "loadtest/bench/report/report.h"

namespace moestro::bench {

struct BenchOptions {
  std::string preset = "layer";  // "layer", "quick"
  int threads = 0;               // 0: every core that the process may run on
  int rounds = 0;                // 0: the preset's
  std::string filter;            // part of a benchmark's id; empty: all
  int64_t experts = 0;           // of the MoE layer, at most; 0: the preset's
  int64_t model_bytes = 0;       // of the end-to-end model, about; 0: the preset's
};

// Those that options.filter leaves, in the order in which they run. INVALID_ARGUMENT if it leaves none, or if the
// preset is unknown.
absl::StatusOr<std::vector<Benchmark>> SelectBenchmarks(const BenchOptions& options);

// What such a run will measure with: a report without date and sections. Errors of SelectBenchmarks.
absl::StatusOr<Report> DescribeRun(const BenchOptions& options);

// `progress` gets a line, without its end, before and after every benchmark. Errors of SelectBenchmarks; what a
// benchmark itself reports, unless that skips it (benchmark.h).
absl::StatusOr<Report> RunBenchmarks(const BenchOptions& options,
                                     const std::function<void(const std::string& line)>& progress);

}  // namespace moestro::bench
