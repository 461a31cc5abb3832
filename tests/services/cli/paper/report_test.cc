#include "services/cli/paper/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Claim Of(double paper, double ours, Bound bound = Bound::kNear, Basis basis = Basis::kPredicted) {
  return {.what = "x", .paper = paper, .bound = bound, .section = "1", .ours = ours, .basis = basis};
}

TEST(Claims, AreJudgedByTheirDeviation) {
  EXPECT_EQ(VerdictOf(Of(100, 114)), Verdict::kMet);
  EXPECT_EQ(VerdictOf(Of(100, 116)), Verdict::kMiss);
  EXPECT_EQ(VerdictOf(Of(100, 84)), Verdict::kMiss);
  EXPECT_EQ(VerdictOf(Of(100, kNotReached)), Verdict::kMiss);
  EXPECT_DOUBLE_EQ(Deviation(Of(100, 84)), -0.16);
}

// Better than a limit is no miss; a little worse is not met either.
TEST(Claims, OfLimitsCountWhatExceedsThem) {
  EXPECT_EQ(VerdictOf(Of(30, 10, Bound::kAtMost)), Verdict::kMet);
  EXPECT_EQ(VerdictOf(Of(30, 33, Bound::kAtMost)), Verdict::kNotMet);
  EXPECT_EQ(VerdictOf(Of(30, 36, Bound::kAtMost)), Verdict::kMiss);
  EXPECT_EQ(VerdictOf(Of(10, 50, Bound::kAtLeast)), Verdict::kMet);
  EXPECT_EQ(VerdictOf(Of(10, 9, Bound::kAtLeast)), Verdict::kNotMet);
  EXPECT_EQ(VerdictOf(Of(10, 5, Bound::kAtLeast)), Verdict::kMiss);
}

TEST(Claims, ExactOnesMayBeRoundedOnlyAndFittedOnesAreNotJudged) {
  EXPECT_EQ(VerdictOf(Of(11.3, 11.27, Bound::kNear, Basis::kExact)), Verdict::kMet);
  EXPECT_EQ(VerdictOf(Of(11.3, 11.5, Bound::kNear, Basis::kExact)), Verdict::kMiss);
  EXPECT_EQ(VerdictOf(Of(1, 1, Bound::kNear, Basis::kFitted)), Verdict::kFitted);
  EXPECT_TRUE(std::isnan(Deviation(Of(1, 2, Bound::kNear, Basis::kFitted))));
  EXPECT_EQ(VerdictOf(Of(1, kNotReached, Bound::kNear, Basis::kOpen)), Verdict::kOpen);
}

TEST(Claims, OfAFigureComeFromItsComparison) {
  const PaperComparison comparison = {
      .built = {{.what = "a", .paper = 2, .simulated = 3, .figure = "13", .section = "4.2"},
                {.what = "b", .paper = 2, .simulated = 2, .fitted = true, .figure = "14", .section = "1"}},
      .paper_way = {{.what = "a", .paper = 2, .simulated = 2.5, .fitted = true, .figure = "13", .section = "4.2"},
                    {.what = "b", .paper = 2, .simulated = 2, .figure = "14", .section = "1"}}};
  Figure figure{.id = "13", .title = "", .about = ""};
  AddClaims(comparison, figure);
  ASSERT_EQ(figure.claims.size(), 1u);
  EXPECT_EQ(figure.claims[0].what, "a");
  EXPECT_EQ(figure.claims[0].ours, 3);
  EXPECT_EQ(figure.claims[0].paper_way, 2.5);
  EXPECT_TRUE(figure.claims[0].paper_way_fitted);
}

PaperReport Report() {
  Figure one{.id = "1",
             .title = "Figure 1: one",
             .about = "About <it>.",
             .claims = {Of(100, 101), Of(100, 120), Of(30, 31, Bound::kAtMost)},
             .charts = {{.title = "c",
                         .x_label = "x",
                         .y_label = "y",
                         .curves = {{.name = "ours", .points = {{1, 2}, {2, 4}}},
                                    {.name = "theirs", .origin = Origin::kCited, .points = {{1, 1}, {2, 2}}}}}}};
  one.claims[1].what = "near, by far";
  Figure two{.id = "2",
             .title = "Figure 2: two",
             .about = "",
             .claims = {Of(10, 30), Of(5, kNotReached, Bound::kNear, Basis::kOpen)},
             .charts = {{.title = "b",
                         .x_label = "",
                         .y_label = "",
                         .groups = {"1P", "1D"},
                         .curves = {{.name = "bars", .origin = Origin::kMeasured, .points = {{1, 3, "3 s"}}}}}}};
  two.claims[0].what = "the worst";
  return {.name = "test", .title = "A \"paper\"", .notes = {"A note."}, .figures = {one, two}};
}

TEST(Report, HasMissesFirstAndThenAll) {
  const std::string text = ReportText(Report());
  EXPECT_THAT(text, HasSubstr("1 claims are met within 15 %, 2 are missed, 1 limits are not kept but nearly; 0 are "
                              "fitted, 1 open."));
  const size_t worst = text.find("the worst"), second = text.find("near, by far"), nearly = text.find("not met"),
               figures = text.find("Figure 1: one");
  EXPECT_LT(worst, second);
  EXPECT_LT(second, nearly);
  EXPECT_LT(nearly, figures);
  EXPECT_NE(text.find("the worst", figures), std::string::npos);
}

TEST(Report, WritesClaimsAndPointsForSpreadsheets) {
  EXPECT_EQ(ClaimsCsv(Report()),
            "figure,claim,section,bound,paper,as_built,origin,basis,deviation,verdict,paper_way\n"
            "2,the worst,1,near,10,30,simulated,predicted,2,miss,\n"
            "1,\"near, by far\",1,near,100,120,simulated,predicted,0.2,miss,\n"
            "1,x,1,at most,30,31,simulated,predicted,0.0333333,not met,\n"
            "1,x,1,near,100,101,simulated,predicted,0.01,met,\n"
            "2,x,1,near,5,,,open,,open,\n");
  EXPECT_EQ(PointsCsv(Report()),
            "figure,chart,curve,origin,x,y,label\n"
            "1,c,ours,simulated,1,2,\n"
            "1,c,ours,simulated,2,4,\n"
            "1,c,theirs,cited,1,1,\n"
            "1,c,theirs,cited,2,2,\n"
            "2,b,bars,measured,1D,3,3 s\n");
}

TEST(Report, IsOnePageThatLoadsNothing) {
  const std::string page = ReportPage(Report());
  EXPECT_THAT(page, HasSubstr("<title>A &quot;paper&quot;</title>"));
  EXPECT_THAT(page, HasSubstr("About &lt;it&gt;."));
  EXPECT_THAT(page, HasSubstr("ours (simulated)"));
  EXPECT_THAT(page, HasSubstr("theirs (cited)"));
  EXPECT_THAT(page, HasSubstr("stroke-dasharray"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  for (const char* loads : {"<script", "src=", "href=", "url("}) EXPECT_THAT(page, Not(HasSubstr(loads)));
  EXPECT_EQ(page, ReportPage(Report()));
}

TEST(Report, NamesTheFlagWhereItCannotBeWritten) {
  const absl::Status status = WriteReport(Report(), "/proc/nothing/here");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--out"));
}

}  // namespace
}  // namespace moestro::cli
