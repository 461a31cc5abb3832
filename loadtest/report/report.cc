#include "loadtest/report/report.h"

#include "absl/strings/str_cat.h"
#include "common/report/build_info.h"
#include "common/report/html.h"

namespace moestro::loadtest {
namespace {

constexpr char kInterrupted[] = "Interrupted: measurements up to that point.";

std::string Title(const Report& report) { return absl::StrCat("moestro-loadtest ", report.workload); }

}  // namespace

nlohmann::json ReportJson(const Report& report) {
  nlohmann::json settings = nlohmann::json::object();
  for (const auto& [what, value] : report.facts) settings[what] = value;
  nlohmann::json json = {{"schema", kReportSchema},           {"workload", report.workload},
                         {"interrupted", report.interrupted}, {"revision", report.revision},
                         {"dirty", IsDirty(report.revision)}, {"date", report.date},
                         {"findings", report.findings},       {"settings", std::move(settings)}};
  json.update(report.data);
  return json;
}

std::string ReportMarkdown(const Report& report) {
  std::string text = absl::StrCat("# ", Title(report), "\n\n");
  if (report.interrupted) absl::StrAppend(&text, "**", kInterrupted, "**\n\n");
  for (const std::string& finding : report.findings) absl::StrAppend(&text, "- **", finding, "**\n");
  for (const auto& [what, value] : report.facts) absl::StrAppend(&text, "- ", what, ": ", value, "\n");
  for (const Section& section : report.sections) {
    absl::StrAppend(&text, "\n## ", section.title, "\n\n", section.about, "\n");
    for (const Table& table : section.tables) absl::StrAppend(&text, "\n", MarkdownTable(table));
  }
  return text;
}

std::string ReportHtml(const Report& report) {
  std::string html = absl::StrCat("<h1>", EscapeHtml(Title(report)), "</h1>\n");
  if (report.interrupted) absl::StrAppend(&html, "<p class=\"miss\">", kInterrupted, "</p>\n");
  for (const std::string& finding : report.findings)
    absl::StrAppend(&html, "<p><b>", EscapeHtml(finding), "</b></p>\n");
  absl::StrAppend(&html, HtmlFacts(report.facts));
  for (const Section& section : report.sections) {
    absl::StrAppend(&html, "<h2>", EscapeHtml(section.title), "</h2>\n<p>", EscapeHtml(section.about), "</p>\n");
    for (const std::string& plot : section.plots) absl::StrAppend(&html, plot);
    for (const Table& table : section.tables) absl::StrAppend(&html, HtmlTable(table));
  }
  return HtmlPage(Title(report), html);
}

}  // namespace moestro::loadtest
