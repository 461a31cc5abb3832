// What the plan of a layer over three domains takes, by number of experts: the scheduler alone, and a pass with what is
// foreseen and moved. Prints JSON: the medians of many passes with skewed random rows, on TriMoE's machine.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "common/experts/domains/domain_planner.h"

namespace moestro::experts {
namespace {

constexpr int kPasses = 2000;
constexpr DomainRates kRates = {.gpu = {820e12, 1e12},
                                .cpu = {40e12, 307e9},
                                .dimm = {256e9, 154e9},
                                .dimms = 16,
                                .dimm_host_bytes_per_second = 38e9,
                                .bus_bytes_per_second = 64e9,
                                .link_bytes_per_second = 75e9};

struct Microseconds {
  double plan = 0;
  double pass = 0;
};

Microseconds Planning(int64_t experts) {
  const DomainCosts costs = CostsOf(kRates, 20e6, 40e6, Contention::kInternal);
  DomainPlanner planner({.layers = 1, .experts = experts, .slots = experts / 10}, costs);
  const auto scheduler = NewDomainScheduler(DomainSchedule::kTriDomain, experts, costs.dimms);
  DomainPlan plan;
  std::mt19937 random(1);
  std::vector<double> popularity;
  for (int64_t i = 0; i < experts; ++i) popularity.push_back(std::exp(std::normal_distribution<>(1, 2)(random)));
  const std::vector<int32_t> recorded(popularity.begin(), popularity.end());
  planner.Place(0, std::vector<std::span<const int32_t>>{recorded});
  std::vector<double> plans, passes;
  std::vector<int32_t> rows(static_cast<size_t>(experts));
  const auto timed = [](std::vector<double>& seconds, auto&& run) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  };
  for (int pass = 0; pass < kPasses; ++pass) {
    for (size_t i = 0; i < rows.size(); ++i) {
      popularity[i] *= std::exp(std::normal_distribution<>(0, 0.2)(random));
      popularity[i] = std::min(popularity[i], 500.0);
      rows[i] = std::poisson_distribution<>(popularity[i])(random);
    }
    timed(passes, [&] { planner.Next(0, rows, 6e-4); });
    timed(plans, [&] { scheduler->Plan({costs, rows, planner.places(0)}, plan); });
  }
  const auto median = [](std::vector<double>& seconds) {
    std::ranges::nth_element(seconds, seconds.begin() + kPasses / 2);
    return 1e6 * seconds[kPasses / 2];
  };
  return {median(plans), median(passes)};
}

int Main() {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const int64_t experts : {64, 128, 160, 256}) {
    const Microseconds took = Planning(experts);
    results.push_back({{"experts", experts}, {"plan_microseconds", took.plan}, {"pass_microseconds", took.pass}});
  }
  std::printf("%s\n", results.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace moestro::experts

int main() { return moestro::experts::Main(); }
