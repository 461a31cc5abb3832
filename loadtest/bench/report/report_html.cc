#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/report/html.h"
#include "common/report/number.h"
#include "loadtest/bench/report/plot.h"
#include "loadtest/bench/report/report.h"

namespace moestro::bench {
namespace {

std::string Range(const Summary& summary) {
  return absl::StrCat(ShortNumber(summary.min), " – ", ShortNumber(summary.max));
}

std::string RowHtml(const Row& row) {
  std::string html = absl::StrCat(
      "<tr><td>", EscapeHtml(row.name), "<small>", EscapeHtml(row.counted),
      row.error_p95 ? absl::StrFormat("; 95th percentile of the error %.2g", *row.error_p95) : std::string(),
      "</small></td><td class=\"number\">", row.threads, "</td><td class=\"number\">",
      ShortNumber(row.microseconds.median), "</td><td class=\"number\">", ShortNumber(row.rate.median), " ", row.unit,
      "<small>", Range(row.rate), "</small></td>");
  if (!row.reference) return absl::StrCat(html, "<td></td><td></td><td></td><td></td></tr>\n");
  absl::StrAppend(&html, "<td class=\"number\">", ShortNumber(row.reference->rate.median), " ", row.unit, "<small>",
                  EscapeHtml(row.reference->name), "</small></td><td class=\"number\"><b>",
                  ShortNumber(row.ratio.median), "</b><small>", Range(row.ratio), "</small></td><td class=\"number\">");
  if (row.target) absl::StrAppend(&html, "≥ ", ShortNumber(*row.target));
  const std::string verdict = Verdict(row);
  return absl::StrCat(html, "</td><td class=\"", verdict, "\">", verdict, "</td></tr>\n");
}

std::string TableHtml(const BenchSection& section) {
  std::string html =
      "<div class=\"scroll\"><table><thead><tr><th>what</th><th class=\"number\">threads</th><th "
      "class=\"number\">µs</th>"
      "<th class=\"number\">rate</th><th class=\"number\">reference</th><th class=\"number\">ratio</th>"
      "<th class=\"number\">target</th><th></th></tr></thead><tbody>\n";
  for (const Row& row : section.findings.rows) absl::StrAppend(&html, RowHtml(row));
  return absl::StrCat(html, "</tbody></table></div>\n");
}

std::string SectionHtml(const BenchSection& section) {
  std::string html = absl::StrCat("<h2>", EscapeHtml(section.title), "</h2>\n<p>", EscapeHtml(section.about), "</p>\n");
  absl::StrAppend(&html, RatioPlot(section.findings.rows));
  if (!section.findings.rows.empty()) absl::StrAppend(&html, TableHtml(section));
  for (const Skipped& skipped : section.findings.skipped) {
    absl::StrAppend(&html, "<p>Not measured: ", EscapeHtml(skipped.name), ": ", EscapeHtml(skipped.reason), "</p>\n");
  }
  return html;
}

}  // namespace

std::string ReportHtml(const BenchReport& report) {
  std::string html = absl::StrCat("<h1>moestro bench</h1>\n<p>", report.passed(), " targets reached, ", report.missed(),
                                  " missed. Ratios are to this machine's ceilings, measured in the same "
                                  "rounds.</p>\n",
                                  HtmlFacts(MachineFacts(report)));
  for (const BenchSection& section : report.sections) absl::StrAppend(&html, SectionHtml(section));
  return HtmlPage("moestro bench", html);
}

}  // namespace moestro::bench
