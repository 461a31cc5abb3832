#include "common/experts/domains/domain_planner.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/common/experts/domains/layers.h"
#include "tests/support/thread_allocations.h"

namespace moestro::experts {
namespace {

constexpr int64_t kExperts = 64, kLayers = 2, kSlots = 6;
constexpr DomainRates kServerRates = {.gpu = {800e12, 1e12},
                                      .cpu = {40e12, 307e9},
                                      .dimm = {256e9, 154e9},
                                      .dimms = 16,
                                      .dimm_host_bytes_per_second = 38e9,
                                      .bus_bytes_per_second = 64e9,
                                      .link_bytes_per_second = 75e9};
constexpr double kElements = 20e6, kWindow = 6e-4;

DomainCosts Costs() { return CostsOf(kServerRates, kElements, 2 * kElements, Contention::kInternal); }

// Rows of a layer whose hot experts change by and by.
std::vector<int32_t> Rows(std::mt19937& random, int pass, int64_t layer) {
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < kExperts; ++i) {
    const double rank = static_cast<double>((i * 7 + layer + pass / 8) % kExperts);
    rows.push_back(static_cast<int32_t>(std::poisson_distribution(300 * std::exp(-rank / 6))(random)));
  }
  return rows;
}

// All passes of a schedule: the sum of makespans, each of which the checker confirms.
double Total(const DomainPlanner::Options& options) {
  DomainPlanner planner(options, Costs());
  std::mt19937 random(1);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::vector<int32_t> rows = Rows(random, 0, layer);
    planner.Place(layer, std::vector<std::span<const int32_t>>{rows});
  }
  double total = 0;
  for (int pass = 0; pass < 40; ++pass) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const std::vector<int32_t> rows = Rows(random, pass, layer);
      const DomainPlanner::Pass planned = planner.Next(layer, rows, kWindow);
      const auto places = planner.places(layer);
      const DomainOutcome outcome = CarryOut({.rates = kServerRates,
                                              .elements = kElements,
                                              .bytes = 2 * kElements,
                                              .costs = Costs(),
                                              .rows = rows,
                                              .places = {places.begin(), places.end()}},
                                             planned.plan);
      EXPECT_EQ(outcome.fault, "");
      EXPECT_NEAR(outcome.makespan, planned.plan.makespan(), 1e-9 * planned.plan.makespan());
      EXPECT_LE(planned.foreseen, kExperts);
      total += planned.plan.makespan() + planned.exposed;
    }
  }
  return total;
}

DomainPlanner::Options Options(DomainSchedule schedule, bool migrate) {
  return {.layers = kLayers,
          .experts = kExperts,
          .slots = kSlots,
          .schedule = schedule,
          .prefetch = migrate,
          .relayout = migrate};
}

TEST(DomainPlanner, EachPartMakesPassesShorter) {
  const double greedy = Total(Options(DomainSchedule::kGreedy, false));
  const double refined = Total(Options(DomainSchedule::kTriDomain, false));
  const double migrating = Total(Options(DomainSchedule::kTriDomain, true));
  EXPECT_LT(refined, 0.95 * greedy);
  EXPECT_LT(migrating, 0.95 * refined);
}

TEST(DomainPlanner, FourBytesAnExpert) {
  EXPECT_EQ(DomainPlanner(Options(DomainSchedule::kTriDomain, true), Costs()).bytes(), 4 * kLayers * kExperts);
}

TEST(DomainPlanner, PassesDoNotAllocate) {
  std::mt19937 random(1);
  DomainPlanner planner(Options(DomainSchedule::kTriDomain, true), Costs());
  planner.Next(0, Rows(random, 0, 0), kWindow);
  for (int pass = 1; pass < 40; ++pass) {
    const std::vector<int32_t> rows = Rows(random, pass, 0);
    const int64_t before = ThreadAllocations();
    const DomainPlanner::Pass planned = planner.Next(0, rows, kWindow);
    EXPECT_EQ(ThreadAllocations(), before) << pass << " " << planned.migrations.size();
  }
}

}  // namespace
}  // namespace moestro::experts
