// Raises the load step by step until goodput no longer rises.
#pragma once

#include <string>
#include <vector>

#include "loadtest/records/statistics.h"
#include "loadtest/workloads/poisson.h"
#include "loadtest/workloads/traffic.h"
#include "loadtest/workloads/workload.h"

namespace moestro::loadtest {

struct RampOptions {
  bool open_loop = false;  // steps are rates (requests per second); otherwise requests at a time
  double first = 1;
  double factor = 2;  // between steps; levels of a closed loop are whole numbers
  double last = 256;
  double step_seconds = 15;  // requests begin for this long, then the step waits for the last
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
  // Requests within the targets per second, including the wait for the last ones.
  double goodput() const { return end > begin ? static_cast<double>(good) / (end - begin) : 0; }
};

// The first finished step within 5 % of the best goodput: more load gains nothing. Empty if no step follows it, because
// goodput may rise further, and empty without a good request.
std::optional<size_t> FindKnee(const std::vector<RampStep>& steps);

// "8 at a time", "0.25 per second": the group of a step's requests. No two steps have the same.
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
  // After a step: begins another, unless the last two gained nothing, or `last` is reached.
  void MaybeBeginNext(double now);

  const RampOptions options_;
  Traffic traffic_;
  std::vector<RampStep> steps_;
  std::optional<PoissonArrivals> arrivals_;
  int64_t running_ = 0;
  bool over_ = false;
};

}  // namespace moestro::loadtest
