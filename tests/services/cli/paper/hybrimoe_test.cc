// `moestro paper hybrimoe`, on the machine of deploy/hardware.
#include "services/cli/paper/hybrimoe/hybrimoe.h"

#include <map>
#include <set>
#include <string>

#include "services/cli/paper/hybrimoe/expert_systems.h"
#include "services/cli/plan/hardware_file.h"
#include "tests/services/cli/cli_fixture.h"

namespace moestro::cli {
namespace {

constexpr char kMachine[] = "deploy/hardware/a6000-xeon5220r.json";

const PaperReport& Report() {
  static const auto* const report = new PaperReport(MakeHybriMoEReport(ReadLevels(kMachine).value(), ""));
  return *report;
}

std::map<std::string, Claim> Claims() {
  std::map<std::string, Claim> claims;
  for (const Figure& figure : Report().figures) {
    for (const Claim& claim : figure.claims) EXPECT_TRUE(claims.emplace(claim.what, claim).second) << claim.what;
  }
  return claims;
}

// The paper's values a second time.
TEST(HybriMoE, ValuesOfThePaper) {
  const std::map<std::string, double> printed = {{"s, prompt, kTransformers", 1.47},
                                                 {"times as fast, prompt, scheduling", 1.26},
                                                 {"times as fast, prompt, prefetching", 1.06},
                                                 {"times as fast, prompt, all", 1.31},
                                                 {"s, token, kTransformers", 0.21},
                                                 {"times as fast, token, scheduling", 1.46},
                                                 {"times as fast, token, prefetching", 1.15},
                                                 {"times as fast, token, caching", 1.38},
                                                 {"times as fast, token, all", 1.86},
                                                 {"times as fast as kTransformers, average of 36 settings", 1.33},
                                                 {"times as fast as kTransformers, least of them", 1},
                                                 {"settings of 36 in which it is the fastest of four", 36},
                                                 {"settings of 36 in which llama.cpp is slower than kTransformers", 36},
                                                 {"times as fast as kTransformers, average of nine settings", 1.70},
                                                 {"settings of nine in which it is the fastest of four", 9},
                                                 {"% hits of LRU, Mixtral, 25 %", 30.2},
                                                 {"points that MRS hits more, Mixtral, 25 %", 36.2 - 30.2},
                                                 {"% hits of LRU, Mixtral, 75 %", 80.6},
                                                 {"points that MRS hits more, Mixtral, 75 %", 83.3 - 80.6},
                                                 {"% hits of LRU, DeepSeek, 25 %", 47.7},
                                                 {"points that MRS hits more, DeepSeek, 25 %", 52.7 - 47.7},
                                                 {"% hits of LRU, Qwen2, 25 %", 45.0},
                                                 {"points that MRS hits more, Qwen2, 25 %", 52.8 - 45.0}};
  const std::map<std::string, Claim> claims = Claims();
  EXPECT_EQ(claims.size(), printed.size());
  for (const auto& [what, value] : printed) {
    ASSERT_TRUE(claims.contains(what)) << what;
    EXPECT_NEAR(claims.at(what).paper, value, 1e-9) << what;
  }
}

TEST(HybriMoE, FittedRowsAreNotCounted) {
  for (const auto& [what, claim] : Claims()) {
    const bool is_fitted = what.ends_with(", kTransformers") || (what.starts_with("% hits") && what.ends_with("25 %"));
    EXPECT_EQ(VerdictOf(claim) == Verdict::kFitted, is_fitted) << what;
    if (!is_fitted) continue;
    EXPECT_NEAR(claim.ours / claim.paper, 1, 0.01) << what;
  }
}

TEST(HybriMoE, WhatIsMissed) {
  std::set<std::string> missed;
  for (const auto& [what, claim] : Claims()) {
    if (VerdictOf(claim) == Verdict::kMiss) missed.insert(what);
  }
  EXPECT_EQ(missed,
            (std::set<std::string>{
                "times as fast, prompt, scheduling", "times as fast, prompt, prefetching", "times as fast, prompt, all",
                "times as fast, token, scheduling", "times as fast, token, prefetching", "times as fast, token, all",
                "times as fast as kTransformers, average of 36 settings",
                "times as fast as kTransformers, average of nine settings", "points that MRS hits more, Mixtral, 25 %",
                "points that MRS hits more, Mixtral, 75 %", "points that MRS hits more, DeepSeek, 25 %",
                "points that MRS hits more, Qwen2, 25 %"}));
}

// Each part alone is faster than the baseline, and all are faster than each: what is switched off moves the figure.
TEST(HybriMoE, EveryPartMovesTableIII) {
  const std::map<std::string, Claim> claims = Claims();
  const auto ours = [&](const std::string& what) { return claims.at("times as fast, " + what).ours; };
  for (const std::string stage : {"prompt, ", "token, "}) {
    EXPECT_GT(ours(stage + "scheduling"), 1.05);
    EXPECT_GT(ours(stage + "prefetching"), 1.05);
    EXPECT_GT(ours(stage + "all"), 1.05 * ours(stage + "scheduling"));
    EXPECT_GT(ours(stage + "all"), 1.05 * ours(stage + "prefetching"));
  }
  EXPECT_GT(ours("token, caching"), 1.05);
  EXPECT_GT(ours("token, all"), 1.05 * ours("token, caching"));
}

// A host of half the rate, and a bus of half the rate: what is bound by them takes longer.
TEST(HybriMoE, SystemsWaitForWhatTheyUse) {
  const roofline::Machine machine = ReadLevels(kMachine).value();
  roofline::Machine slow_bus = machine;
  slow_bus.link_bytes_per_second /= 2;
  const auto seconds = [](const roofline::Machine& on, double host, const ExpertSystem& system) {
    ExpertReplays replays(on, "deepseek-v2-lite", 1);
    replays.SetRates({.seconds_a_row = host, .seconds = host});
    return replays.Run(system, Stage::kToken, 1, 0.25).seconds;
  };
  EXPECT_GT(seconds(machine, 2e-3, kKTransformers), 1.8 * seconds(machine, 1e-3, kKTransformers));
  EXPECT_EQ(seconds(slow_bus, 1e-3, kKTransformers), seconds(machine, 1e-3, kKTransformers));
  EXPECT_GT(seconds(slow_bus, 1e-3, kAdapMoE), 1.8 * seconds(machine, 1e-3, kAdapMoE));
  EXPECT_EQ(seconds(machine, 2e-3, kAdapMoE), seconds(machine, 1e-3, kAdapMoE));
  EXPECT_GT(seconds(slow_bus, 1e-3, kHybriMoE), seconds(machine, 1e-3, kHybriMoE));
  EXPECT_GT(seconds(machine, 2e-3, kHybriMoE), seconds(machine, 1e-3, kHybriMoE));
}

}  // namespace
}  // namespace moestro::cli
