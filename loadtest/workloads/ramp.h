// Raises the load step by step until goodput does not rise any more.
#pragma once

#include <string>
#include <vector>

#include "loadtest/report/statistics.h"
#include "loadtest/workloads/poisson.h"
#include "loadtest/workloads/traffic.h"
#include "loadtest/workloads/workload.h"

namespace moestro::loadtest {

struct RampOptions {
  bool open_loop = false;  // steps are rates (requests a second); else requests at a time
  double first = 1;
  double factor = 2;  // from step to step; levels of a closed loop are whole numbers
  double last = 256;
  double step_seconds = 15;  // requests begin for so long, then the step waits for their ends
  Slo slo = {};
  TrafficOptions traffic = {};
};

struct RampStep {
  double level = 0;
  double begin = 0;
  double end = 0;  // when the last request ended
  int64_t requests = 0;
  int64_t good = 0;  // completed within the targets
  bool finished = false;
  // Requests within the targets a second, waiting for the last ones included.
  double goodput() const { return end > begin ? static_cast<double>(good) / (end - begin) : 0; }
};

// Of the finished steps the first within 5 % of their best goodput: what lies beyond it buys nothing. Empty if nothing
// lies beyond it, as goodput may rise further, and without a good request.
std::optional<size_t> FindKnee(const std::vector<RampStep>& steps);

// "8 at a time", "0.25 a second": the group of a step's requests. No two steps have the same.
std::string StepName(const RampOptions& options, double level);

class RampWorkload : public Workload {
 public:
  explicit RampWorkload(const RampOptions& options);

  std::optional<double> NextArrival(double now) override;
  Request Take(double now) override;
  void OnEnd(const Record& record) override;

  const std::vector<RampStep>& steps() const { return steps_; }  // the last may be unfinished

 private:
  std::optional<double> StepArrival(double now) const;  // of the current step
  void BeginStep(double level, double now);
  // After a step's end: another one, unless the last two brought no more than those before, or `last` is reached.
  void MaybeBeginNext(double now);

  const RampOptions options_;
  Traffic traffic_;
  std::vector<RampStep> steps_;
  std::optional<PoissonArrivals> arrivals_;
  int64_t running_ = 0;
  bool over_ = false;
};

}  // namespace moestro::loadtest
