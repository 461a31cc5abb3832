// Open loop: requests arrive at random, independent of earlier ones. Models the load of many independent users.
#pragma once

#include "loadtest/workloads/traffic.h"
#include "loadtest/workloads/workload.h"

namespace moestro::loadtest {

class PoissonArrivals {
 public:
  PoissonArrivals(double rate, double begin, uint64_t seed) : gap_(rate), engine_(seed), next_(begin) {}
  double next() const { return next_; }  // the first is at `begin`
  void Advance() { next_ += gap_(engine_); }

 private:
  std::exponential_distribution<double> gap_;
  Engine engine_;
  double next_;
};

class PoissonWorkload : public Workload {
 public:
  // `rate` requests per second for `duration` seconds.
  PoissonWorkload(double rate, double duration, const TrafficOptions& traffic)
      : duration_(duration), arrivals_(rate, 0, traffic.seed + 2), traffic_(traffic) {}

  std::optional<double> NextArrival(double) override {
    return arrivals_.next() < duration_ ? std::optional(arrivals_.next()) : std::nullopt;
  }
  Request Take(double) override {
    arrivals_.Advance();
    return traffic_.Next("requests");
  }

 private:
  const double duration_;
  PoissonArrivals arrivals_;
  Traffic traffic_;
};

}  // namespace moestro::loadtest
