// Plans of all schedulers: carried out by a checker of their own, and against all plans that there are.
#include "common/experts/schedulers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "tests/common/experts/schedules.h"

namespace moestro::experts {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr Schedule kSchedules[] = {Schedule::kFixed, Schedule::kHybrid, Schedule::kOnDemand};
constexpr int64_t kFewExperts = 6;

SchedulePlan PlanOf(Schedule schedule, const TestLayer& layer) {
  SchedulePlan plan;
  NewScheduler(schedule, 256)->Plan(layer.state(), plan);
  return plan;
}

TEST(Schedulers, TheirPlansCanBeCarriedOutInTheTimeThatTheySay) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const TestLayer layer = RandomLayer(random, i % 2 == 0 ? kFewExperts : 256);
    for (const Schedule schedule : kSchedules) {
      const SchedulePlan plan = PlanOf(schedule, layer);
      const Outcome outcome = CarryOut(layer, plan);
      ASSERT_EQ(outcome.fault, "") << i << " " << static_cast<int>(schedule);
      ASSERT_NEAR(outcome.makespan, plan.makespan(), 1e-9) << i << " " << static_cast<int>(schedule);
    }
  }
}

// HybriMoE's simulation as the paper has it: whatever ends first is done next.
double PapersMakespan(const TestLayer& layer) {
  const ExpertCosts& costs = layer.costs;
  std::deque<int32_t> missing, held;  // by falling rows
  for (int32_t i = 0; i < std::ssize(layer.uses); ++i) {
    (layer.uses[static_cast<size_t>(i)].held() ? held : missing).push_back(i);
  }
  const auto rows = [&](int32_t place) { return layer.uses[static_cast<size_t>(place)].rows; };
  for (auto* queue : {&missing, &held}) std::ranges::stable_sort(*queue, std::greater(), rows);
  std::deque<std::pair<int32_t, double>> arrived;
  SchedulePlan plan;
  double host = costs.host_start + costs.launch,
         device = std::max(layer.bus_busy, layer.device_busy) + costs.device_start,
         bus = layer.bus_busy + costs.load_start;
  while (!missing.empty() || !held.empty() || !arrived.empty()) {
    double host_end = INFINITY, device_end = INFINITY, bus_end = INFINITY;
    if (!missing.empty() || !held.empty()) {
      host_end = host + costs.host_beside * costs.host.At(rows(missing.empty() ? held.back() : missing.back()));
    }
    if (!held.empty()) {
      device_end = device + costs.device.At(rows(held.front()));
    } else if (!arrived.empty()) {
      device_end = std::max(device, arrived.front().second) + costs.device.At(rows(arrived.front().first));
    }
    if (!missing.empty() && std::ssize(plan.loads) < layer.most_loads) bus_end = bus + costs.load;
    if (bus_end <= std::min(host_end, device_end)) {
      arrived.emplace_back(missing.front(), bus = bus_end);
      plan.loads.push_back(missing.front());
      missing.pop_front();
    } else if (device_end <= host_end) {
      device = device_end;
      if (held.empty()) {
        plan.device.push_back(arrived.front().first);
        arrived.pop_front();
      } else {
        plan.device.push_back(held.front());
        held.pop_front();
      }
    } else {
      host = host_end;
      auto& queue = missing.empty() ? held : missing;
      plan.host.push_back(queue.back());
      queue.pop_back();
    }
  }
  return CarryOut(layer, plan).makespan;
}

TEST(HybridScheduler, IsNeverWorseThanAnotherAndNearTheBest) {
  constexpr int kCases = 10000;
  std::mt19937 random(2);
  double hybrid_gap = 0, papers_gap = 0;
  int papers_worse = 0;
  for (int i = 0; i < kCases; ++i) {
    const TestLayer layer = RandomLayer(random, kFewExperts);
    const double hybrid = PlanOf(Schedule::kHybrid, layer).makespan(), best = ShortestMakespan(layer);
    double baseline = INFINITY;
    for (const Schedule other : kSchedules) {
      if (other != Schedule::kHybrid) baseline = std::min(baseline, PlanOf(other, layer).makespan());
    }
    ASSERT_LE(hybrid, baseline + 1e-9) << i;
    ASSERT_GE(hybrid, best - 1e-9) << i;
    hybrid_gap += hybrid / best - 1;
    const double papers = PapersMakespan(layer);
    papers_gap += papers / best - 1;
    if (papers > baseline + 1e-9) ++papers_worse;
  }
  RecordProperty("mean_gap", std::to_string(hybrid_gap / kCases));
  RecordProperty("mean_gap_of_the_papers_simulation", std::to_string(papers_gap / kCases));
  RecordProperty("cases_in_which_that_is_worse_than_a_baseline", std::to_string(papers_worse));
  EXPECT_LE(hybrid_gap / kCases, 0.05);
  EXPECT_LT(hybrid_gap, papers_gap);
}

TEST(HybridScheduler, IsTheBestOfItsPriorities) {
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    const TestLayer layer = RandomLayer(random, 24);
    std::vector<int32_t> missing, held;
    for (int32_t place = 0; place < std::ssize(layer.uses); ++place) {
      (layer.uses[static_cast<size_t>(place)].held() ? held : missing).push_back(place);
    }
    const auto rows = [&](int32_t place) { return -layer.uses[static_cast<size_t>(place)].rows; };
    std::ranges::stable_sort(missing, {}, rows);
    std::ranges::stable_sort(held, {}, rows);
    double best = INFINITY;
    for (auto loads = missing.begin(); loads - missing.begin() <= layer.most_loads; ++loads) {
      for (auto kept = held.begin();; ++kept) {
        SchedulePlan plan;
        plan.loads.assign(missing.begin(), loads);
        plan.device.assign(held.begin(), kept);
        plan.device.insert(plan.device.end(), missing.begin(), loads);
        plan.host.assign(loads, missing.end());
        plan.host.insert(plan.host.end(), kept, held.end());
        best = std::min(best, CarryOut(layer, plan).makespan);
        if (kept == held.end()) break;
      }
      if (loads == missing.end()) break;
    }
    ASSERT_NEAR(PlanOf(Schedule::kHybrid, layer).makespan(), best, 1e-9) << i;
  }
}

// Experts A, B, ... of the paper's Fig. 5 in its units: the device takes 1 for an expert, the CPU 1 for a row, the
// bus 3.
TestLayer Toy(const std::vector<int32_t>& held_rows, const std::vector<int32_t>& missing_rows) {
  TestLayer layer;
  layer.most_loads = 8;
  std::vector<double> rows;
  for (int power = 0; power < 5; ++power) rows.push_back(1 << power);
  layer.costs = {.host = SecondsByRows(rows), .device = SecondsByRows({1, 1, 1, 1, 1}), .load = 3};
  for (const int32_t count : held_rows) {
    layer.uses.push_back({.expert = static_cast<int32_t>(layer.uses.size()), .rows = count, .slot = 0});
  }
  for (const int32_t count : missing_rows) {
    layer.uses.push_back({.expert = static_cast<int32_t>(layer.uses.size()), .rows = count, .weight = 1});
  }
  return layer;
}

TEST(HybridScheduler, TheCpuTakesAHeldExpertWhileTheDeviceComputesALoadedOne) {
  const TestLayer layer = Toy(/*held: A, B, C, D*/ {5, 4, 2, 1}, /*E, F*/ {1, 6});
  const SchedulePlan plan = PlanOf(Schedule::kHybrid, layer);
  EXPECT_THAT(plan.loads, ElementsAre(5)) << "F, whose rows would keep the CPU busy for 6";
  EXPECT_THAT(plan.device, ElementsAre(0, 1, 2, 5)) << "those of many rows first, then what is loaded";
  EXPECT_THAT(plan.host, UnorderedElementsAre(3, 4));
  EXPECT_EQ(plan.makespan(), 4);
  EXPECT_EQ(PlanOf(Schedule::kFixed, layer).makespan(), 7);
  EXPECT_EQ(PlanOf(Schedule::kOnDemand, layer).makespan(), 7);
}

TEST(FixedMapping, LoadsNothing) {
  const SchedulePlan plan = PlanOf(Schedule::kFixed, Toy({2}, {1, 1, 9, 1}));
  EXPECT_THAT(plan.device, ElementsAre(0));
  EXPECT_THAT(plan.host, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(plan.loads, IsEmpty());
}

TEST(OnDemand, LeavesToTheCpuWhatHasNoPlace) {
  TestLayer layer = Toy({2}, {1, 9, 5});
  layer.most_loads = 2;
  const SchedulePlan plan = PlanOf(Schedule::kOnDemand, layer);
  EXPECT_THAT(plan.loads, ElementsAre(2, 3));
  EXPECT_THAT(plan.device, ElementsAre(0, 2, 3));
  EXPECT_THAT(plan.host, ElementsAre(1));
}

TEST(SecondsByRows, IsStraightBetweenItsPointsAndProportionalBehindThem) {
  const SecondsByRows seconds({3, 5, 6});
  EXPECT_DOUBLE_EQ(seconds.At(1), 3);
  EXPECT_DOUBLE_EQ(seconds.At(2), 5);
  EXPECT_DOUBLE_EQ(seconds.At(3), 5.5);
  EXPECT_DOUBLE_EQ(seconds.At(4), 6);
  EXPECT_DOUBLE_EQ(seconds.At(6), 9);
  EXPECT_DOUBLE_EQ(SecondsByRows().At(7), 0);
}

TEST(CarryOut, SeesEveryFault) {
  const TestLayer layer = Toy({2, 1}, {1, 6});
  const SchedulePlan good = PlanOf(Schedule::kHybrid, layer);
  ASSERT_THAT(good.loads, ElementsAre(3));
  ASSERT_EQ(CarryOut(layer, good).fault, "");
  const auto fault = [&](auto&& change) {
    SchedulePlan plan = good;
    change(plan);
    return CarryOut(layer, plan).fault;
  };
  EXPECT_EQ(fault([](SchedulePlan& plan) { plan.host.push_back(plan.host.front()); }), "computed twice");
  EXPECT_EQ(fault([](SchedulePlan& plan) { plan.device.push_back(plan.host.front()); }), "not on the device");
  EXPECT_EQ(fault([](SchedulePlan& plan) { plan.device.erase(plan.device.begin()); }), "not computed");
  EXPECT_EQ(fault([](SchedulePlan& plan) { plan.loads.clear(); }), "not on the device");
  EXPECT_EQ(fault([](SchedulePlan& plan) { plan.loads.push_back(plan.device.front()); }), "loaded though it is there");
  TestLayer small = layer;
  small.most_loads = 0;
  EXPECT_EQ(CarryOut(small, good).fault, "more loads than places");
  SchedulePlan swapped = good;
  std::ranges::reverse(swapped.device);
  EXPECT_GT(CarryOut(layer, swapped).makespan, CarryOut(layer, good).makespan) << "the device waits for the bus";
}

}  // namespace
}  // namespace moestro::experts
