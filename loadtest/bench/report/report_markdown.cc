#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/report/number.h"
#include "common/report/table.h"
#include "loadtest/bench/report/report.h"

namespace moestro::bench {
namespace {

std::string Range(const Summary& summary) {
  return absl::StrCat(ShortNumber(summary.median), " (", ShortNumber(summary.min), "–", ShortNumber(summary.max), ")");
}

std::string RowLine(const Row& row) {
  std::string line = absl::StrCat("| ", MarkdownCell(row.name), " | ", row.threads, " | ",
                                  ShortNumber(row.microseconds.median), " | ", Range(row.rate), " ", row.unit);
  if (!row.reference) return absl::StrCat(line, " | | | | |\n");
  absl::StrAppend(&line, " | ", ShortNumber(row.reference->rate.median), " ", row.unit, " (",
                  MarkdownCell(row.reference->name), ") | **", ShortNumber(row.ratio.median), "** (",
                  ShortNumber(row.ratio.min), "–", ShortNumber(row.ratio.max), ") | ");
  if (row.target) absl::StrAppend(&line, "≥ ", ShortNumber(*row.target));
  return absl::StrCat(line, " | ", Verdict(row), " |\n");
}

}  // namespace

std::string ReportMarkdown(const BenchReport& report) {
  std::string text = "# moestro bench\n\n";
  for (const auto& [what, value] : MachineFacts(report)) absl::StrAppend(&text, "- ", what, ": ", value, "\n");
  absl::StrAppend(&text, "\n", report.passed(), " targets reached, ", report.missed(), " missed.\n");
  for (const BenchSection& section : report.sections) {
    absl::StrAppend(&text, "\n## ", section.title, "\n\n", section.about, "\n\n");
    if (!section.findings.rows.empty()) {
      absl::StrAppend(&text,
                      "| what | threads | µs | rate | reference | ratio | target | |\n"
                      "|---|---:|---:|---:|---:|---:|---:|---|\n");
      for (const Row& row : section.findings.rows) absl::StrAppend(&text, RowLine(row));
      absl::StrAppend(&text, "\nCounted:\n\n");
      std::string last;
      for (const Row& row : section.findings.rows) {
        if (row.counted != last) absl::StrAppend(&text, "- ", row.name, ": ", row.counted, "\n");
        last = row.counted;
      }
      if (std::any_of(section.findings.rows.begin(), section.findings.rows.end(),
                      [](const Row& row) { return row.error_p95.has_value(); })) {
        absl::StrAppend(&text, "\n95th percentile of the error of outputs of deviation 1:\n\n");
        for (const Row& row : section.findings.rows) {
          if (row.error_p95)
            absl::StrAppend(&text, "- ", row.name, ": ", absl::StrFormat("%.2g", *row.error_p95), "\n");
        }
      }
    }
    for (const Skipped& skipped : section.findings.skipped) {
      absl::StrAppend(&text, "\nNot measured: ", skipped.name, ": ", skipped.reason, "\n");
    }
  }
  return text;
}

}  // namespace moestro::bench
