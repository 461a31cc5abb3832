#include "services/prefill/distributed/simulate_ranks.h"

#include <gtest/gtest.h>

#include "tests/support/synthetic_segment.h"

namespace moestro::prefill {
namespace {

// Long prompts of the small model are bound by computing, and exchanges take about as long.
device::HardwareSpec Machine() {
  return {.name = "small",
          .gpu_memory_bytes = 1e9,
          .gpu_memory_bytes_per_second = 1e10,
          .gpu_processors = 1,
          .fp8_flops_per_second = 1e9,
          .bf16_flops_per_second = 1e9,
          .copy_bytes_per_second = 1e7,
          .copy_seconds = 1e-6,
          .launch_seconds = 1e-6};
}

SimulatedRanks Simulate(int64_t tokens, int ranks,
                        roofline::ExpertParallelism experts = roofline::ExpertParallelism::kSmall) {
  return SimulateRanks(Machine(), SmallSpec(), DType::kF8E4M3, model::MlaForm::kUnabsorbed, tokens,
                       {.dense_bytes = 1 << 20}, ranks, experts)
      .value();
}

TEST(SimulateRanks, IsTheSameEveryTime) {
  for (const roofline::ExpertParallelism experts :
       {roofline::ExpertParallelism::kSmall, roofline::ExpertParallelism::kStandard}) {
    const double expected = Simulate(500, 3, experts).wall_seconds;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(Simulate(500, 3, experts).wall_seconds, expected);
  }
}

TEST(SimulateRanks, OneRankTakesAsLongAsOneDevice) {
  const SimulatedPrefill one = SimulatePrefill(Machine(), SmallSpec(), DType::kF8E4M3, model::MlaForm::kUnabsorbed,
                                               2000, {.dense_bytes = 1 << 20})
                                   .value();
  EXPECT_NEAR(Simulate(2000, 1).wall_seconds / one.report.counters.wall_seconds, 1, 0.1);
}

TEST(SimulateRanks, MoreRanksAreFasterAndSmallEpIsTheFaster) {
  const double one = Simulate(3000, 1).wall_seconds;
  const double small = Simulate(3000, 2).wall_seconds;
  EXPECT_LT(small, one);
  EXPECT_LT(small, Simulate(3000, 2, roofline::ExpertParallelism::kStandard).wall_seconds);
}

TEST(SimulateRanks, ExchangesWhatTheFormulasSay) {
  const weights::ModelSpec spec = SmallSpec();
  const int64_t moe_layers = spec.num_layers - spec.first_dense_layers;
  const SimulatedRanks simulated = Simulate(64 * 12, 3);
  const std::vector<int64_t> rows(3, 64 * 4);
  const auto& gathered = simulated.ranks[1].exchanges[static_cast<size_t>(collective::Operation::kAllGather)];
  EXPECT_EQ(gathered.sent_bytes, moe_layers * roofline::SmallEpTraffic(spec, rows, 1).dispatch.sent);
  EXPECT_GT(gathered.seconds, 0);
}

}  // namespace
}  // namespace moestro::prefill
