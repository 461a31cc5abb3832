// "HybriMoE: Hybrid CPU-GPU Scheduling and Cache Management for Efficient MoE Inference" (DAC '25): its figures, beside
// replays of recordings on the planner of common/experts.
#pragma once

#include <string>
#include <vector>

#include "common/roofline/roofline.h"
#include "services/cli/paper/claims.h"

namespace moestro::cli {

// What --figure takes.
std::vector<std::string> HybriMoEFigures();

// `machine`: the paper's. `figure`: one of HybriMoEFigures(), or empty for all.
PaperReport MakeHybriMoEReport(const roofline::Machine& machine, const std::string& figure);

}  // namespace moestro::cli
