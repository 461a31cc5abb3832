// Executes a workload over a transport. Thread-compatible: runs entirely in the caller's thread.
#pragma once

#include <functional>
#include <vector>

#include "loadtest/client/transport.h"
#include "loadtest/run/recorder.h"
#include "loadtest/workloads/workload.h"

namespace moestro::loadtest {

struct RunOptions {
  int max_in_flight = 512;  // requests above the limit are sent late, and the lateness is recorded
  // Called several times a second: true ends the run early. Requests in flight are cancelled.
  std::function<bool()> interrupted = [] { return false; };
  // Called several times a second. `seconds`: since the run began.
  std::function<void(const Counts& counts, double seconds)> progress = [](const Counts&, double) {};
};

struct RunResult {
  std::vector<Record> records;  // in sending order
  bool interrupted = false;
  double began = 0;    // on the transport's clock
  double seconds = 0;  // until the last request ended
};

RunResult RunWorkload(Workload& workload, Transport& transport, const RunOptions& options);

}  // namespace moestro::loadtest
