#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/report/build_info.h"
#include "common/report/number.h"
#include "loadtest/bench/report/compare.h"

namespace moestro::bench {
namespace {

using nlohmann::json;

constexpr char kComparisonSchema[] = "moestro-bench-comparison-1";

const char* Name(Change change) {
  switch (change) {
    case Change::kFell:
      return "fell";
    case Change::kRose:
      return "rose";
    case Change::kWithinNoise:
      return "within noise";
    case Change::kNotJudged:
      return "not judged";
  }
  return "";
}

// Its revision and, if known, its date.
std::string Origin(const BenchReport& report) {
  return absl::StrCat("revision ", RevisionText(report.machine.revision),
                      report.date.empty() ? "" : absl::StrCat(", ", report.date));
}

std::string NameText(const RowName& row) {
  return absl::StrCat(row.section, " | ", row.name, ", ", row.threads, row.threads == 1 ? " thread" : " threads");
}

std::string RowText(const ComparedRow& row) {
  std::string text = absl::StrFormat("  %s: %s %s -> %s, %+.1f %%", NameText({row.section, row.name, row.threads}),
                                     row.quantity, ShortNumber(row.before), ShortNumber(row.after), 100 * row.share());
  if (row.change != Change::kNotJudged && row.deviation > 0) {
    absl::StrAppendFormat(&text, ", %+.1f deviations", (row.after - row.before) / row.deviation);
  }
  if (row.counted_otherwise)
    absl::StrAppend(&text, " (the counted work is described differently: it may be other work)");
  return text + "\n";
}

void AppendRows(const char* title, Change change, const ReportComparison& comparison, std::string* text) {
  if (comparison.Count(change) == 0) return;
  absl::StrAppend(text, title, ":\n");
  for (const ComparedRow& row : comparison.rows) {
    if (row.change == change) absl::StrAppend(text, RowText(row));
  }
}

void AppendNames(const char* title, const std::vector<RowName>& names, std::string* text) {
  if (names.empty()) return;
  absl::StrAppend(text, title, ":\n");
  for (const RowName& name : names) absl::StrAppend(text, "  ", NameText(name), "\n");
}

json OriginJson(const BenchReport& report) {
  return {{"revision", report.machine.revision},
          {"dirty", IsDirty(report.machine.revision)},
          {"date", report.date},
          {"rounds", report.settings.rounds}};
}

json NamesJson(const std::vector<RowName>& names) {
  json out = json::array();
  for (const RowName& name : names) {
    out.push_back({{"section", name.section}, {"name", name.name}, {"threads", name.threads}});
  }
  return out;
}

}  // namespace

std::string ComparisonText(const std::string& name, const BenchReport& before, const BenchReport& after,
                           const ReportComparison& comparison) {
  std::string text =
      absl::StrCat("Compared with ", name, " (", Origin(before), "); the newer report: ", Origin(after), "\n");
  if (before.machine.cpu_family == 0) {
    absl::StrAppend(&text, "The older report lacks its CPU's family and model: assumed to be the same.\n");
  }
  AppendRows("Fell", Change::kFell, comparison, &text);
  AppendRows("Rose", Change::kRose, comparison, &text);
  AppendNames("Missing in the newer report", comparison.missing, &text);
  AppendNames("New", comparison.added, &text);
  AppendRows("Not judged, rates that move with the machine", Change::kNotJudged, comparison, &text);
  absl::StrAppendFormat(&text, "%d fell, %d rose, %d within noise, %d missing, %d new", comparison.Count(Change::kFell),
                        comparison.Count(Change::kRose), comparison.Count(Change::kWithinNoise),
                        comparison.missing.size(), comparison.added.size());
  if (comparison.not_run > 0) absl::StrAppend(&text, ", ", comparison.not_run, " not run (--filter)");
  return text + "\n";
}

json ComparisonJson(const BenchReport& before, const BenchReport& after, const ReportComparison& comparison) {
  json rows = json::array();
  for (const ComparedRow& row : comparison.rows) {
    rows.push_back({{"section", row.section},
                    {"name", row.name},
                    {"threads", row.threads},
                    {"quantity", row.quantity},
                    {"before", row.before},
                    {"after", row.after},
                    {"share", row.share()},
                    {"deviation", row.deviation},
                    {"change", Name(row.change)},
                    {"counted_otherwise", row.counted_otherwise}});
  }
  return {{"schema", kComparisonSchema},
          {"before", OriginJson(before)},
          {"after", OriginJson(after)},
          {"fell", comparison.Count(Change::kFell)},
          {"rows", std::move(rows)},
          {"missing", NamesJson(comparison.missing)},
          {"added", NamesJson(comparison.added)},
          {"not_run", comparison.not_run}};
}

}  // namespace moestro::bench
