// Executes a workload over a transport. Thread-compatible: everything happens in the caller's thread.
#pragma once

#include <functional>
#include <vector>

#include "loadtest/client/transport.h"
#include "loadtest/run/recorder.h"
#include "loadtest/workloads/workload.h"

namespace moestro::loadtest {

struct RunOptions {
  int max_in_flight = 512;  // requests that are due later than this are sent late, and the lateness is recorded
  // Asked some times a second: true ends the run early. What is in flight is cancelled.
  std::function<bool()> interrupted = [] { return false; };
  // Called some times a second. `seconds`: since the run began.
  std::function<void(const Counts& counts, double seconds)> progress = [](const Counts&, double) {};
};

struct RunResult {
  std::vector<Record> records;  // in the order in which they were sent
  bool interrupted = false;
  double began = 0;    // on the transport's clock
  double seconds = 0;  // until the last one ended
};

RunResult RunWorkload(Workload& workload, Transport& transport, const RunOptions& options);

}  // namespace moestro::loadtest
