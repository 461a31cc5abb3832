// Random layers, and what a schedule's plan is checked with: none of the code that makes plans.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "common/experts/schedulers.h"

namespace moestro::experts {

// A layer with everything that LayerState refers to.
struct TestLayer {
  std::vector<ExpertUse> uses;
  ExpertCosts costs;
  int64_t most_loads = 0;
  double bus_busy = 0;
  double device_busy = 0;

  LayerState state() const { return {uses, costs, most_loads, bus_busy, device_busy}; }
};

// 1 to max_experts experts, about half of them held, of few rows or of many; loads from far below what the CPU takes to
// far above.
inline TestLayer RandomLayer(std::mt19937& random, int64_t max_experts) {
  const auto draw = [&](double from, double to) { return std::uniform_real_distribution(from, to)(random); };
  const auto rising = [&](double first, double each) {
    std::vector<double> seconds;
    for (int64_t rows = 1; rows <= 64; rows *= 2) seconds.push_back(first + each * static_cast<double>(rows - 1));
    return SecondsByRows(seconds);
  };
  TestLayer layer;
  layer.costs = {.host = rising(draw(0.1, 2), draw(0, 1)),
                 .host_start = draw(0, 1),
                 .host_beside = random() % 2 == 0 ? 1 : draw(1, 2),
                 .device = rising(draw(0.05, 1), random() % 2 == 0 ? 0 : draw(0, 0.3)),
                 .device_start = draw(0, 1),
                 .launch = random() % 2 == 0 ? 0 : draw(0, 0.5),
                 .load = std::exp(draw(-2, 2)),
                 .load_start = draw(0, 0.5)};
  layer.most_loads = static_cast<int64_t>(random() % static_cast<uint64_t>(max_experts + 1));
  layer.bus_busy = random() % 3 == 0 ? draw(0, 3) : 0;
  layer.device_busy = random() % 3 == 0 ? draw(0, 3) : 0;
  const int32_t most_rows = random() % 2 == 0 ? 2 : 20;
  const auto count = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(max_experts));
  for (int32_t i = 0; i < count; ++i) {
    layer.uses.push_back({.expert = 3 * i,
                          .rows = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(most_rows)),
                          .weight = static_cast<float>(draw(0, 1)),
                          .slot = random() % 2 == 0 ? i : -1});
  }
  return layer;
}

struct Outcome {
  double makespan = 0;
  std::string fault;  // empty: none
};

// Carries a plan out in virtual time, one thing at a time on the CPU, on the device and on the bus.
inline Outcome CarryOut(const TestLayer& layer, const SchedulePlan& plan) {
  const auto use_at = [&](int32_t place) -> const ExpertUse& { return layer.uses.at(static_cast<size_t>(place)); };
  std::vector<bool> done(layer.uses.size());
  std::string fault;
  const auto compute = [&](int32_t place) {
    if (done.at(static_cast<size_t>(place))) fault = "computed twice";
    done[static_cast<size_t>(place)] = true;
  };
  double host = 0;
  for (const int32_t place : plan.host) {
    compute(place);
    if (place == plan.host.front()) host = layer.costs.host_start + (plan.device.empty() ? 0 : layer.costs.launch);
    host += (plan.device.empty() ? 1 : layer.costs.host_beside) * layer.costs.host.At(use_at(place).rows);
  }
  double bus = layer.bus_busy + layer.costs.load_start;
  std::vector<double> arrivals(layer.uses.size(), -1);
  for (const int32_t place : plan.loads) {
    if (use_at(place).held() || arrivals[static_cast<size_t>(place)] >= 0) fault = "loaded though it is there";
    arrivals[static_cast<size_t>(place)] = bus += layer.costs.load;
  }
  if (std::ssize(plan.loads) > layer.most_loads) fault = "more loads than places";
  double device = plan.device.empty() ? 0 : std::max(layer.bus_busy, layer.device_busy) + layer.costs.device_start;
  for (const int32_t place : plan.device) {
    compute(place);
    const double arrival = arrivals[static_cast<size_t>(place)];
    if (!use_at(place).held() && arrival < 0) fault = "not on the device";
    device = std::max(device, arrival) + layer.costs.device.At(use_at(place).rows);
  }
  if (std::ranges::find(done, false) != done.end()) fault = "not computed";
  return {std::max(host, device), fault};
}

// The shortest makespan of all plans: every set of experts on the device, with every order of its loads. The device
// takes held experts first, then loaded ones as they come: it never waits while it could work.
inline double ShortestMakespan(const TestLayer& layer) {
  const auto count = static_cast<int32_t>(layer.uses.size());
  double shortest = INFINITY;
  for (int32_t set = 0; set < 1 << count; ++set) {
    SchedulePlan plan;
    for (int32_t i = 0; i < count; ++i) {
      if ((set >> i & 1) == 0) {
        plan.host.push_back(i);
      } else if (layer.uses[static_cast<size_t>(i)].held()) {
        plan.device.push_back(i);
      } else {
        plan.loads.push_back(i);
      }
    }
    if (std::ssize(plan.loads) > layer.most_loads) continue;
    const std::vector<int32_t> held = plan.device;
    do {
      plan.device = held;
      plan.device.insert(plan.device.end(), plan.loads.begin(), plan.loads.end());
      shortest = std::min(shortest, CarryOut(layer, plan).makespan);
    } while (std::ranges::next_permutation(plan.loads).found);
  }
  return shortest;
}

}  // namespace moestro::experts
