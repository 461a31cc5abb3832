#include "services/cli/paper/report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "common/report/files.h"
#include "common/report/html.h"
#include "common/report/number.h"
#include "common/report/plots.h"
#include "common/report/table.h"

namespace moestro::cli {
namespace {

using Listed = std::pair<const Figure*, const Claim*>;

// Misses, then limits that are not kept; each by how far they are off.
std::vector<Listed> Unmet(const PaperReport& report) {
  std::vector<Listed> unmet;
  for (const Figure& figure : report.figures) {
    for (const Claim& claim : figure.claims) {
      if (VerdictOf(claim) <= Verdict::kNotMet) unmet.emplace_back(&figure, &claim);
    }
  }
  std::stable_sort(unmet.begin(), unmet.end(), [](const Listed& a, const Listed& b) {
    const Verdict first = VerdictOf(*a.second), second = VerdictOf(*b.second);
    return first != second ? first < second : Excess(*a.second) > Excess(*b.second);
  });
  return unmet;
}

int CountOf(const PaperReport& report, Verdict verdict) {
  int count = 0;
  for (const Figure& figure : report.figures) {
    count += static_cast<int>(std::count_if(figure.claims.begin(), figure.claims.end(),
                                            [&](const Claim& claim) { return VerdictOf(claim) == verdict; }));
  }
  return count;
}

std::string Summary(const PaperReport& report) {
  return absl::StrFormat(
      "%d claims are met within %.0f %%, %d are missed, %d limits are not kept but nearly; %d are fitted, %d open.",
      CountOf(report, Verdict::kMet), 100 * kMostDeviation, CountOf(report, Verdict::kMiss),
      CountOf(report, Verdict::kNotMet), CountOf(report, Verdict::kFitted), CountOf(report, Verdict::kOpen));
}

std::string Number(double value) { return std::isfinite(value) ? absl::StrFormat("%.5g", value) : "not reached"; }

std::string PaperText(const Claim& claim) {
  const char* prefix = claim.bound == Bound::kAtMost ? "<= " : claim.bound == Bound::kAtLeast ? ">= " : "";
  return prefix + Number(claim.paper);
}
std::string OursText(const Claim& claim) { return claim.basis == Basis::kOpen ? "-" : Number(claim.ours); }
std::string DeviationText(const Claim& claim) {
  const double deviation = Deviation(claim);
  return std::isnan(deviation) ? "" : absl::StrFormat("%+.1f %%", 100 * deviation);
}
std::string OriginText(const Claim& claim) {
  return claim.basis == Basis::kOpen ? "" : claim.basis == Basis::kExact ? "exact" : OriginName(claim.origin);
}
std::string PaperWayText(const Claim& claim) {
  if (!claim.paper_way) return "";
  return absl::StrCat(Number(*claim.paper_way), claim.paper_way_fitted ? " fitted" : "");
}

Table ToTable(const std::vector<Listed>& claims) {
  Table table{
      .columns = {"figure", "claim", "section", "kind", "verdict", "paper", "as built", "deviation", "paper's way"},
      .rows = {},
      .text_columns = 5};
  for (const auto& [figure, claim] : claims) {
    table.rows.push_back({figure->id, claim->what, claim->section, OriginText(*claim), VerdictName(VerdictOf(*claim)),
                          PaperText(*claim), OursText(*claim), DeviationText(*claim), PaperWayText(*claim)});
  }
  return table;
}

std::string ToText(const Table& table) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    size_t width = table.columns[i].size();
    for (const auto& row : table.rows) width = std::max(width, row[i].size());
    widths.push_back(width);
  }
  std::string text;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      const int width = static_cast<int>(widths[i]);
      absl::StrAppendFormat(&line, "%s%*s", i == 0 ? "" : "  ", i < table.text_columns ? -width : width, cells[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  };
  add(table.columns);
  for (const auto& row : table.rows) add(row);
  return text;
}

std::vector<Listed> All(const Figure& figure) {
  std::vector<Listed> claims;
  for (const Claim& claim : figure.claims) claims.emplace_back(&figure, &claim);
  return claims;
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string CsvLine(const std::vector<std::string>& fields) {
  return absl::StrCat(
      absl::StrJoin(fields, ",",
                    [](std::string* out, const std::string& field) { absl::StrAppend(out, CsvField(field)); }),
      "\n");
}

std::string CsvNumber(double value) { return std::isfinite(value) ? absl::StrFormat("%.6g", value) : ""; }

const char* BoundName(Bound bound) {
  return bound == Bound::kAtMost ? "at most" : bound == Bound::kAtLeast ? "at least" : "near";
}

std::string CurveName(const Chart::Curve& curve) {
  return absl::StrCat(curve.name, " (", OriginName(curve.origin), ")");
}

std::string ToSvg(const Chart& chart) {
  if (!chart.groups.empty()) {
    BarPlot plot{.title = chart.title, .groups = chart.groups, .series = {}};
    for (const Chart::Curve& curve : chart.curves) {
      BarPlot::Series series{.name = CurveName(curve),
                             .values = std::vector<double>(chart.groups.size(), std::nan("")),
                             .labels = std::vector<std::string>(chart.groups.size())};
      for (const Chart::Point& point : curve.points) {
        const auto group = static_cast<size_t>(point.x);
        series.values[group] = point.y;
        series.labels[group] = point.label.empty() ? ShortNumber(point.y) : point.label;
      }
      plot.series.push_back(std::move(series));
    }
    return moestro::ToSvg(plot);
  }
  LinePlot plot{.title = chart.title,
                .x_label = chart.x_label,
                .y_label = chart.y_label,
                .series = {},
                .log_x = chart.log_x,
                .log_y = chart.log_y};
  for (const Chart::Curve& curve : chart.curves) {
    LinePlot::Series series{
        .name = CurveName(curve), .points = {}, .labels = {}, .dashed = curve.origin == Origin::kCited};
    for (const Chart::Point& point : curve.points) {
      series.points.push_back({point.x, point.y});
      if (curve.dots) series.labels.push_back(point.label);
    }
    plot.series.push_back(std::move(series));
  }
  return moestro::ToSvg(plot);
}

}  // namespace

std::string ReportText(const PaperReport& report) {
  std::string text = absl::StrCat(report.title, "\n");
  for (const std::string& note : report.notes) absl::StrAppend(&text, note, "\n");
  absl::StrAppend(&text, "\n", Summary(report), "\n");
  const std::vector<Listed> unmet = Unmet(report);
  if (!unmet.empty()) absl::StrAppend(&text, "\nNot met, the farthest first\n", ToText(ToTable(unmet)));
  for (const Figure& figure : report.figures) {
    absl::StrAppend(&text, "\n", figure.title, "\n");
    if (!figure.claims.empty()) absl::StrAppend(&text, ToText(ToTable(All(figure))));
  }
  return text;
}

std::string ClaimsCsv(const PaperReport& report) {
  std::string csv = "figure,claim,section,bound,paper,as_built,origin,basis,deviation,verdict,paper_way\n";
  const auto add = [&](const Figure& figure, const Claim& claim) {
    constexpr const char* kBases[] = {"predicted", "fitted", "exact", "open"};
    const bool open = claim.basis == Basis::kOpen;
    absl::StrAppend(
        &csv, CsvLine({figure.id, claim.what, claim.section, BoundName(claim.bound), CsvNumber(claim.paper),
                       open ? "" : CsvNumber(claim.ours), open ? "" : OriginName(claim.origin),
                       kBases[static_cast<int>(claim.basis)], CsvNumber(Deviation(claim)),
                       VerdictName(VerdictOf(claim)), claim.paper_way ? CsvNumber(*claim.paper_way) : std::string()}));
  };
  for (const auto& [figure, claim] : Unmet(report)) add(*figure, *claim);
  for (const Figure& figure : report.figures) {
    for (const Claim& claim : figure.claims) {
      if (VerdictOf(claim) > Verdict::kNotMet) add(figure, claim);
    }
  }
  return csv;
}

std::string PointsCsv(const PaperReport& report) {
  std::string csv = "figure,chart,curve,origin,x,y,label\n";
  for (const Figure& figure : report.figures) {
    for (const Chart& chart : figure.charts) {
      for (const Chart::Curve& curve : chart.curves) {
        for (const Chart::Point& point : curve.points) {
          const std::string x = chart.groups.empty() ? CsvNumber(point.x) : chart.groups[static_cast<size_t>(point.x)];
          absl::StrAppend(&csv, CsvLine({figure.id, chart.title, curve.name, OriginName(curve.origin), x,
                                         CsvNumber(point.y), point.label}));
        }
      }
    }
  }
  return csv;
}

std::string ReportPage(const PaperReport& report) {
  std::string body = absl::StrCat("<h1>", EscapeHtml(report.title), "</h1>\n");
  const auto paragraph = [&](const std::string& text) { absl::StrAppend(&body, "<p>", EscapeHtml(text), "</p>\n"); };
  for (const std::string& note : report.notes) paragraph(note);
  paragraph(Summary(report));
  const std::vector<Listed> unmet = Unmet(report);
  if (!unmet.empty()) {
    absl::StrAppend(&body, "<h2>Not met, the farthest first</h2>\n", HtmlTable(ToTable(unmet)));
  }
  for (const Figure& figure : report.figures) {
    absl::StrAppend(&body, "<h2>", EscapeHtml(figure.title), "</h2>\n");
    paragraph(figure.about);
    for (const Chart& chart : figure.charts) absl::StrAppend(&body, ToSvg(chart));
    if (!figure.claims.empty()) absl::StrAppend(&body, HtmlTable(ToTable(All(figure))));
  }
  return HtmlPage(report.title, body);
}

absl::Status WriteReport(const PaperReport& report, const std::filesystem::path& directory) {
  MOE_RETURN_IF_ERROR(MakeReportDirectory("--out", directory));
  MOE_RETURN_IF_ERROR(WriteReportFile("--out", directory / "claims.csv", ClaimsCsv(report)));
  MOE_RETURN_IF_ERROR(WriteReportFile("--out", directory / "points.csv", PointsCsv(report)));
  return WriteReportFile("--out", directory / "index.html", ReportPage(report));
}

}  // namespace moestro::cli
