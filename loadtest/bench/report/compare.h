// Two reports of the same kind of machine: what got slower.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadtest/bench/report/report.h"

namespace moestro::bench {

// A row fell if its median is lower by more than this, and by more than so many deviations.
inline constexpr double kFallShare = 0.05;
inline constexpr double kFallDeviations = 2;
// Fewer do not show how much rounds differ.
inline constexpr int kMinComparedRounds = 3;

enum class Change {
  kFell,
  kRose,  // by as much
  kWithinNoise,
  // A row without a reference: its rate moves with the machine, or is that of another's kernel. Shown, not judged.
  kNotJudged,
};

struct ComparedRow {
  std::string section;  // Section::id
  std::string name;
  int threads = 1;
  std::string quantity;  // what the medians are: "ratio to read bandwidth", or "GB/s" of a row without a reference
  double before = 0;     // medians
  double after = 0;
  double deviation = 0;  // of a round's value, in both reports together: CompareReports
  Change change = Change::kNotJudged;
  // What one unit of the work is, is described otherwise in the two reports: perhaps it is other work.
  bool counted_otherwise = false;

  double share() const { return after / before - 1; }
};

struct RowName {
  std::string section;
  std::string name;
  int threads = 1;
};

struct Comparison {
  std::vector<ComparedRow> rows;  // in the order of the newer report
  std::vector<RowName> missing;   // of the older report, not in the newer one
  std::vector<RowName> added;     // of the newer one only; also rows that have another reference or unit now
  int64_t not_run = 0;            // of the older report, where the newer one ran only a part (--filter)

  int64_t Count(Change change) const;
};

// OK if their figures may be compared. INVALID_ARGUMENT says why not: another CPU (model name, family, number, or
// instructions; family and number only where both reports have them), another table of kernels, preset or number of
// threads, or too few rounds.
absl::Status CheckComparable(const Report& before, const Report& after);

// Rows with a reference are compared by their ratio to it, which both reports measured in the same rounds; rows without
// by their rate. The deviation of one report's row is estimated from the range of its n rounds, (max - min) / d2(n),
// where d2(n) is the range to be expected of n normal values of deviation 1; `deviation` is the root mean square of
// both reports' ones. Errors of CheckComparable.
absl::StatusOr<Comparison> CompareReports(const Report& before, const Report& after);

// What a reader wants to know first, first: rows that fell, then those that rose, are missing, new, or not judged.
// `name`: of the older report, as the user gave it.
std::string ComparisonText(const std::string& name, const Report& before, const Report& after,
                           const Comparison& comparison);
nlohmann::json ComparisonJson(const Report& before, const Report& after, const Comparison& comparison);

}  // namespace moestro::bench
