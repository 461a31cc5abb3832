// "MoE-Lightning: High-Throughput MoE Inference on Memory-constrained GPUs" (ASPLOS '25): its rooflines, batches and
// throughput, beside the formulas of common/roofline.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/roofline/roofline.h"
#include "services/cli/paper/claims.h"

namespace moestro::cli {

// By the names of their files, without .json.
using MoeLightningMachines = std::map<std::string, roofline::Machine>;

// Reads those that the report needs. `directory`: deploy/hardware.
absl::StatusOr<MoeLightningMachines> ReadMoeLightningMachines(const std::string& directory);

// What --figure takes.
std::vector<std::string> MoeLightningFigures();

// `figure`: one of MoeLightningFigures(), or empty for all.
PaperReport MakeMoeLightningReport(const MoeLightningMachines& machines, const std::string& figure);

}  // namespace moestro::cli
