// "TriMoE: Augmenting GPU with AMX-Enabled CPU and DIMM-NDP for High-Throughput MoE Inference via Offloading": its
// figures, beside plans of common/experts/domains on its machine.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/experts/domains/costs.h"
#include "services/cli/paper/claims.h"
#include "services/cli/plan/hardware_file.h"

namespace moestro::cli {

// `directory`: deploy/hardware.
absl::StatusOr<NearDataMachine> ReadTriMoeMachine(const std::string& directory);

// What --figure takes.
std::vector<std::string> TriMoeFigures();

// `figure`: one of TriMoeFigures(), or empty for all.
PaperReport MakeTriMoeReport(const NearDataMachine& machine, experts::Contention contention, const std::string& figure);

}  // namespace moestro::cli
