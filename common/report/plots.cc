#include "common/report/plots.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/report/html.h"
#include "common/report/number.h"

namespace moestro {
namespace {

// In SVG units; the page scales them.
constexpr double kWidth = 760;
constexpr double kLeft = 62;  // room for the numbers of the y axis
constexpr double kRight = 12;
constexpr double kTop = 20;
constexpr double kPlotHeight = 200;
constexpr double kBottom = 40;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr int kTicks = 4;
constexpr size_t kMaxPoints = 400;  // about two units apart
constexpr size_t kColours = 6;      // of the style sheet

std::string Text(double x, double y, const char* anchor, const std::string& text, const char* style = "soft") {
  return absl::StrFormat("<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", style, x, y, anchor,
                         EscapeHtml(text));
}

std::string Open(const std::string& title) {
  return absl::StrCat("<figure><figcaption>", EscapeHtml(title), "</figcaption>\n",
                      absl::StrFormat("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n", kWidth,
                                      kTop + kPlotHeight + kBottom, EscapeHtml(title)));
}

std::string YAxis(double end) {
  std::string svg;
  for (int tick = 0; tick <= kTicks; ++tick) {
    const double y = kTop + kPlotHeight * (kTicks - tick) / kTicks;
    absl::StrAppend(&svg,
                    absl::StrFormat("<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", kLeft,
                                    y, kLeft + kPlotWidth, y),
                    Text(kLeft - 6, y + 4, "end", ShortNumber(end * tick / kTicks)));
  }
  return svg;
}

template <typename Series>
std::string Close(const std::vector<Series>& series) {
  std::string html = "</svg>\n<div class=\"key\">";
  for (size_t i = 0; i < series.size(); ++i) {
    absl::StrAppend(&html, "<span><i class=\"s", i % kColours, "\"></i>", EscapeHtml(series[i].name), "</span>");
  }
  return absl::StrCat(html, "</div></figure>\n");
}

std::vector<LinePlot::Point> Thin(const std::vector<LinePlot::Point>& points) {
  if (points.size() <= kMaxPoints) return points;
  std::vector<LinePlot::Point> kept;
  for (size_t i = 0; i < kMaxPoints; ++i) kept.push_back(points[i * (points.size() - 1) / (kMaxPoints - 1)]);
  return kept;
}

}  // namespace

std::string ToSvg(const BarPlot& plot) {
  double largest = 0;
  for (const auto& series : plot.series) {
    for (const double value : series.values) {
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
  }
  if (plot.groups.empty() || largest == 0) return "";
  const double end = RoundAxisEnd(1.05 * largest);  // labels are above the bars
  const double group_width = kPlotWidth / static_cast<double>(plot.groups.size());
  const double bar_width = std::min(90.0, 0.8 * group_width / static_cast<double>(plot.series.size()));
  std::string svg = absl::StrCat(Open(plot.title), YAxis(end));
  for (size_t g = 0; g < plot.groups.size(); ++g) {
    const double centre = kLeft + group_width * (static_cast<double>(g) + 0.5);
    absl::StrAppend(&svg, Text(centre, kTop + kPlotHeight + 18, "middle", plot.groups[g], "label"));
    const double left = centre - bar_width * static_cast<double>(plot.series.size()) / 2;
    for (size_t s = 0; s < plot.series.size(); ++s) {
      const double value = plot.series[s].values[g];
      if (!std::isfinite(value)) continue;
      const double height = kPlotHeight * value / end;
      const double x = left + bar_width * static_cast<double>(s);
      absl::StrAppend(
          &svg,
          absl::StrFormat("<rect class=\"s%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                          static_cast<int>(s % kColours), x + 1, kTop + kPlotHeight - height, bar_width - 2, height),
          Text(x + bar_width / 2, kTop + kPlotHeight - height - 5, "middle", plot.series[s].labels[g], "label"));
    }
  }
  return absl::StrCat(svg, Close(plot.series));
}

std::string ToSvg(const LinePlot& plot) {
  double x_largest = 0, y_largest = 0;
  size_t longest = 0;
  for (const auto& series : plot.series) {
    longest = std::max(longest, series.points.size());
    for (const LinePlot::Point& point : series.points) {
      x_largest = std::max(x_largest, point.x);
      y_largest = std::max(y_largest, point.y);
    }
  }
  if (longest < 2) return "";
  const double x_end = RoundAxisEnd(x_largest / 1.05);  // no margin needed on the right
  const double y_end = RoundAxisEnd(y_largest);
  std::string svg = absl::StrCat(Open(plot.title), YAxis(y_end), Text(4, 12, "start", plot.y_label));
  for (int tick = 0; tick <= kTicks; ++tick) {
    absl::StrAppend(&svg, Text(kLeft + kPlotWidth * tick / kTicks, kTop + kPlotHeight + 16, "middle",
                               ShortNumber(x_end * tick / kTicks)));
  }
  absl::StrAppend(&svg, Text(kLeft + kPlotWidth / 2, kTop + kPlotHeight + 34, "middle", plot.x_label));
  for (size_t s = 0; s < plot.series.size(); ++s) {
    absl::StrAppend(&svg, "<polyline class=\"s", s % kColours, "\" points=\"");
    for (const LinePlot::Point& point : Thin(plot.series[s].points)) {
      absl::StrAppend(&svg, absl::StrFormat("%.1f,%.1f ", kLeft + kPlotWidth * point.x / x_end,
                                            kTop + kPlotHeight * (1 - point.y / y_end)));
    }
    absl::StrAppend(&svg, "\"/>\n");
  }
  return absl::StrCat(svg, Close(plot.series));
}

}  // namespace moestro
