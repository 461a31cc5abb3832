#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "common/report/files.h"
#include "common/report/html.h"
#include "common/report/number.h"
#include "common/report/plots.h"
#include "common/report/table.h"

namespace moestro {
namespace {

using testing::HasSubstr;
using testing::Not;

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(NumberTest, HumanNumbers) {
  EXPECT_EQ(HumanBytes(37), "37 B");
  EXPECT_EQ(HumanBytes(int64_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(HumanCount(671026419200), "671.026 B");
  EXPECT_EQ(HumanCount(28300000), "28.3 M");
  EXPECT_EQ(HumanCount(12), "12");
}

TEST(ShortNumber, KeepsThreeDigits) {
  EXPECT_EQ(ShortNumber(0.968), "0.97");
  EXPECT_EQ(ShortNumber(12.34), "12.3");
  EXPECT_EQ(ShortNumber(1234.5), "1234");
  EXPECT_EQ(ShortNumber(1.0 / 0.0), "-");
}

TEST(RoundAxisEnd, IsRoundAndLeavesRoom) {
  EXPECT_DOUBLE_EQ(RoundAxisEnd(1), 1.2);
  EXPECT_DOUBLE_EQ(RoundAxisEnd(430), 500);
  EXPECT_DOUBLE_EQ(RoundAxisEnd(0.0078), 0.01);
  EXPECT_DOUBLE_EQ(RoundAxisEnd(0), 1);
}

TEST(Table, RendersAsMarkdownAndHtml) {
  const Table table{.columns = {"what", "n"}, .rows = {{"a|b<c", "1"}}};
  EXPECT_EQ(MarkdownTable(table), "| what | n |\n|---|---:|\n| a\\|b<c | 1 |\n");
  EXPECT_THAT(HtmlTable(table), HasSubstr("<td>a|b&lt;c</td><td class=\"number\">1</td>"));
}

TEST(BarPlot, DrawsAndLabelsEveryValueButNaN) {
  const BarPlot plot{.title = "T <1>",
                     .groups = {"1P", "1D"},
                     .series = {{.name = "a", .values = {1, std::nan("")}, .labels = {"3 s", ""}},
                                {.name = "b", .values = {2, 0.5}, .labels = {"6 s", "1 s"}}}};
  const std::string svg = ToSvg(plot);
  EXPECT_EQ(Count(svg, "<rect"), 3);
  EXPECT_THAT(svg, HasSubstr(">6 s</text>"));
  EXPECT_THAT(svg, HasSubstr("T &lt;1&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_EQ(ToSvg(BarPlot{.title = "empty", .groups = {}, .series = {}}), "");
}

TEST(LinePlot, ThinsLongSeriesAndKeepsTheirEnds) {
  LinePlot plot{.title = "long", .x_label = "x", .y_label = "y", .series = {{.name = "s", .points = {}}}};
  EXPECT_EQ(ToSvg(plot), "");
  for (int i = 0; i <= 10000; ++i) plot.series[0].points.push_back({.x = i / 100.0, .y = 1});
  const std::string svg = ToSvg(plot);
  const std::string points = svg.substr(svg.find("points=\""), svg.find("\"/>\n</svg>") - svg.find("points=\""));
  EXPECT_EQ(Count(points, ","), 400);
  EXPECT_THAT(points, HasSubstr("points=\"62.0,"));
  EXPECT_THAT(points, HasSubstr(" 748.0,"));  // the right edge
}

TEST(LinePlot, HasLogarithmicAxesDotsAndDashes) {
  const LinePlot plot{.title = "log",
                      .x_label = "x",
                      .y_label = "y",
                      .series = {{.name = "line", .points = {{2, 8}, {4, 64}}, .dashed = true},
                                 {.name = "dots", .points = {{8, 16}}, .labels = {"a <b>"}}},
                      .log_x = true,
                      .log_y = true};
  const std::string svg = ToSvg(plot);
  // x: 2, 4, 8 from left to right; y: 8, 16, 32, 64 from bottom to top.
  EXPECT_THAT(svg, HasSubstr("stroke-dasharray=\"6 4\" points=\"62.0,220.0 405.0,20.0 \""));
  EXPECT_THAT(svg, HasSubstr("cx=\"748.0\" cy=\"153.3\""));
  EXPECT_THAT(svg, HasSubstr(">a &lt;b&gt;</text>"));
  for (const char* tick : {">2.00<", ">4.00<", ">8.00<", ">16.0<", ">32.0<", ">64.0<"}) {
    EXPECT_THAT(svg, HasSubstr(tick));
  }
}

TEST(HtmlPage, LoadsNothing) {
  const std::string page = HtmlPage("a & b", HtmlFacts({{"what", "<value>"}}));
  EXPECT_THAT(page, HasSubstr("<title>a &amp; b</title>"));
  EXPECT_THAT(page, HasSubstr("<dd>&lt;value&gt;</dd>"));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("href=")));
}

TEST(WriteReportFile, NamesTheFlag) {
  const absl::Status status = WriteReportFile("--out", "/proc/nothing/here", "text");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--out"));
}

}  // namespace
}  // namespace moestro
