// A source of requests. The runner asks it what comes next, and tells it what became of each. Thread-compatible.
#pragma once

#include <optional>

#include "loadtest/client/request.h"
#include "loadtest/run/record.h"

namespace moestro::loadtest {

class Workload {
 public:
  virtual ~Workload() = default;

  // When the next request is to begin, in seconds since the run began; a time in the past means at once. nullopt: not
  // before one of those in flight has ended; if none is in flight, the workload is over. The answer holds until Take or
  // OnEnd is called.
  virtual std::optional<double> NextArrival(double now) = 0;
  // That request. REQUIRES: NextArrival gave a time that has come.
  virtual Request Take(double now) = 0;
  virtual void OnEnd(const Record& /*record*/) {}
};

}  // namespace moestro::loadtest
