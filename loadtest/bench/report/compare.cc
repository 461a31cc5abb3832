#include "loadtest/bench/report/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace moestro::bench {
namespace {

// Expected range of n normal values of deviation 1 (d2 of control charts), from n = 2 on. More rounds use the last
// value, which overestimates the deviation.
constexpr std::array kRangeOfRounds = {1.128, 1.693, 2.059, 2.326, 2.534, 2.704, 2.847, 2.970, 3.078};

double Deviation(const Summary& summary, int rounds) {
  const auto index = std::min(static_cast<size_t>(rounds - 2), kRangeOfRounds.size() - 1);
  return (summary.max - summary.min) / kRangeOfRounds[index];
}

using Key = std::tuple<std::string, std::string, int>;

Key KeyOf(const std::string& section, const Row& row) { return {section, row.name, row.threads}; }
RowName NameOf(const std::string& section, const Row& row) { return {section, row.name, row.threads}; }

std::string Quantity(const Row& row) {
  return row.reference ? absl::StrCat("ratio to ", row.reference->name) : row.unit;
}
const Summary& Value(const Row& row) { return row.reference ? row.ratio : row.rate; }

Change Judge(const Row& row, double before, double after, double deviation) {
  if (!row.reference) return Change::kNotJudged;
  const double difference = std::abs(after - before);
  if (difference <= kFallShare * before || difference <= kFallDeviations * deviation) return Change::kWithinNoise;
  return after < before ? Change::kFell : Change::kRose;
}

ComparedRow Compare(const std::string& section, const Row& before, int rounds_before, const Row& after,
                    int rounds_after) {
  const double deviation =
      std::hypot(Deviation(Value(before), rounds_before), Deviation(Value(after), rounds_after)) / std::sqrt(2.0);
  const double old_median = Value(before).median;
  const double new_median = Value(after).median;
  return {.section = section,
          .name = after.name,
          .threads = after.threads,
          .quantity = Quantity(after),
          .before = old_median,
          .after = new_median,
          .deviation = deviation,
          .change = Judge(after, old_median, new_median, deviation),
          .counted_otherwise = before.counted != after.counted};
}

absl::Status CheckRounds(const char* which, const BenchReport& report) {
  if (report.settings.rounds >= kMinComparedRounds) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the ", which, " report has ", report.settings.rounds,
      " rounds, which do not show how much they differ; measure with --rounds ", kMinComparedRounds, " or more"));
}

}  // namespace

int64_t ReportComparison::Count(Change change) const { return std::ranges::count(rows, change, &ComparedRow::change); }

absl::Status CheckComparable(const BenchReport& before, const BenchReport& after) {
  const Machine& old_machine = before.machine;
  const Machine& new_machine = after.machine;
  const bool families_known = old_machine.cpu_family != 0 && new_machine.cpu_family != 0;
  const bool other_generation = families_known && (old_machine.cpu_family != new_machine.cpu_family ||
                                                   old_machine.cpu_number != new_machine.cpu_number);
  if (other_generation || old_machine.cpu_model != new_machine.cpu_model ||
      old_machine.cpu_flags != new_machine.cpu_flags) {
    const auto describe = [](const Machine& m) {
      return absl::StrCat(CpuName(m), " with ", absl::StrJoin(m.cpu_flags, " "));
    };
    return absl::InvalidArgumentError(
        absl::StrCat("another kind of CPU: ", describe(old_machine), "; the newer report: ", describe(new_machine),
                     ". Compare with a report of this kind, or commit one as its baseline"));
  }
  const auto differ = [](const char* what, const auto& old_value, const auto& new_value, const char* flag) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", old_value, " there, ", new_value, " in the newer report: use ", flag, old_value));
  };
  if (old_machine.kernels_isa != new_machine.kernels_isa) {
    return differ("kernels", old_machine.kernels_isa, new_machine.kernels_isa, "MOESTRO_ISA=");
  }
  if (before.settings.preset != after.settings.preset) {
    return differ("preset", before.settings.preset, after.settings.preset, "--preset ");
  }
  if (before.settings.threads != after.settings.threads) {
    return differ("threads", before.settings.threads, after.settings.threads, "--threads ");
  }
  MOE_RETURN_IF_ERROR(CheckRounds("older", before));
  return CheckRounds("newer", after);
}

absl::StatusOr<ReportComparison> CompareReports(const BenchReport& before, const BenchReport& after) {
  MOE_RETURN_IF_ERROR(CheckComparable(before, after));
  std::map<Key, const Row*> old_rows;
  for (const BenchSection& section : before.sections) {
    for (const Row& row : section.findings.rows) old_rows[KeyOf(section.id, row)] = &row;
  }
  ReportComparison comparison;
  for (const BenchSection& section : after.sections) {
    for (const Row& row : section.findings.rows) {
      const auto found = old_rows.find(KeyOf(section.id, row));
      if (found == old_rows.end()) {
        comparison.added.push_back(NameOf(section.id, row));
        continue;
      }
      const Row& old_row = *found->second;
      if (Quantity(old_row) != Quantity(row) || old_row.unit != row.unit) {
        comparison.added.push_back(NameOf(section.id, row));
        continue;  // and the older one is missing
      }
      comparison.rows.push_back(Compare(section.id, old_row, before.settings.rounds, row, after.settings.rounds));
      old_rows.erase(found);
    }
  }
  if (!after.settings.filter.empty()) {
    comparison.not_run = static_cast<int64_t>(old_rows.size());
    return comparison;
  }
  // In the older report's order.
  for (const BenchSection& section : before.sections) {
    for (const Row& row : section.findings.rows) {
      if (old_rows.contains(KeyOf(section.id, row))) comparison.missing.push_back(NameOf(section.id, row));
    }
  }
  return comparison;
}

}  // namespace moestro::bench
