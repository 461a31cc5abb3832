// What a step takes, cut or not, from what its parts take.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/experts/expert_costs.h"

namespace moestro::decode {

// Seconds of a layer with experts, for a micro-batch of some rows.
struct LayerTimes {
  double attend = 0;    // device: until x and choices are there; with what is left of the layer before
  double shared = 0;    // device: the shared expert
  double experts = 0;   // CPU: the routed experts
  double transfer = 0;  // x and choices to the host, and sums back, half of it each
  double sync = 0;      // from the device's end to the thread that waits for it
};

// Of `layers` layers, with one micro-batch or two that take turns: on the device, and on the CPU, one after the other;
// a micro-batch's own work in order.
double StepSeconds(std::span<const LayerTimes> lanes, int64_t layers);

class CostModel {
 public:
  struct Point {
    int64_t rows = 0;
    LayerTimes times;
  };
  // Points in ascending order of rows, at least one. spins: a thread whose batch is alone does not sleep.
  CostModel(std::vector<Point> points, int64_t layers, bool spins = false)
      : points_(std::move(points)), layers_(layers), spins_(spins) {}

  // Between two points in proportion; above the last one in proportion to its rows; below the first one as that.
  LayerTimes At(int64_t rows) const;
  // For the scheduler of experts: what the device computes beside them, and for how long the bus is idle between them.
  void AddTo(experts::ExpertCosts& costs) const;
  double OneBatch(int64_t rows) const;
  double TwoBatches(int64_t first, int64_t second) const;

 private:
  std::vector<Point> points_;
  int64_t layers_;
  bool spins_;
};

}  // namespace moestro::decode
