// A source of requests. The runner asks it for the next one, and reports the end of each. Thread-compatible.
#pragma once

#include <optional>

#include "loadtest/client/request.h"
#include "loadtest/records/record.h"

namespace moestro::loadtest {

class Workload {
 public:
  virtual ~Workload() = default;

  // When the next request begins, in seconds since the run began. A time in the past means at once. nullopt: not before
  // a request in flight has ended; if none is in flight, the workload is over. The answer is valid until Take or OnEnd
  // is called.
  virtual std::optional<double> NextArrival(double now) = 0;
  // Returns that request. REQUIRES: NextArrival returned a time that has passed.
  virtual Request Take(double now) = 0;
  virtual void OnEnd(const Record& /*record*/) {}
};

}  // namespace moestro::loadtest
