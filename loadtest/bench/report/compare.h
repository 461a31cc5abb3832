// Compares two reports of the same kind of machine and finds rows that became slower.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadtest/bench/report/report.h"

namespace moestro::bench {

// A row fell if its median is lower by more than this share, and by more than this many deviations.
inline constexpr double kFallShare = 0.05;
inline constexpr double kFallDeviations = 2;
// Fewer rounds do not show how much they differ.
inline constexpr int kMinComparedRounds = 3;

enum class Change {
  kFell,
  kRose,  // by the same measure
  kWithinNoise,
  // A row without a reference: its rate varies with the machine, or belongs to another library's kernel. Shown, not
  // judged.
  kNotJudged,
};

struct ComparedRow {
  std::string section;  // Section::id
  std::string name;
  int threads = 1;
  std::string quantity;  // what the medians measure: "ratio to read bandwidth", or "GB/s" of a row without a reference
  double before = 0;     // medians
  double after = 0;
  double deviation = 0;  // of a round's value, from both reports: see CompareReports
  Change change = Change::kNotJudged;
  // The two reports describe one unit of the work differently: it may be other work.
  bool counted_otherwise = false;

  double share() const { return after / before - 1; }
};

struct RowName {
  std::string section;
  std::string name;
  int threads = 1;
};

struct ReportComparison {
  std::vector<ComparedRow> rows;  // in the order of the newer report
  std::vector<RowName> missing;   // of the older report, not in the newer one
  std::vector<RowName> added;     // only in the newer report, including rows whose reference or unit changed
  int64_t not_run = 0;            // of the older report, if the newer one ran only a part (--filter)

  int64_t Count(Change change) const;
};

// OK if the figures may be compared. INVALID_ARGUMENT gives the reason: another CPU (model name, family, number, or
// instructions; family and number only where both reports have them), another table of kernels, preset or number of
// threads, or too few rounds.
absl::Status CheckComparable(const BenchReport& before, const BenchReport& after);

// Rows with a reference are compared by their ratio to it, which each report measured in the same rounds. Rows without
// one are compared by their rate. The deviation of a row in one report is estimated from the range of its n rounds,
// (max - min) / d2(n). d2(n) is the expected range of n normal values of deviation 1. `deviation` is the root mean
// square of both. Errors of CheckComparable.
absl::StatusOr<ReportComparison> CompareReports(const BenchReport& before, const BenchReport& after);

// Lists first the rows that fell, then those that rose, are missing, new, or not judged. `name`: of the older report,
// as the user gave it.
std::string ComparisonText(const std::string& name, const BenchReport& before, const BenchReport& after,
                           const ReportComparison& comparison);
nlohmann::json ComparisonJson(const BenchReport& before, const BenchReport& after, const ReportComparison& comparison);

}  // namespace moestro::bench
