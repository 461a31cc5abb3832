// The results of a benchmark run, and their three renderings.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/bench/machine.h"
#include "loadtest/bench/timing.h"

namespace moestro::bench {

// The base of a row's ratio, measured next to it in the same rounds.
struct Reference {
  std::string name;  // "read bandwidth", "dot-product rate", another kernel
  Summary rate;      // in the row's unit
};

struct Row {
  std::string name;
  int threads = 1;
  std::string unit;  // of rates: "GB/s" (10^9 bytes), "GFLOP/s"
  Summary rate;
  Summary microseconds;  // of one unit of the work
  std::string counted;   // describes one unit, and which of its bytes or operations count
  std::optional<Reference> reference;
  Summary ratio;                 // valid with a reference
  std::optional<double> target;  // the least median ratio that passes
  // 95th percentile of the differences between its outputs and those in double precision, which have deviation 1.
  std::optional<double> error_p95 = std::nullopt;

  bool passed() const { return target && ratio.median >= *target; }
};

struct Skipped {
  std::string name;
  std::string reason;
};

struct Findings {
  std::vector<Row> rows;
  std::vector<Skipped> skipped;
};

struct BenchSection {
  std::string id;
  std::string title;
  std::string about;
  Findings findings = {};
};

struct Settings {
  std::string preset;
  int threads = 1;
  int rounds = 1;
  double min_sample_seconds = 0;
  std::string filter;
};

struct BenchReport {
  std::string date;  // "2026-11-22", end of the run in UTC; empty: unknown
  Machine machine;
  Settings settings;
  std::vector<BenchSection> sections;

  int64_t passed() const;  // rows that reach their target
  int64_t missed() const;
};

inline constexpr char kReportSchema[] = "moestro-bench-1";

nlohmann::json ReportJson(const BenchReport& report);
// The inverse of ReportJson. Reports of earlier versions may lack the date, the CPU's family and number, and the
// prefetch distances. INVALID_ARGUMENT names the missing or wrong field and its place, without the file's name.
absl::StatusOr<BenchReport> ParseReport(const std::string& text);
std::string ReportMarkdown(const BenchReport& report);
// One self-contained page with inline styles and plots.
std::string ReportHtml(const BenchReport& report);

std::string Verdict(const Row& row);  // "pass", "miss", or empty without a target

std::string CpuName(const Machine& machine);  // "AMD EPYC (family 26, model 2)"

// Describes the machine in the order of the report's head: what, value.
std::vector<std::pair<std::string, std::string>> MachineFacts(const BenchReport& report);

}  // namespace moestro::bench
