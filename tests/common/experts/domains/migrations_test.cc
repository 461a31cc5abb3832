#include "common/experts/domains/migrations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace moestro::experts {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

using Kind = Migration::Kind;

constexpr int64_t kStripedExperts = 2;
constexpr double kWide = 1e9;  // a window that everything fits
constexpr DomainsUsed kAll = {.cpu = true, .near = true};

SecondsByRows Rising(double each) {
  std::vector<double> seconds;
  for (int power = 0; power < 8; ++power) seconds.push_back(each * (1 << power));
  return SecondsByRows(seconds);
}

// Four DIMMs; an expert takes 2 on the CPU or more, 1 a row on a DIMM, 0.1 on the device, 9 over the bus. A link
// takes 4.
const DomainCosts& UnitCosts() {
  static const auto* const costs = new DomainCosts{.dimms = 4,
                                                   .gpu = SecondsByRows(std::vector<double>(8, 0.1)),
                                                   .cpu = Rising(0.1),
                                                   .near = Rising(1),
                                                   .bus = 9,
                                                   .read_striped = 2,
                                                   .read_localised = 8,
                                                   .near_read = 0.5,
                                                   .busy_striped = 0.25,
                                                   .busy_localised = 1,
                                                   .link = 4};
  return *costs;
}

MigrationPlanner Planner(int64_t experts, int64_t slots, DomainsUsed used = kAll) {
  return MigrationPlanner({.experts = experts, .slots = slots, .used = used, .prefetch = true, .relayout = true},
                          UnitCosts());
}

// With the plan of TriMoE's scheduler for these loads.
std::span<const Migration> Migrate(MigrationPlanner& planner, const std::vector<float>& loads, double window,
                                   std::vector<ExpertPlace>& places, int64_t striped) {
  std::vector<int32_t> rows;
  for (const float load : loads) rows.push_back(static_cast<int32_t>(std::lround(load)));
  DomainPlan plan;
  NewDomainScheduler(DomainSchedule::kTriDomain, std::ssize(rows), UnitCosts().dimms)
      ->Plan({UnitCosts(), rows, places}, plan);
  return planner.Migrate(loads, striped, plan.domains, window, places);
}

std::vector<Kind> Kinds(std::span<const Migration> migrations) {
  std::vector<Kind> kinds;
  for (const Migration& migration : migrations) kinds.push_back(migration.kind);
  return kinds;
}

TEST(Migrations, HotOnTheDeviceWarmStripedColdLocalised) {
  const std::vector<float> loads = {1, 90, 1, 20, 1, 30, 1, 1};
  std::vector<Domain> wanted(8);
  Planner(8, 1).Wanted(loads, kStripedExperts, wanted);
  EXPECT_THAT(wanted, ElementsAre(Domain::kNear, Domain::kGpu, Domain::kNear, Domain::kCpu, Domain::kNear, Domain::kCpu,
                                  Domain::kNear, Domain::kNear));
  Planner(8, 1, {.cpu = true}).Wanted(loads, kStripedExperts, wanted);
  EXPECT_EQ(std::ranges::count(wanted, Domain::kNear), 0);
}

TEST(Migrations, TheInitialLayoutIsEven) {
  std::vector<float> loads(64);
  for (size_t i = 0; i < loads.size(); ++i) loads[i] = static_cast<float>(i % 3);
  std::vector<ExpertPlace> places(64);
  MigrationPlanner planner = Planner(64, 4);
  planner.Place(loads, kStripedExperts, places);
  std::vector<double> seconds(4);
  std::vector<int> slots;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].held()) slots.push_back(places[i].slot);
    if (!places[i].striped()) seconds[static_cast<size_t>(places[i].dimm)] += std::max(loads[i], 1.0f);
  }
  EXPECT_THAT(slots, testing::UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_LE(std::ranges::max(seconds) - std::ranges::min(seconds), 2);
  EXPECT_THAT(Migrate(planner, loads, kWide, places, kStripedExperts), IsEmpty()) << "all is as wanted";
}

TEST(Migrations, EachKindWhenTheLoadsChange) {
  std::vector<ExpertPlace> places(8);
  MigrationPlanner planner = Planner(8, 1);
  planner.Place(std::vector<float>{1, 90, 1, 20, 1, 30, 1, 1}, kStripedExperts, places);
  const int8_t lay = places[0].dimm;
  ASSERT_FALSE(places[0].striped());
  // 0 is hot now, 1 is cold, 3 is cold and striped, 2 is warm and localised.
  const std::vector<float> loads = {90, 1, 25, 1, 1, 30, 1, 1};
  const auto migrations = Migrate(planner, loads, kWide, places, kStripedExperts);
  EXPECT_THAT(Kinds(migrations), testing::IsSupersetOf({Kind::kPrefetch, Kind::kLocalise, Kind::kStripe}));
  EXPECT_TRUE(places[0].held());
  EXPECT_EQ(places[0].dimm, lay) << "a copy";
  EXPECT_FALSE(places[1].held());
  EXPECT_TRUE(places[2].striped());
  EXPECT_FALSE(places[3].striped());
  EXPECT_EQ(planner.exposed(), 0);
  for (size_t i = 1; i < migrations.size(); ++i) EXPECT_GE(migrations[i - 1].benefit, migrations[i].benefit);
  EXPECT_THAT(Kinds(Migrate(planner, loads, kWide, places, kStripedExperts)), ElementsAre(Kind::kLocalise))
      << "what left the device";
  EXPECT_FALSE(places[1].striped());
  EXPECT_THAT(Migrate(planner, loads, kWide, places, kStripedExperts), IsEmpty());
}

TEST(Migrations, MovesFromTheBusiestDimmToTheIdlest) {
  // A layer that is cold but for one held expert, all of it on the first DIMM.
  std::vector<ExpertPlace> places(9, {.dimm = 0});
  places[8] = {.slot = 0};
  const std::vector<float> loads = {1, 1, 1, 1, 1, 1, 1, 1, 90};
  MigrationPlanner planner({.experts = 9, .slots = 1, .used = kAll, .relayout = true}, UnitCosts());
  const auto migrations = Migrate(planner, loads, kWide, places, kStripedExperts);
  ASSERT_THAT(Kinds(migrations), Each(Kind::kMove));
  EXPECT_EQ(migrations.size(), 4u) << "as many as there are DIMMs";
  for (const Migration& migration : migrations) {
    EXPECT_EQ(migration.from, 0);
    EXPECT_EQ(migration.benefit, 1);
  }
  EXPECT_EQ(std::ranges::count(places, 0, &ExpertPlace::dimm), 4);
}

TEST(Migrations, WhatExceedsTheWindowMustPay) {
  const auto migrate = [](double window, double* exposed) {
    std::vector<ExpertPlace> places(9, {.dimm = 0});
    places[8] = {.slot = 0};
    MigrationPlanner planner({.experts = 9, .slots = 1, .used = kAll, .relayout = true}, UnitCosts());
    const size_t count =
        Migrate(planner, std::vector<float>{1, 1, 1, 1, 1, 1, 1, 1, 90}, window, places, kStripedExperts).size();
    *exposed = planner.exposed();
    return count;
  };
  // Each move has the first DIMM's links for 4 and brings 1.
  double exposed = 0;
  EXPECT_EQ(migrate(2.9, &exposed), 0u);
  EXPECT_EQ(migrate(3.1, &exposed), 1u);
  EXPECT_NEAR(exposed, 0.9, 1e-12);
  EXPECT_EQ(migrate(8, &exposed), 2u);
  EXPECT_EQ(exposed, 0);
}

TEST(Migrations, BusAndLinksHaveAWindowEach) {
  std::vector<ExpertPlace> places(9, {.dimm = 0});
  const std::vector<float> loads = {1, 1, 1, 1, 1, 1, 1, 1, 90};
  MigrationPlanner planner = Planner(9, 1);
  EXPECT_THAT(Kinds(Migrate(planner, loads, 9, places, kStripedExperts)),
              testing::UnorderedElementsAre(Kind::kPrefetch, Kind::kMove, Kind::kMove));
  EXPECT_EQ(planner.exposed(), 0);
}

// Whatever comes, no slot is held twice and every DIMM exists.
TEST(Migrations, KeepALayoutThatCanBe) {
  std::mt19937 random(1);
  constexpr int64_t kExperts = 40, kSlots = 5;
  std::vector<ExpertPlace> places(kExperts);
  std::vector<float> loads(kExperts);
  MigrationPlanner planner = Planner(kExperts, kSlots);
  for (int i = 0; i < 2000; ++i) {
    for (float& load : loads) load = std::exp(std::normal_distribution<float>(0, 2)(random));
    const double window = std::uniform_real_distribution(0.0, 20.0)(random);
    for (const Migration& migration : Migrate(planner, loads, window, places, kStripedExperts))
      ASSERT_GT(migration.benefit, 0);
    std::vector<int> held(kSlots);
    for (const ExpertPlace place : places) {
      ASSERT_LT(place.dimm, UnitCosts().dimms);
      ASSERT_LT(place.slot, kSlots);
      if (place.held()) ++held[static_cast<size_t>(place.slot)];
    }
    ASSERT_THAT(held, Each(testing::Le(1)));
  }
}

}  // namespace
}  // namespace moestro::experts
