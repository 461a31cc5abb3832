// Random layers over three domains, and what a plan is checked with: none of the code that makes plans.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/experts/domains/schedulers.h"

namespace moestro::experts {

// A layer with everything that DomainState refers to.
struct DomainLayer {
  DomainRates rates;
  double elements = 0;
  double bytes = 0;
  Contention contention = Contention::kInternal;
  DomainCosts costs;
  std::vector<int32_t> rows;
  std::vector<ExpertPlace> places;

  DomainState state() const { return {costs, rows, places}; }
};

// 1 to max_experts experts of few rows or of many. Of those about a fifth is held, and of all about half is localised.
// Rates from far below those of TriMoE's machine to far above, in its order of magnitude.
inline DomainLayer RandomDomainLayer(std::mt19937& random, int64_t max_experts, int64_t dimms) {
  const auto around = [&](double value) { return value * std::exp(std::uniform_real_distribution(-1.0, 1.0)(random)); };
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); };
  DomainLayer layer;
  layer.rates = {.gpu = {around(800e12), around(1e12)},
                 .cpu = {around(40e12), around(300e9)},
                 .dimm = {around(256e9), around(150e9)},
                 .dimms = dimms,
                 .dimm_host_bytes_per_second = around(38e9),
                 .bus_bytes_per_second = around(64e9),
                 .link_bytes_per_second = around(25e9)};
  layer.elements = around(20e6);
  layer.bytes = 2 * layer.elements;
  layer.contention = random() % 2 == 0 ? Contention::kInternal : Contention::kHost;
  layer.costs = CostsOf(layer.rates, layer.elements, layer.bytes, layer.contention);
  const int64_t most_rows = random() % 2 == 0 ? 8 : 200;
  const int64_t count = 1 + below(max_experts);
  for (int64_t i = 0; i < count; ++i) {
    layer.rows.push_back(static_cast<int32_t>(below(10) == 0 ? 0 : 1 + below(most_rows)));
    ExpertPlace place;
    if (random() % 2 == 0) place.dimm = static_cast<int8_t>(below(dimms));
    if (below(5) == 0) place.slot = static_cast<int8_t>(i % (kMostSlots + 1));
    layer.places.push_back(place);
  }
  return layer;
}

struct DomainOutcome {
  double makespan = 0;
  std::vector<double> busy;  // seconds of each DIMM
  bool late = false;         // reads came faster than a DIMM gives, and ended after who waits for them
  std::string fault;         // empty: none
};

// Carries a plan out in virtual time, from rates and bytes. Device and CPU work through their experts in ascending id.
// While one of them computes an expert that it does not hold, its reads come to the DIMMs evenly. A DIMM does one thing
// at a time: reads as they come, and otherwise the experts that its processor has.
inline DomainOutcome CarryOut(const DomainLayer& layer, const DomainPlan& plan) {
  DomainOutcome outcome;
  const auto dimms = static_cast<size_t>(layer.rates.dimms);
  const double flops = 2 * layer.elements, channel = layer.rates.dimm_host_bytes_per_second;
  const double taken = layer.contention == Contention::kHost ? channel : layer.rates.dimm.bytes_per_second;
  struct Reading {
    double begin = 0;
    double end = 0;
    size_t dimm = 0;
    double seconds = 0;  // of the DIMM
  };
  std::vector<Reading> readings;
  std::vector<double> near(dimms);
  double gpu = 0, cpu = 0;
  if (plan.domains.size() != layer.rows.size()) outcome.fault = "other experts";
  for (size_t i = 0; i < layer.rows.size() && outcome.fault.empty(); ++i) {
    const Domain domain = plan.domains[i];
    const ExpertPlace place = layer.places[i];
    const double rows = layer.rows[i];
    if ((domain == Domain::kNone) != (rows == 0)) outcome.fault = "rows not computed, or computed without any";
    if (domain == Domain::kNone) continue;
    if (domain == Domain::kNear) {
      if (place.striped()) {
        outcome.fault = "on a DIMM that does not have it";
        continue;
      }
      near[static_cast<size_t>(place.dimm)] +=
          std::max(rows * flops / layer.rates.dimm.flops_per_second, layer.bytes / layer.rates.dimm.bytes_per_second);
      continue;
    }
    const bool reads = domain == Domain::kCpu || !place.held();
    double& now = domain == Domain::kGpu ? gpu : cpu;
    const double begin = now;
    double seconds =
        domain == Domain::kGpu ? layer.costs.gpu.At(layer.rows[i]) : rows * flops / layer.rates.cpu.flops_per_second;
    if (reads) {
      seconds = std::max(seconds, layer.bytes / (place.striped() ? layer.rates.cpu.bytes_per_second : channel));
      if (domain == Domain::kGpu) seconds = std::max(seconds, layer.bytes / layer.rates.bus_bytes_per_second);
    }
    now += seconds;
    if (!reads) continue;
    for (size_t d = 0; d < dimms; ++d) {
      if (place.striped()) {
        readings.push_back({begin, now, d, layer.bytes / static_cast<double>(dimms) / taken});
      } else if (std::cmp_equal(d, place.dimm)) {
        readings.push_back({begin, now, d, layer.bytes / taken});
      }
    }
  }
  outcome.makespan = std::max(gpu, cpu);
  for (size_t d = 0; d < dimms; ++d) {
    std::vector<double> times = {0};
    for (const Reading& reading : readings) {
      if (reading.dimm != d) continue;
      times.push_back(reading.begin);
      times.push_back(reading.end);
    }
    std::ranges::sort(times);
    double waiting = 0, left = near[d], busy = 0, end = 0;  // seconds of reads that came; of experts
    for (size_t t = 1; t < times.size(); ++t) {
      const double length = times[t] - times[t - 1];
      for (const Reading& reading : readings) {
        if (reading.dimm != d || reading.begin > times[t - 1] || reading.end < times[t]) continue;
        waiting += reading.seconds * length / (reading.end - reading.begin);
      }
      const double served = std::min(waiting, length), computed = std::min(left, length - served);
      waiting -= served;
      left -= computed;
      busy += served + computed;
      if (served + computed > 0) end = times[t];
    }
    if (waiting + left > 0) end = times.back() + waiting + left;
    outcome.late |= waiting > 1e-9 * times.back();
    outcome.busy.push_back(busy + waiting + left);
    outcome.makespan = std::max(outcome.makespan, end);
  }
  return outcome;
}

// The shortest makespan of all plans.
inline double ShortestMakespan(const DomainLayer& layer) {
  DomainPlan plan;
  plan.domains.assign(layer.rows.size(), Domain::kNone);
  double shortest = INFINITY;
  const auto choose = [&](auto&& self, size_t i) -> void {
    if (i == layer.rows.size()) {
      SetEnds(layer.state(), plan);
      shortest = std::min(shortest, plan.makespan());
      return;
    }
    if (layer.rows[i] == 0) return self(self, i + 1);
    for (const Domain domain : {Domain::kGpu, Domain::kCpu, Domain::kNear}) {
      if (domain == Domain::kNear && layer.places[i].striped()) continue;
      plan.domains[i] = domain;
      self(self, i + 1);
    }
  };
  choose(choose, 0);
  return shortest;
}

}  // namespace moestro::experts
