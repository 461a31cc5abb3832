// What the plan of a layer takes, by schedule and by number of experts: the cache's part included, which finds out what
// is held. Prints JSON: the medians of many passes with random choices, a tenth of the experts in each row.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "common/experts/expert_planner.h"

namespace moestro::experts {
namespace {

constexpr int kPasses = 2000;

// Microseconds.
double Planning(Schedule schedule, int64_t experts, int64_t rows) {
  ExpertPlanner planner(
      {.moe_layers = 1, .num_experts = experts, .slots = experts / 4, .most_loads = 8, .schedule = schedule});
  planner.SetCosts({.host = SecondsByRows({1e-4, 1.5e-4, 2.5e-4}),
                    .host_start = 5e-5,
                    .device = SecondsByRows({5e-5, 5e-5, 6e-5}),
                    .device_start = 2e-5,
                    .load = 2e-4});
  std::mt19937 random(1);
  std::vector<double> seconds;
  std::vector<int32_t> ids(static_cast<size_t>(experts));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  std::vector<model::ExpertChoice> choices;
  for (int pass = 0; pass < kPasses; ++pass) {
    choices.clear();
    for (int64_t row = 0; row < rows; ++row) {
      std::ranges::shuffle(ids, random);
      for (int64_t i = 0; i < experts / 10; ++i) choices.push_back({ids[static_cast<size_t>(i)], 0.1f});
    }
    const auto begin = std::chrono::steady_clock::now();
    planner.Next(0, {.choices = choices});
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::nth_element(seconds, seconds.begin() + kPasses / 2);
  return 1e6 * seconds[kPasses / 2];
}

int Main() {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const int64_t experts : {64, 256}) {
    for (const int64_t rows : {1, 64}) {
      nlohmann::ordered_json result = {{"experts", experts}, {"rows", rows}};
      for (const auto& [name, schedule] : {std::pair("fixed", Schedule::kFixed), std::pair("hybrid", Schedule::kHybrid),
                                           std::pair("on_demand", Schedule::kOnDemand)}) {
        result[std::string(name) + "_microseconds"] = Planning(schedule, experts, rows);
      }
      results.push_back(result);
    }
  }
  std::printf("%s\n", results.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace moestro::experts

int main() { return moestro::experts::Main(); }
