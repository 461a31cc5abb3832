// A fixed list of requests, a given number of them at a time.
#pragma once

#include <utility>
#include <vector>

#include "loadtest/workloads/workload.h"

namespace moestro::loadtest {

class FixedWorkload : public Workload {
 public:
  FixedWorkload(std::vector<Request> requests, int concurrency)
      : requests_(std::move(requests)), concurrency_(concurrency) {}

  std::optional<double> NextArrival(double now) override {
    return next_ < requests_.size() && running_ < concurrency_ ? std::optional(now) : std::nullopt;
  }
  Request Take(double) override {
    ++running_;
    return requests_[next_++];
  }
  void OnEnd(const Record&) override { --running_; }

 private:
  const std::vector<Request> requests_;
  const int concurrency_;
  size_t next_ = 0;
  int running_ = 0;
};

}  // namespace moestro::loadtest
