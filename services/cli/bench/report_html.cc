#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/bench/plot.h"
#include "services/cli/bench/report.h"

namespace moestro::bench {
namespace {

// Both colour schemes; numbers in columns; wide tables scroll in their own box.
constexpr char kHead[] = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>moestro bench</title>
<style>
:root { color-scheme: light dark; --ink: #1d232b; --soft: #5c6773; --line: #d9dee4; --page: #ffffff; --band: #f4f6f8;
        --pass: #12805c; --miss: #b3422f; --bar: #3b6fb5; --reference: #98a3af; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ed; --soft: #98a3af; --line: #333c46; --page: #14181d; --band: #1c2229;
          --pass: #4cc38a; --miss: #f08a75; --bar: #6ea3ea; --reference: #5c6773; }
}
body { margin: 0 auto; max-width: 1080px; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
       font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; }
p { margin: .25rem 0 .75rem; color: var(--soft); max-width: 80ch; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 1rem 0; font-size: .9rem; }
dt { color: var(--soft); }
dd { margin: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
td small { display: block; color: var(--soft); }
.pass { color: var(--pass); font-weight: 600; }
.miss { color: var(--miss); font-weight: 600; }
svg { display: block; width: 100%; height: auto; margin: .5rem 0 1rem; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .soft { fill: var(--soft); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .bar { fill: var(--bar); }
svg .bar.pass { fill: var(--pass); }
svg .bar.miss { fill: var(--miss); }
svg .range { stroke: var(--ink); stroke-width: 1.5; }
svg .target { stroke: var(--ink); stroke-width: 2; stroke-dasharray: 3 2; }
</style>
</head>
<body>
)";

std::string Range(const Summary& summary) {
  return absl::StrCat(ShortNumber(summary.min), " – ", ShortNumber(summary.max));
}

std::string RowHtml(const Row& row) {
  std::string html = absl::StrCat(
      "<tr><td>", EscapeHtml(row.name), "<small>", EscapeHtml(row.counted), "</small></td><td class=\"number\">",
      row.threads, "</td><td class=\"number\">", ShortNumber(row.microseconds.median), "</td><td class=\"number\">",
      ShortNumber(row.rate.median), " ", row.unit, "<small>", Range(row.rate), "</small></td>");
  if (!row.reference) return absl::StrCat(html, "<td></td><td></td><td></td><td></td></tr>\n");
  absl::StrAppend(&html, "<td class=\"number\">", ShortNumber(row.reference->rate.median), " ", row.unit, "<small>",
                  EscapeHtml(row.reference->name), "</small></td><td class=\"number\"><b>",
                  ShortNumber(row.ratio.median), "</b><small>", Range(row.ratio), "</small></td><td class=\"number\">");
  if (row.target) absl::StrAppend(&html, "≥ ", ShortNumber(*row.target));
  const std::string verdict = Verdict(row);
  return absl::StrCat(html, "</td><td class=\"", verdict, "\">", verdict, "</td></tr>\n");
}

std::string TableHtml(const Section& section) {
  std::string html =
      "<div class=\"scroll\"><table><thead><tr><th>what</th><th class=\"number\">threads</th><th "
      "class=\"number\">µs</th>"
      "<th class=\"number\">rate</th><th class=\"number\">reference</th><th class=\"number\">ratio</th>"
      "<th class=\"number\">target</th><th></th></tr></thead><tbody>\n";
  for (const Row& row : section.findings.rows) absl::StrAppend(&html, RowHtml(row));
  return absl::StrCat(html, "</tbody></table></div>\n");
}

std::string SectionHtml(const Section& section) {
  std::string html = absl::StrCat("<h2>", EscapeHtml(section.title), "</h2>\n<p>", EscapeHtml(section.about), "</p>\n");
  absl::StrAppend(&html, RatioPlot(section.findings.rows));
  if (!section.findings.rows.empty()) absl::StrAppend(&html, TableHtml(section));
  for (const Skipped& skipped : section.findings.skipped) {
    absl::StrAppend(&html, "<p>Not measured: ", EscapeHtml(skipped.name), ": ", EscapeHtml(skipped.reason), "</p>\n");
  }
  return html;
}

}  // namespace

std::string ReportHtml(const Report& report) {
  std::string html =
      absl::StrCat(kHead, "<h1>moestro bench</h1>\n<p>", report.passed(), " targets reached, ", report.missed(),
                   " missed. Ratios are to what this machine was seen to do in the same "
                   "rounds.</p>\n<dl>\n");
  for (const auto& [what, value] : MachineFacts(report)) {
    absl::StrAppend(&html, "<dt>", EscapeHtml(what), "</dt><dd>", EscapeHtml(value), "</dd>\n");
  }
  absl::StrAppend(&html, "</dl>\n");
  for (const Section& section : report.sections) absl::StrAppend(&html, SectionHtml(section));
  return absl::StrCat(html, "</body>\n</html>\n");
}

}  // namespace moestro::bench
