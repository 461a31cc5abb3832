// `moestro simulate --experts`: what schedules and policies of routed experts would take on a machine described by a
// file, from a recording of a model's routing. Replays on the planner that decode uses (common/experts).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/roofline/roofline.h"

namespace moestro::cli {

struct SimulateExpertsFlags {
  std::string model;
  std::string recording;
  std::vector<double> cache_ratios = {0.25, 0.5, 0.75};
  bool prompts = false;
  bool json = false;
};

// Prints the result. INVALID_ARGUMENT names the flag, or what the recording and the model differ in.
absl::Status SimulateExperts(const roofline::Machine& machine, const SimulateExpertsFlags& flags);

}  // namespace moestro::cli
