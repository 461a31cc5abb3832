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

// Values along an axis. `At` gives a value's place, from 0 to 1.
class Axis {
 public:
  explicit Axis(double end) : end_(end) {
    for (int tick = 0; tick <= kTicks; ++tick) ticks_.push_back(end * tick / kTicks);
  }
  // Logarithmic, over powers of two around these values.
  Axis(double smallest, double largest)
      : log_(true), begin_(std::floor(std::log2(smallest))), end_(std::ceil(std::log2(largest))) {
    if (begin_ == end_) ++end_;
    const double step = std::ceil((end_ - begin_) / kMaxPowers);
    for (double power = begin_; power <= end_; power += step) ticks_.push_back(std::exp2(power));
  }

  const std::vector<double>& ticks() const { return ticks_; }
  double At(double value) const { return log_ ? (std::log2(value) - begin_) / (end_ - begin_) : value / end_; }

 private:
  static constexpr double kMaxPowers = 10;

  bool log_ = false;
  double begin_ = 0;  // of a logarithmic axis: the exponents
  double end_;
  std::vector<double> ticks_;
};

double PlaceX(const Axis& axis, double x) { return kLeft + kPlotWidth * axis.At(x); }
double PlaceY(const Axis& axis, double y) { return kTop + kPlotHeight * (1 - axis.At(y)); }

std::string YTicks(const Axis& axis) {
  std::string svg;
  for (const double tick : axis.ticks()) {
    const double y = PlaceY(axis, tick);
    absl::StrAppend(&svg,
                    absl::StrFormat("<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", kLeft,
                                    y, kLeft + kPlotWidth, y),
                    Text(kLeft - 6, y + 4, "end", ShortNumber(tick)));
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
  std::string svg = absl::StrCat(Open(plot.title), YTicks(Axis(end)));
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
  std::vector<double> xs, ys;
  size_t longest = 0;
  for (const auto& series : plot.series) {
    longest = std::max(longest, series.points.size());
    for (const LinePlot::Point& point : series.points) {
      xs.push_back(point.x);
      ys.push_back(point.y);
    }
  }
  if (longest < 2) return "";
  const auto [x_smallest, x_largest] = std::minmax_element(xs.begin(), xs.end());
  const auto [y_smallest, y_largest] = std::minmax_element(ys.begin(), ys.end());
  // No margin is needed on the right.
  const Axis x_axis = plot.log_x ? Axis(*x_smallest, *x_largest) : Axis(RoundAxisEnd(*x_largest / 1.05));
  const Axis y_axis = plot.log_y ? Axis(*y_smallest, *y_largest) : Axis(RoundAxisEnd(*y_largest));
  std::string svg = absl::StrCat(Open(plot.title), YTicks(y_axis), Text(4, 12, "start", plot.y_label));
  for (const double tick : x_axis.ticks()) {
    const bool last = tick == x_axis.ticks().back();
    absl::StrAppend(&svg, last ? Text(kWidth - 2, kTop + kPlotHeight + 16, "end", ShortNumber(tick))
                               : Text(PlaceX(x_axis, tick), kTop + kPlotHeight + 16, "middle", ShortNumber(tick)));
  }
  absl::StrAppend(&svg, Text(kLeft + kPlotWidth / 2, kTop + kPlotHeight + 34, "middle", plot.x_label));
  for (size_t s = 0; s < plot.series.size(); ++s) {
    const LinePlot::Series& series = plot.series[s];
    if (!series.labels.empty()) {
      // Above and below in turn, as neighbours would hide each other's texts.
      for (size_t i = 0; i < series.points.size(); ++i) {
        const double x = PlaceX(x_axis, series.points[i].x), y = PlaceY(y_axis, series.points[i].y);
        absl::StrAppend(&svg,
                        absl::StrFormat("<circle class=\"s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n",
                                        static_cast<int>(s % kColours), x, y),
                        Text(x, i % 2 == 0 ? y - 7 : y + 16, x > kLeft + 0.8 * kPlotWidth ? "end" : "start",
                             series.labels[i], "label"));
      }
      continue;
    }
    absl::StrAppend(&svg, "<polyline class=\"s", s % kColours, "\"", series.dashed ? " stroke-dasharray=\"6 4\"" : "",
                    " points=\"");
    for (const LinePlot::Point& point : Thin(series.points)) {
      absl::StrAppend(&svg, absl::StrFormat("%.1f,%.1f ", PlaceX(x_axis, point.x), PlaceY(y_axis, point.y)));
    }
    absl::StrAppend(&svg, "\"/>\n");
  }
  return absl::StrCat(svg, Close(plot.series));
}

}  // namespace moestro
