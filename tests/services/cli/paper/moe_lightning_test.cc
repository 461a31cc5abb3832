// `moestro paper moe-lightning`, on the machines of deploy/hardware.
#include "services/cli/paper/moe_lightning/moe_lightning.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "services/cli/paper/moe_lightning/published.h"
#include "tests/services/cli/cli_fixture.h"

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;

constexpr char kDirectory[] = "deploy/hardware";

const Figure& FigureOf(const PaperReport& report, const std::string& id) {
  for (const Figure& figure : report.figures) {
    if (figure.id == id) return figure;
  }
  ADD_FAILURE() << id;
  return report.figures.front();
}

const PaperReport& Report() {
  static const auto* const report =
      new PaperReport(MakeMoeLightningReport(ReadMoeLightningMachines(kDirectory).value(), ""));
  return *report;
}

double OursOf(const std::string& figure, const std::string& what) {
  for (const Claim& claim : FigureOf(Report(), figure).claims) {
    if (claim.what == what) return claim.ours;
  }
  ADD_FAILURE() << what;
  return 0;
}

// Seconds of the runs, as logged. The batch is what they give.
TEST(MoeLightning, RequestsAreThoseOfTheLogs) {
  const std::map<std::string, std::vector<double>> logged = {{"S1 (p)", {1033.27, 1344.18, 2141.66, 3801.77}},
                                                             {"S1", {1571.90, 1956.09, 3007.00, 3924.57}},
                                                             {"S2 (p)", {648.173, 968.985, 1432.82, 2436.23}},
                                                             {"S2", {708.428, 785.81, 1534.53, 2378.24}},
                                                             {"S6 (p)", {1498.06, 2199.18, 4161.38, 7067.78}},
                                                             {"S7 (p)", {1393.29, 1752.66, 2635.32, 4641.34}},
                                                             {"S8", {2493.31, 4684.06, 9680.29, 13302.4}},
                                                             {"S9", {1946.57, 2759.65, 3763.77, 7905.47}},
                                                             {"S1 reasoning (p)", {1776.15}},
                                                             {"S2 reasoning (p)", {712.309}},
                                                             {"S2 summarisation (p)", {1487.28}}};
  size_t runs = 0;
  for (const PublishedSetting& setting : PublishedSettings()) {
    runs += setting.runs.size();
    if (!logged.contains(setting.name)) {
      // Its log gives 75.3 requests; Table 4 has 4 * 19.
      EXPECT_STREQ(setting.name, "S1 summarisation (p)");
      EXPECT_EQ(setting.runs[0].requests, 4 * 19);
      continue;
    }
    for (size_t i = 0; i < setting.runs.size(); ++i) {
      const PublishedRun& run = setting.runs[i];
      EXPECT_NEAR(logged.at(setting.name)[i] * run.tokens_per_second / run.generate, static_cast<double>(run.requests),
                  0.5)
          << setting.name;
      // Requests that were put off leave the last micro-batches short.
      EXPECT_NEAR(static_cast<double>(run.micro_batch * run.micro_batches()), static_cast<double>(run.requests),
                  0.02 * static_cast<double>(run.requests))
          << setting.name;
    }
  }
  EXPECT_EQ(runs, 36u);
}

TEST(MoeLightning, ExactClaimsAreMet) {
  std::set<std::string> figures;
  for (const Figure& figure : Report().figures) {
    for (const Claim& claim : figure.claims) {
      if (claim.basis != Basis::kExact) continue;
      figures.insert(figure.id);
      EXPECT_EQ(VerdictOf(claim), Verdict::kMet) << claim.what;
      EXPECT_NEAR(claim.ours / claim.paper, 1, 0.005) << claim.what;
    }
  }
  EXPECT_EQ(figures, (std::set<std::string>{"rooflines", "batches"}));
}

// At least 20 without an input that was chosen by the rows.
TEST(MoeLightning, BatchesAsPublished) {
  EXPECT_EQ(OursOf("batches", "batches of 36 that are equal"), 17);
  EXPECT_EQ(OursOf("batches", "batches of 36 that are equal, or as fast by the model"), 20);
  EXPECT_EQ(OursOf("batches", "the same with hosts of 399.3 GiB in S6 to S9"), 25);
  EXPECT_EQ(OursOf("batches", "the same with 401.3 GiB"), 28);
  EXPECT_EQ(OursOf("batches", "the same with the other form of prefill's memory in S2 (p)"), 31);
}

// More memory never makes either system slower, but for a last micro-batch. With any memory that both run in, (p) is
// faster.
TEST(MoeLightning, ThroughputOverMemory) {
  const Chart& chart = FigureOf(Report(), "1").charts[0];
  ASSERT_EQ(chart.curves.size(), 2u);
  for (const Chart::Curve& curve : chart.curves) {
    ASSERT_GT(curve.points.size(), 40u) << curve.name;
    EXPECT_GT(curve.points[0].x, 8 * 32 * 0.352 / 0.8) << "GB of Mixtral's experts, in the share that may be filled";
    for (size_t i = 1; i < curve.points.size(); ++i) {
      EXPECT_GE(curve.points[i].y, 0.999 * curve.points[i - 1].y) << curve.name << " " << curve.points[i].x;
    }
  }
  for (const Chart::Point& flexgen : chart.curves[1].points) {
    const auto ours = std::ranges::find(chart.curves[0].points, flexgen.x, &Chart::Point::x);
    ASSERT_NE(ours, chart.curves[0].points.end()) << flexgen.x;
    EXPECT_GT(ours->y, flexgen.y) << flexgen.x;
  }
}

// What is fitted is not judged, and what is judged was not fitted.
TEST(MoeLightning, FittedRowsAreNotCounted) {
  std::set<std::string> fitted;
  for (const Claim& claim : FigureOf(Report(), "throughput").claims) {
    if (claim.basis != Basis::kFitted) continue;
    fitted.insert(claim.what);
    EXPECT_EQ(VerdictOf(claim), Verdict::kFitted);
    EXPECT_TRUE(std::isnan(Deviation(claim)));
  }
  EXPECT_EQ(fitted.size(), 16u);  // four of each of S1 (p) and S2 (p), two of each of S6 to S9
  EXPECT_FALSE(fitted.contains("tokens/s, S1, 32 generated"));
  EXPECT_FALSE(fitted.contains("tokens/s, S6 (p), 64 generated"));
  size_t latencies = 0;
  for (const Claim& claim : FigureOf(Report(), "9").claims) latencies += claim.basis == Basis::kFitted;
  EXPECT_EQ(latencies, 11u);  // one micro-batch of four
}

TEST(MoeLightning, RowsThatWereNotFitted) {
  const auto deviation = [](const std::string& group) {
    for (const std::string& note : Report().notes) {
      if (note.starts_with(group)) return note.substr(note.find("deviate by"));
    }
    return std::string();
  };
  EXPECT_THAT(deviation("mixtral-8x7b on gcp-t4"), HasSubstr(" 33 %"));
  EXPECT_THAT(deviation("mixtral-8x7b on gcp-l4"), HasSubstr(" 17 %"));
  EXPECT_THAT(deviation("mixtral-8x22b on gcp-2xt4"), HasSubstr(" 6 %"));
  EXPECT_THAT(deviation("mixtral-8x22b on gcp-4xt4"), HasSubstr(" 4 %"));
  EXPECT_THAT(deviation("dbrx on gcp-2xt4"), HasSubstr(" 26 %"));
  EXPECT_THAT(deviation("dbrx on gcp-4xt4"), HasSubstr(" 10 %"));
}

// Faster links and slower hosts keep attention on the device.
TEST(MoeLightning, AttentionMovesInOneDirection) {
  const std::vector<std::vector<double>> first = {{8, 8, 9, 9, 9}, {8, 9, 9, 10, 10}};  // k, by link
  size_t charts = 0;
  for (const Chart& chart : FigureOf(Report(), "10").charts) {
    if (chart.y_label == "share") {
      for (size_t i = 1; i < chart.curves.size(); ++i) {
        EXPECT_GE(chart.curves[i].points[0].y, chart.curves[i - 1].points[0].y);
      }
      continue;
    }
    ASSERT_EQ(chart.curves.size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      ASSERT_EQ(chart.curves[i].points.size(), 10u);
      for (const Chart::Point& point : chart.curves[i].points) {
        EXPECT_EQ(point.y, point.x >= first[charts][i] ? 1 : 0) << chart.title << " " << chart.curves[i].name;
      }
    }
    ++charts;
  }
  EXPECT_EQ(charts, 2u);
}

TEST(MoeLightning, WhatIsMissed) {
  std::set<std::string> missed;
  for (const Figure& figure : Report().figures) {
    for (const Claim& claim : figure.claims) {
      if (VerdictOf(claim) == Verdict::kMiss) missed.insert(claim.what);
    }
  }
  EXPECT_EQ(missed,
            (std::set<std::string>{"the host's memory at 95 % of the highest throughput, FlexGen's policy over (p)",
                                   "batches of 36 that are equal",
                                   "batches of 36 that are equal, or as fast by the model",
                                   "requests, S1 reasoning (p), 50 generated (as fast)",
                                   "requests, S2 summarisation (p), 64 generated",
                                   "requests, S7 (p), 256 generated",
                                   "requests, S8, 256 generated",
                                   "requests, S9, 128 generated",
                                   "tokens/s, S1, 32 generated",
                                   "tokens/s, S1, 64 generated",
                                   "tokens/s, S1, 128 generated",
                                   "tokens/s, S1 reasoning (p), 50 generated",
                                   "tokens/s, S2, 32 generated",
                                   "tokens/s, S2, 128 generated",
                                   "tokens/s, S8, 128 generated",
                                   "tokens/s, S1 (p), 32 generated: FlexGen",
                                   "tokens/s, S1 (p), 64 generated: FlexGen",
                                   "tokens/s, S1 (p), 128 generated: FlexGen",
                                   "tokens/s, S1 (p), 256 generated: FlexGen",
                                   "tokens/s, S1 reasoning (p), 50 generated: FlexGen(c)",
                                   "tokens/s, S1 reasoning (p), 50 generated: FlexGen",
                                   "tokens/s, S1 reasoning (p), 50 generated: DeepSpeed",
                                   "tokens/s, S2 reasoning (p), 50 generated: FlexGen(c)",
                                   "tokens/s, S2 reasoning (p), 50 generated: DeepSpeed",
                                   "tokens/s, S1 summarisation (p), 64 generated: FlexGen(c)",
                                   "tokens/s, S1 summarisation (p), 64 generated: DeepSpeed",
                                   "tokens/s, S2 summarisation (p), 64 generated: FlexGen(c)",
                                   "tokens/s, S2 summarisation (p), 64 generated: DeepSpeed",
                                   "tokens/s, S1 (p), 128 generated: FlexGen with this policy and more requests",
                                   "ms, attention to 256 positions, micro-batch 32"}));
}

// Table 4: MoE-Lightning, FlexGen, FlexGen with attention on the host, DeepSpeed, as published.
TEST(MoeLightning, SystemsComeInThePublishedOrder) {
  for (const std::string setting : {"S1 reasoning (p), 50 generated", "S2 reasoning (p), 50 generated",
                                    "S1 summarisation (p), 64 generated", "S2 summarisation (p), 64 generated"}) {
    const std::string what = "tokens/s, " + setting;
    EXPECT_GT(OursOf("throughput", what), OursOf("baselines", what + ": FlexGen")) << setting;
    EXPECT_GT(OursOf("baselines", what + ": FlexGen"), OursOf("baselines", what + ": FlexGen(c)")) << setting;
    EXPECT_GT(OursOf("baselines", what + ": FlexGen(c)"), OursOf("baselines", what + ": DeepSpeed")) << setting;
  }
}

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_F(CliTest, PaperMoeLightning) {
  const std::string first = directory_ + "/first", second = directory_ + "/second";
  const Result once = Run({"paper", "moe-lightning", "--out", first}, /*with_server=*/false);
  ASSERT_TRUE(once.status.ok()) << once.status;
  const Result again = Run({"paper", "moe-lightning", "--out", second}, /*with_server=*/false);
  ASSERT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(once.out, again.out);
  for (const char* file : {"/claims.csv", "/points.csv", "/index.html"}) {
    EXPECT_FALSE(Contents(first + file).empty()) << file;
    EXPECT_EQ(Contents(first + file), Contents(second + file)) << file;
  }
  EXPECT_LT(once.out.find("Not met, the farthest first"), once.out.find("Figures 4 and 5"));
  const Result one = Run({"paper", "moe-lightning", "--figure", "10"}, /*with_server=*/false);
  EXPECT_THAT(one.out, ::testing::Not(HasSubstr("Figures 4 and 5")));
  EXPECT_THAT(Run({"paper", "moe-lightning", "--machines", directory_}, /*with_server=*/false).status.message(),
              HasSubstr("--machines: "));
}

}  // namespace
}  // namespace moestro::cli
