// A run of the benchmark: selects and orders benchmarks, and collects their findings.
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
  int threads = 0;               // 0: every core available to this process
  int rounds = 0;                // 0: the preset's
  std::string filter;            // part of a benchmark's id; empty: all
  int64_t experts = 0;           // upper limit for the MoE layer; 0: the preset's
  int64_t model_bytes = 0;       // approximate, of the end-to-end model; 0: the preset's
};

// The benchmarks that match options.filter, in running order. INVALID_ARGUMENT if none matches, or if the preset is
// unknown.
absl::StatusOr<std::vector<Benchmark>> SelectBenchmarks(const BenchOptions& options);

// Describes such a run: a report without date and sections. Errors of SelectBenchmarks.
absl::StatusOr<BenchReport> DescribeRun(const BenchOptions& options);

// `progress` gets a line, without its newline, before and after every benchmark. Errors of SelectBenchmarks, and of a
// benchmark itself unless they skip it (benchmark.h).
absl::StatusOr<BenchReport> RunBenchmarks(const BenchOptions& options,
                                          const std::function<void(const std::string& line)>& progress);

}  // namespace moestro::bench
