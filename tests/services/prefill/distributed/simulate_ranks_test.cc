#include "services/prefill/distributed/simulate_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

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

// In passes after what is cached, too: the copies of that share the bus with weights.
TEST(SimulateRanks, IsTheSameEveryTimeInPasses) {
  const auto simulate = [] {
    device::HardwareSpec machine = Machine();
    machine.gpu_memory_bytes = 8e6;
    return SimulateRanks(machine, SmallSpec(), DType::kF8E4M3, model::MlaForm::kUnabsorbed, 64 * 48,
                         {.dense_bytes = 1 << 20, .min_pass_rows = 64}, 2, roofline::ExpertParallelism::kStandard, {},
                         /*cached=*/640)
        .value();
  };
  const SimulatedRanks expected = simulate();
  EXPECT_GT(expected.passes, 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(simulate().wall_seconds, expected.wall_seconds);
}

// A device waits for a part of the time of its exchanges; with nothing to wait for, none.
TEST(SimulateRanks, ComputesBesideExchanges) {
  const SimulatedRanks two = Simulate(3000, 2);
  EXPECT_GT(two.exchange_seconds, 0);
  EXPECT_GT(two.exchange_wait_seconds, 0);
  EXPECT_LT(two.exchange_wait_seconds, 0.8 * two.exchange_seconds);
  const SimulatedRanks one = Simulate(3000, 1);
  EXPECT_EQ(one.exchange_seconds, 0);
  EXPECT_EQ(one.exchange_wait_seconds, 0);
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

// The slower of two unlike devices sets the time of equal parts.
TEST(SimulateRanks, UnlikeDevicesAreFasterWithPartsInProportionToTheirRates) {
  device::HardwareSpec slow = Machine();
  slow.fp8_flops_per_second /= 3;
  slow.bf16_flops_per_second /= 3;
  slow.gpu_memory_bytes_per_second /= 3;
  for (const roofline::ExpertParallelism experts :
       {roofline::ExpertParallelism::kSmall, roofline::ExpertParallelism::kStandard}) {
    const auto seconds = [&](int64_t fast_share, int64_t slow_share) {
      const SimulatedDevice devices[] = {{Machine(), fast_share}, {slow, slow_share}};
      return SimulateRanks(devices, SmallSpec(), DType::kF8E4M3, model::MlaForm::kUnabsorbed, 64 * 80,
                           {.dense_bytes = 1 << 20}, experts)
          .value()
          .wall_seconds;
    };
    EXPECT_LT(seconds(3, 1), 0.65 * seconds(1, 1));
    EXPECT_LT(seconds(3, 1), seconds(2, 1));
    EXPECT_GT(seconds(1, 3), seconds(1, 1));
  }
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

// Each pass streams the weights again, and the rows of all passes are exchanged once.
TEST(SimulateRanks, APromptThatDoesNotFitAtOnceIsComputedInPasses) {
  constexpr int64_t kTokens = 64 * 48;
  constexpr double kCutBytes = 8e6;  // of a device: too little for all rows at once
  const auto simulate = [](double memory, int64_t min_pass_rows) {
    device::HardwareSpec machine = Machine();
    machine.gpu_memory_bytes = memory;
    return SimulateRanks(machine, SmallSpec(), DType::kF8E4M3, model::MlaForm::kUnabsorbed, kTokens,
                         {.dense_bytes = 1 << 20, .min_pass_rows = min_pass_rows}, 2,
                         roofline::ExpertParallelism::kStandard);
  };
  const auto sent = [](const SimulatedRanks& simulated) {
    int64_t bytes = 0;
    for (const collective::OperationCounters& each : simulated.ranks[0].exchanges) bytes += each.sent_bytes;
    return bytes;
  };
  const SimulatedRanks whole = simulate(1e9, 64).value();
  EXPECT_EQ(whole.passes, 1);
  const SimulatedRanks cut = simulate(kCutBytes, 64).value();
  EXPECT_GT(cut.passes, 1);
  EXPECT_GT(cut.wall_seconds, whole.wall_seconds);
  EXPECT_NEAR(static_cast<double>(sent(cut)) / static_cast<double>(sent(whole)), 1, 0.05);
  const absl::Status status = simulate(kCutBytes, kTokens).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

// A rank's kernels get what the plan leaves of the memory, and make their tiles of rows longer.
TEST(SimulateRanks, SpareMemoryMakesTilesLonger) {
  constexpr int64_t kTokens = 64 * 300;
  const auto simulate = [](double memory, roofline::ExpertParallelism experts, bool cuts_rows) {
    device::HardwareSpec machine = Machine();
    machine.gpu_memory_bytes = memory;
    machine.launch_seconds = 1e-3;
    return SimulateRanks(machine, SmallSpec(), DType::kF8E4M3, model::MlaForm::kUnabsorbed, kTokens,
                         {.dense_bytes = 1 << 20}, 2, experts, {.cuts_rows = cuts_rows})
        .value()
        .wall_seconds;
  };
  const auto small = roofline::ExpertParallelism::kSmall, standard = roofline::ExpertParallelism::kStandard;
  const double longer = simulate(10e9, small, true);
  EXPECT_EQ(longer, simulate(10e9, small, false)) << "all rows at once";
  // Standard EP keeps the memory for pairs that were not planned.
  EXPECT_GT(simulate(10e9, standard, true), simulate(10e9, standard, false));
}

// Ranks share whole pages, and a pass may begin inside of one: an earlier pass may give a rank the most rows.
TEST(SimulateRanks, EveryPassFitsWhateverTheMemory) {
  constexpr int64_t kTokens = 64 * 21 + 17;
  int64_t most_passes = 0;
  for (double memory = 3e6; memory < 4e6; memory += 2e4) {
    device::HardwareSpec machine = Machine();
    machine.gpu_memory_bytes = memory;
    const auto simulated =
        SimulateRanks(machine, SmallSpec(), DType::kF8E4M3, model::MlaForm::kUnabsorbed, kTokens,
                      {.dense_bytes = 1 << 20, .min_pass_rows = 64}, 2, roofline::ExpertParallelism::kStandard);
    ASSERT_TRUE(simulated.ok()) << memory << " bytes: " << simulated.status();
    most_passes = std::max(most_passes, simulated->passes);
  }
  EXPECT_GT(most_passes, 2);
}

}  // namespace
}  // namespace moestro::prefill
