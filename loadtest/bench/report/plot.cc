#include "loadtest/bench/report/plot.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/report/html.h"
#include "common/report/number.h"

namespace moestro::bench {
namespace {

// In SVG units; the page scales them.
constexpr double kLabelWidth = 330;
constexpr double kPlotWidth = 560;
constexpr double kValueWidth = 110;
constexpr double kRowHeight = 26;
constexpr double kBarHeight = 14;
constexpr double kAxisHeight = 24;
constexpr size_t kMaxLabel = 52;  // characters that fit kLabelWidth

// At most kMaxLabel characters; cut between UTF-8 characters.
std::string Label(std::string text) {
  if (text.size() <= kMaxLabel) return text;
  size_t end = kMaxLabel - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::string Line(const char* style, double x1, double y1, double x2, double y2) {
  return absl::StrFormat("<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", style, x1, y1, x2,
                         y2);
}

std::string Bar(const Row& row, double y, double axis_end) {
  const auto x = [&](double ratio) { return kLabelWidth + kPlotWidth * std::min(ratio / axis_end, 1.0); };
  const double top = y + (kRowHeight - kBarHeight) / 2;
  const double middle = y + kRowHeight / 2;
  const std::string name = EscapeHtml(row.name);
  std::string svg = absl::StrFormat("<g><title>%s: %s of %s</title>\n", name, ShortNumber(row.ratio.median),
                                    EscapeHtml(row.reference->name));
  absl::StrAppend(&svg, absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", kLabelWidth - 8,
                                        middle + 4, EscapeHtml(Label(row.name))));
  absl::StrAppend(&svg,
                  absl::StrFormat("<rect class=\"bar %s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                                  Verdict(row), kLabelWidth, top, x(row.ratio.median) - kLabelWidth, kBarHeight));
  absl::StrAppend(&svg, Line("range", x(row.ratio.min), middle, x(row.ratio.max), middle));
  std::string value = ShortNumber(row.ratio.median);
  if (row.target) {
    absl::StrAppend(&svg, Line("target", x(*row.target), top - 4, x(*row.target), top + kBarHeight + 4));
    absl::StrAppend(&value, " / ", ShortNumber(*row.target));
  }
  return absl::StrCat(
      svg, absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", kLabelWidth + kPlotWidth + 10, middle + 4, value),
      "</g>\n");
}

}  // namespace

std::string RatioPlot(std::span<const Row> rows) {
  double largest = 0;
  double height = 0;
  for (const Row& row : rows) {
    if (!row.reference) continue;
    largest = std::max({largest, row.ratio.max, row.target.value_or(0)});
    height += kRowHeight;
  }
  if (height == 0) return "";
  const double end = RoundAxisEnd(std::max(largest, 1.0));
  std::string svg = absl::StrFormat("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"ratios\">\n",
                                    kLabelWidth + kPlotWidth + kValueWidth, height + kAxisHeight);
  constexpr int kTicks = 5;
  for (int tick = 0; tick <= kTicks; ++tick) {
    const double x = kLabelWidth + kPlotWidth * tick / kTicks;
    absl::StrAppend(&svg, Line("grid", x, 0, x, height),
                    absl::StrFormat("<text class=\"soft\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x,
                                    height + 16, ShortNumber(end * tick / kTicks)));
  }
  double y = 0;
  for (const Row& row : rows) {
    if (!row.reference) continue;
    absl::StrAppend(&svg, Bar(row, y, end));
    y += kRowHeight;
  }
  return absl::StrCat(svg, "</svg>\n");
}

}  // namespace moestro::bench
