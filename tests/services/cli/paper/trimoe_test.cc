// `moestro paper trimoe`, on the machine of deploy/hardware.
#include "services/cli/paper/trimoe/trimoe.h"

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "services/cli/paper/trimoe/systems.h"
#include "tests/services/cli/cli_fixture.h"

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kBatch = 512;

const NearDataMachine& Machine() {
  static const auto* const machine = new NearDataMachine(ReadTriMoeMachine("deploy/hardware").value());
  return *machine;
}

const PaperReport& Report() {
  static const auto* const report = new PaperReport(MakeTriMoeReport(Machine(), experts::Contention::kInternal, ""));
  return *report;
}

const Claim& ClaimOf(const std::string& what) {
  for (const Figure& figure : Report().figures) {
    for (const Claim& claim : figure.claims) {
      if (claim.what == what) return claim;
    }
  }
  ADD_FAILURE() << what;
  return Report().figures[0].claims[0];
}

TriMoeStudy& Study() {
  static auto* const study = new TriMoeStudy(Machine(), experts::Contention::kInternal);
  return *study;
}

const TriMoeModel& Qwen() { return TriMoeModels()[1]; }

// A second time, from the paper's text.
TEST(TriMoe, ValuesOfThePaper) {
  const std::map<std::string, double> values = {{"GiB of routed experts, DeepSeek-V2", 422},
                                                {"GiB of routed experts, Qwen3-235B-A22B", 423},
                                                {"GiB of routed experts, GLM-4.5-Air", 190},
                                                {"time of the DIMMs with warm experts over without", 7},
                                                {"KB of averages and places, DeepSeek-V2", 38},
                                                {"best baseline over TriMoE, the model of the greatest average", 2.83},
                                                {"best baseline over TriMoE, the model of the least average", 2.12},
                                                {"throughput over the strongest baseline, DeepSeek-V2", 2.78},
                                                {"throughput over the strongest baseline, Qwen3-235B-A22B", 2.22},
                                                {"throughput over the strongest baseline, GLM-4.5-Air", 2.09},
                                                {"share of time, GPU of Klotski", .286},
                                                {"share of time, GPU of En-KTransformers", .576},
                                                {"share of time, CPU of En-KTransformers", .42},
                                                {"share of time, GPU of MoNDE", .339},
                                                {"share of time, DIMMs of MoNDE", .701},
                                                {"share of time, GPU of TriMoE", .66},
                                                {"share of time, CPU of TriMoE", .749},
                                                {"share of time, DIMMs of TriMoE", .878},
                                                {"share of time, mean of TriMoE's domains", .762},
                                                {"gain of + CPU", 1.75},
                                                {"gain of + refinement", 1.28},
                                                {"gain of + relayout", 1.16},
                                                {"best baseline over TriMoE, batch 128", 2.72},
                                                {"best baseline over TriMoE, batch 64", 2.18},
                                                {"best baseline over TriMoE, batch 32", 1.82},
                                                {"ms of four experts over DIMM-Link, DeepSeek-V2", .63},
                                                {"ms of attention and dense part, the window, Qwen3-235B-A22B", .68},
                                                {"time that migrations add, Qwen3-235B-A22B", .033},
                                                {"migrations by DIMM-Link over those by the CPU", 62}};
  for (const auto& [what, value] : values) EXPECT_EQ(ClaimOf(what).paper, value) << what;
}

// What is fitted is not judged, and no speed is fitted.
TEST(TriMoe, FittedRowsAreNotCounted) {
  std::set<std::string> fitted;
  for (const Figure& figure : Report().figures) {
    for (const Claim& claim : figure.claims) {
      if (claim.basis != Basis::kFitted) continue;
      fitted.insert(claim.what);
      EXPECT_EQ(VerdictOf(claim), Verdict::kFitted);
      EXPECT_TRUE(std::isnan(Deviation(claim)));
      EXPECT_NEAR(claim.ours / claim.paper, 1, 0.005) << claim.what;
    }
  }
  std::set<std::string> expected = {"ms of four experts over DIMM-Link, DeepSeek-V2"};
  for (const TriMoeModel& model : TriMoeModels()) {
    expected.insert(std::string("share of tokens on the coldest 70 %, ") + model.title);
    expected.insert(std::string("experts that averages class rightly, ") + model.title);
  }
  EXPECT_EQ(fitted, expected);
}

TEST(TriMoe, ExactClaimsAreMet) {
  int exact = 0;
  for (const Claim& claim : Report().figures[0].claims) {
    if (claim.basis != Basis::kExact) continue;
    ++exact;
    EXPECT_EQ(VerdictOf(claim), Verdict::kMet) << claim.what;
  }
  EXPECT_EQ(exact, 3);
}

TEST(TriMoe, WhatIsMissed) {
  std::set<std::string> missed, not_met;
  for (const Figure& figure : Report().figures) {
    for (const Claim& claim : figure.claims) {
      if (VerdictOf(claim) == Verdict::kMiss) missed.insert(claim.what);
      if (VerdictOf(claim) == Verdict::kNotMet) not_met.insert(claim.what);
    }
  }
  EXPECT_EQ(missed, (std::set<std::string>{"best baseline over TriMoE, batch 128",
                                           "best baseline over TriMoE, batch 32",
                                           "best baseline over TriMoE, batch 64",
                                           "best baseline over TriMoE, the model of the greatest average",
                                           "best baseline over TriMoE, the model of the least average",
                                           "gain of + CPU",
                                           "gain of + refinement",
                                           "gain of + relayout",
                                           "ms of attention and dense part, the window, GLM-4.5-Air",
                                           "ms of attention and dense part, the window, Qwen3-235B-A22B",
                                           "pairs of these eight in the printed order",
                                           "share of time, CPU of En-KTransformers",
                                           "share of time, CPU of TriMoE",
                                           "share of time, DIMMs of MoNDE",
                                           "share of time, DIMMs of TriMoE",
                                           "share of time, GPU of En-KTransformers",
                                           "share of time, GPU of Klotski",
                                           "share of time, GPU of MoNDE",
                                           "share of time, GPU of TriMoE",
                                           "share of time, mean of TriMoE's domains",
                                           "throughput over the strongest baseline, DeepSeek-V2",
                                           "throughput over the strongest baseline, GLM-4.5-Air",
                                           "throughput over the strongest baseline, Qwen3-235B-A22B",
                                           "time of the DIMMs with warm experts over without"}));
  EXPECT_EQ(not_met,
            (std::set<std::string>{"experts that averages want in the right domain, DeepSeek-V2",
                                   "experts that averages want in the right domain, GLM-4.5-Air",
                                   "experts that averages want in the right domain, Qwen3-235B-A22B",
                                   "time that migrations add, DeepSeek-V2", "time that migrations add, Qwen3-235B-A22B",
                                   "time with 8 DIMMs over 16: not flat yet"}));
}

// A part that is switched off costs time.
TEST(TriMoe, EachPartCounts) {
  const double all = Study().Of(Qwen(), kBatch, kTriMoe).moe();
  const auto with = [&](experts::DomainSchedule schedule, bool prefetch, bool relayout) {
    return Study().With(Machine().rates, Qwen(), kBatch, {"", schedule, prefetch, relayout}).moe();
  };
  using Schedule = experts::DomainSchedule;
  EXPECT_GT(with(Schedule::kTriDomain, true, false), 1.02 * all) << "relayout";
  EXPECT_GT(with(Schedule::kTriDomain, false, true), 1.02 * all) << "prefetch";
  EXPECT_GT(with(Schedule::kGreedy, true, true), 1.02 * all) << "refinement";
  EXPECT_GT(with(Schedule::kMonde, true, true), 1.02 * all) << "the CPU";
  EXPECT_GT(with(Schedule::kEnhancedKTransformers, true, true), 1.02 * all) << "the DIMMs";
  TriMoeStudy host(Machine(), experts::Contention::kHost);
  EXPECT_NE(host.Of(Qwen(), kBatch, kTriMoe).moe(), all) << "contention";
}

TEST(TriMoe, WhatPlansDependOn) {
  const double all = Study().Of(Qwen(), kBatch, kTriMoe).moe();
  const auto with = [&](auto change) {
    experts::DomainRates rates = Machine().rates;
    change(rates);
    return Study().With(rates, Qwen(), kBatch, kTriMoe).moe();
  };
  EXPECT_GT(with([](auto& rates) { rates.cpu.flops_per_second /= 8; }), 1.1 * all);
  EXPECT_GT(with([](auto& rates) { rates.cpu.bytes_per_second /= 2; }), 1.1 * all);
  EXPECT_GT(with([](auto& rates) { rates.dimm.flops_per_second /= 4; }), 1.02 * all);
  EXPECT_GT(with([](auto& rates) { rates.bus_bytes_per_second /= 4; }), 1.02 * all);
  EXPECT_GT(with([](auto& rates) { rates.link_bytes_per_second /= 10; }), 1.02 * all);
}

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_F(CliTest, PaperTriMoe) {
  const std::string first = directory_ + "/first", second = directory_ + "/second";
  const Result once = Run({"paper", "trimoe", "--figure", "8", "--out", first}, /*with_server=*/false);
  ASSERT_TRUE(once.status.ok()) << once.status;
  const Result again = Run({"paper", "trimoe", "--figure", "8", "--out", second}, /*with_server=*/false);
  ASSERT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(once.out, again.out);
  for (const char* file : {"/claims.csv", "/points.csv", "/index.html"}) {
    EXPECT_FALSE(Contents(first + file).empty()) << file;
    EXPECT_EQ(Contents(first + file), Contents(second + file)) << file;
  }
  EXPECT_THAT(once.out, HasSubstr("One part after the other, GLM-4.5-Air"));
  EXPECT_THAT(once.out, Not(HasSubstr("Figure 6")));
  const Result host = Run({"paper", "trimoe", "--figure", "8", "--contention", "host"}, /*with_server=*/false);
  EXPECT_THAT(host.out, HasSubstr("at its channel's rate"));
  EXPECT_NE(host.out, once.out);
  EXPECT_THAT(Run({"paper", "trimoe", "--machines", directory_}, /*with_server=*/false).status.message(),
              HasSubstr("--machines: "));
}

TEST_F(CliTest, PaperTriMoeNamesWhatAMachineLacks) {
  nlohmann::json machine = nlohmann::json::parse(std::ifstream("deploy/hardware/h100-xeon8470-ndp.json"));
  const auto message = [&](const nlohmann::json& changed) {
    std::ofstream(directory_ + "/h100-xeon8470-ndp.json") << changed;
    return std::string(Run({"paper", "trimoe", "--machines", directory_}, /*with_server=*/false).status.message());
  };
  nlohmann::json without = machine;
  without["levels"].erase("dimm");
  EXPECT_THAT(message(without), HasSubstr("'levels.dimm."));
  nlohmann::json many = machine;
  many["levels"]["dimm"]["count"] = 128;
  EXPECT_THAT(message(many), HasSubstr("'levels.dimm.count' is 128, expected 1 to 127"));
}

}  // namespace
}  // namespace moestro::cli
