// Plans over three domains: carried out by a checker of their own, and against all plans that there are.
#include "common/experts/domains/schedulers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "tests/common/experts/domains/layers.h"

namespace moestro::experts {
namespace {

using testing::ElementsAre;

constexpr DomainSchedule kSchedules[] = {DomainSchedule::kTriDomain, DomainSchedule::kGreedy, DomainSchedule::kKlotski,
                                         DomainSchedule::kEnhancedKTransformers, DomainSchedule::kMonde};

DomainPlan PlanOf(DomainSchedule schedule, const DomainLayer& layer) {
  DomainPlan plan;
  NewDomainScheduler(schedule, 256, layer.rates.dimms)->Plan(layer.state(), plan);
  return plan;
}

// Eq. 5 lets the device and the CPU read as fast as each of them can. Where a DIMM gives less than both take, the layer
// ends later than Eq. 7 says. That needs a DIMM whose internal rate is not twice what one of the two takes.
TEST(DomainSchedulers, TheirPlansCanBeCarriedOutInTheTimeThatTheySay) {
  std::mt19937 random(1);
  int late = 0;
  for (int i = 0; i < 2000; ++i) {
    const DomainLayer layer = RandomDomainLayer(random, i % 2 == 0 ? 6 : 96, i % 3 == 0 ? 2 : 16);
    const double most = std::max(layer.rates.cpu.bytes_per_second / static_cast<double>(layer.rates.dimms),
                                 layer.rates.dimm_host_bytes_per_second);  // that one of the two takes from a DIMM
    const bool enough = layer.contention == Contention::kInternal && layer.rates.dimm.bytes_per_second >= 2 * most;
    for (const DomainSchedule schedule : kSchedules) {
      const DomainPlan plan = PlanOf(schedule, layer);
      const DomainOutcome outcome = CarryOut(layer, plan);
      ASSERT_EQ(outcome.fault, "") << i << " " << static_cast<int>(schedule);
      ASSERT_GE(outcome.makespan, plan.makespan() * (1 - 1e-9)) << i << " " << static_cast<int>(schedule);
      ASSERT_FALSE(outcome.late && enough) << i << " " << static_cast<int>(schedule);
      if (!outcome.late) {
        ASSERT_LE(outcome.makespan, plan.makespan() * (1 + 1e-9)) << i << " " << static_cast<int>(schedule);
      }
      late += outcome.late ? 1 : 0;
      for (size_t d = 0; d < plan.dimm_ends.size(); ++d) {
        ASSERT_NEAR(outcome.busy[d], plan.dimm_ends[d], 1e-9 * (1e-3 + plan.dimm_ends[d])) << i << " " << d;
      }
    }
  }
  EXPECT_GT(late, 0);
  EXPECT_LT(late, 2000 * 5 / 3);
}

TEST(DomainSchedulers, UseTheirDomainsOnly) {
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    const DomainLayer layer = RandomDomainLayer(random, 64, 4);
    for (const DomainSchedule schedule : kSchedules) {
      const DomainsUsed used = DomainsOf(schedule);
      for (const Domain domain : PlanOf(schedule, layer).domains) {
        ASSERT_TRUE(domain != Domain::kCpu || used.cpu) << static_cast<int>(schedule);
        ASSERT_TRUE(domain != Domain::kNear || used.near) << static_cast<int>(schedule);
      }
    }
  }
}

TEST(TriDomainScheduler, RefinementNeverMakesAPlanLonger) {
  constexpr int kCases = 10000;
  std::mt19937 random(3);
  int shorter = 0;
  for (int i = 0; i < kCases; ++i) {
    const DomainLayer layer = RandomDomainLayer(random, i % 2 == 0 ? 8 : 64, i % 3 == 0 ? 2 : 16);
    const double greedy = PlanOf(DomainSchedule::kGreedy, layer).makespan();
    const double refined = PlanOf(DomainSchedule::kTriDomain, layer).makespan();
    ASSERT_LE(refined, greedy * (1 + 1e-12)) << i;
    shorter += refined < 0.99 * greedy ? 1 : 0;
  }
  EXPECT_GT(shorter, kCases / 2);
}

TEST(TriDomainScheduler, IsNearTheBestOfAllPlans) {
  constexpr int kCases = 5000;
  std::mt19937 random(4);
  int best = 0;
  double gap = 0, worst = 0;
  for (int i = 0; i < kCases; ++i) {
    const DomainLayer layer = RandomDomainLayer(random, 6, 2);
    const double shortest = ShortestMakespan(layer);
    const double refined = PlanOf(DomainSchedule::kTriDomain, layer).makespan();
    ASSERT_GE(refined, shortest * (1 - 1e-12)) << i;
    if (refined <= shortest * (1 + 1e-9)) ++best;
    if (shortest == 0) continue;
    gap += refined / shortest - 1;
    worst = std::max(worst, refined / shortest - 1);
  }
  RecordProperty("optimal", best);
  RecordProperty("mean_gap", std::to_string(gap / kCases));
  RecordProperty("largest_gap", std::to_string(worst));
  EXPECT_GE(best, kCases * 90 / 100);
  EXPECT_LE(gap / kCases, 0.02);
}

// The paper's refinement looks at one expert of one domain, so it may end above a plan that another system makes.
TEST(TriDomainScheduler, IsRarelyWorseThanAnother) {
  constexpr int kCases = 5000;
  std::mt19937 random(5);
  int worse = 0, much_worse = 0, better = 0;
  for (int i = 0; i < kCases; ++i) {
    const DomainLayer layer = RandomDomainLayer(random, i % 2 == 0 ? 8 : 160, i % 3 == 0 ? 2 : 16);
    const double refined = PlanOf(DomainSchedule::kTriDomain, layer).makespan();
    double least = INFINITY;
    for (const DomainSchedule other :
         {DomainSchedule::kKlotski, DomainSchedule::kEnhancedKTransformers, DomainSchedule::kMonde}) {
      least = std::min(least, PlanOf(other, layer).makespan());
    }
    worse += refined > least * (1 + 1e-9) ? 1 : 0;
    much_worse += refined > least * 1.1 ? 1 : 0;
    better += refined < least * 0.9 ? 1 : 0;
  }
  RecordProperty("worse", worse);
  RecordProperty("more_than_a_tenth_worse", much_worse);
  RecordProperty("more_than_a_tenth_better", better);
  EXPECT_LT(worse, kCases * 4 / 100);
  EXPECT_LT(much_worse, kCases * 2 / 100);
  EXPECT_GT(better, kCases / 3);
}

// Two DIMMs; an expert takes 1 a row on the CPU, 4 a row on a DIMM, 1 on the device, 10 over the bus. Reads take 2 if
// striped and 6 of one DIMM, which is busy for 1 and 3 with them.
DomainLayer Toy(const std::vector<int32_t>& rows, const std::vector<ExpertPlace>& places) {
  const auto rising = [](double each) {
    std::vector<double> seconds;
    for (int power = 0; power < 6; ++power) seconds.push_back(each * (1 << power));
    return SecondsByRows(seconds);
  };
  DomainLayer layer;
  layer.rates.dimms = 2;
  layer.costs = {.dimms = 2,
                 .gpu = SecondsByRows({1, 1, 1, 1, 1, 1}),
                 .cpu = rising(1),
                 .near = rising(4),
                 .bus = 10,
                 .read_striped = 2,
                 .read_localised = 6,
                 .near_read = 3,
                 .busy_striped = 1,
                 .busy_localised = 3,
                 .link = 4};
  layer.rows = rows;
  layer.places = places;
  return layer;
}

constexpr ExpertPlace kInStripes = {}, kInSlot = {.slot = 0}, kFirst = {.dimm = 0}, kSecond = {.dimm = 1};

TEST(TriDomainScheduler, GreedyTakesTheCheapestDomain) {
  const DomainPlan plan = PlanOf(
      DomainSchedule::kGreedy, Toy({20, 5, 1, 0, 30, 2}, {kInSlot, kInStripes, kFirst, kSecond, kInStripes, kSecond}));
  EXPECT_THAT(plan.domains,
              ElementsAre(Domain::kGpu, Domain::kCpu, Domain::kNear, Domain::kNone, Domain::kGpu, Domain::kCpu));
  EXPECT_EQ(plan.gpu_end, 1 + 10);
  EXPECT_EQ(plan.cpu_end, 5 + 6);
  // The first: 4 of its expert and 1 of each striped read. The second: these, and 3 of the localised read.
  EXPECT_THAT(plan.dimm_ends, ElementsAre(4 + 2, 2 + 3));
}

TEST(TriDomainScheduler, MovesTheDearestExpertOfWhatEndsLast) {
  // Greedy: all on the CPU, 9 + 8 + 3 = 20. The dearest goes to the bus: 10 and 11.
  const DomainLayer layer = Toy({9, 8, 3}, {kInStripes, kInStripes, kInStripes});
  EXPECT_EQ(PlanOf(DomainSchedule::kGreedy, layer).makespan(), 20);
  const DomainPlan plan = PlanOf(DomainSchedule::kTriDomain, layer);
  EXPECT_THAT(plan.domains, ElementsAre(Domain::kGpu, Domain::kCpu, Domain::kCpu));
  EXPECT_EQ(plan.makespan(), 11);
}

TEST(TriDomainScheduler, OfEqualMovesTakesTheOneThatDelaysTheReceiverLeast) {
  // One DIMM has three experts of 4, and ends at 12. Without the first it ends at 11, 8 of experts and 3 of a read,
  // whether the CPU takes 6 for it or the device 10. The second would keep the CPU until 12, so it goes to the device.
  const DomainLayer layer = Toy({1, 1, 1}, {kFirst, kFirst, kFirst});
  EXPECT_EQ(PlanOf(DomainSchedule::kGreedy, layer).makespan(), 12);
  const DomainPlan plan = PlanOf(DomainSchedule::kTriDomain, layer);
  EXPECT_THAT(plan.domains, ElementsAre(Domain::kCpu, Domain::kGpu, Domain::kNear));
  EXPECT_EQ(plan.cpu_end, 6);
  EXPECT_EQ(plan.gpu_end, 10);
  EXPECT_THAT(plan.dimm_ends, ElementsAre(10, 0));
}

TEST(MostRowsToGpu, LoadsWhileThatEndsTheLayerEarlier) {
  const DomainLayer layer = Toy({2, 9, 8, 3}, {kInStripes, kInStripes, kInStripes, kFirst});
  EXPECT_EQ(PlanOf(DomainSchedule::kKlotski, layer).makespan(), 40);
  // On the CPU 2 + 9 + 8 + 6 = 25; with the first load 16.
  const DomainPlan plan = PlanOf(DomainSchedule::kEnhancedKTransformers, layer);
  EXPECT_THAT(plan.domains, ElementsAre(Domain::kCpu, Domain::kGpu, Domain::kCpu, Domain::kCpu));
  EXPECT_EQ(plan.makespan(), 16);
  // What no DIMM has goes over the bus.
  const DomainPlan monde = PlanOf(DomainSchedule::kMonde, layer);
  EXPECT_THAT(monde.domains, ElementsAre(Domain::kGpu, Domain::kGpu, Domain::kGpu, Domain::kNear));
  EXPECT_THAT(monde.dimm_ends, ElementsAre(12 + 3, 3));
}

TEST(CarryOut, SeesEveryFault) {
  const DomainLayer layer = [] {
    DomainLayer made;
    made.rates = {.gpu = {1, 1},
                  .cpu = {1, 2},
                  .dimm = {1, 4},
                  .dimms = 2,
                  .dimm_host_bytes_per_second = 1,
                  .bus_bytes_per_second = 1};
    made.elements = 0.5;
    made.bytes = 4;
    made.costs = CostsOf(made.rates, made.elements, made.bytes, made.contention);
    made.rows = {1, 2, 0};
    made.places = {kInStripes, kSecond, kFirst};
    return made;
  }();
  DomainPlan plan;
  const auto fault = [&](std::vector<Domain> domains) {
    plan.domains = std::move(domains);
    return CarryOut(layer, plan).fault;
  };
  EXPECT_EQ(fault({Domain::kCpu, Domain::kNear, Domain::kNone}), "");
  EXPECT_EQ(fault({Domain::kNear, Domain::kNear, Domain::kNone}), "on a DIMM that does not have it");
  EXPECT_EQ(fault({Domain::kCpu, Domain::kNone, Domain::kNone}), "rows not computed, or computed without any");
  EXPECT_EQ(fault({Domain::kCpu, Domain::kNear, Domain::kNear}), "rows not computed, or computed without any");
  EXPECT_EQ(fault({Domain::kCpu, Domain::kNear}), "other experts");
}

}  // namespace
}  // namespace moestro::experts
