// The part of `moestro simulate` for several devices.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/cli/plan/hardware_file.h"
#include "services/cli/plan/paper_claims.h"
#include "services/prefill/stream/simulate.h"

namespace moestro::cli {

struct SimulateRanksFlags {
  std::string model;  // one of PublishedModels()
  std::vector<int64_t> tokens;
  prefill::MemoryLimits limits;
  DType activations = DType::kBF16;  // as in StepLoad
  int ranks = 2;
  bool paper = false;
  bool json = false;
};

// Describes, in a line each, the products that the simulation computes, and where their rates come from.
std::string ProductsLine(const GpuMachine& machine, DType activations);
std::string RatesLine(const GpuMachine& machine);
// The limits with one launch per expert, as "Cloud-grade SLOs for local MoE" computes them (figure 5).
prefill::MemoryLimits InPapersWay(prefill::MemoryLimits limits);
// The costs with products of FP8 values. How its kernels cut rows, it does not say.
engine::CostOptions CostsInPapersWay(engine::CostOptions costs = {});

// The paper's figures for DeepSeek-V3 on two devices, beside simulated ones.
absl::StatusOr<PaperComparison> CompareRanks(const GpuMachine& machine, const prefill::MemoryLimits& limits);
// Its figure 3: for each of the three ways {way, layer_seconds, steps: {name: seconds}} of a layer with experts.
absl::StatusOr<nlohmann::ordered_json> PaperLayer(const device::HardwareSpec& hardware,
                                                  const prefill::MemoryLimits& limits, DType activations);

// Prints prompts of each length on one device and on several, with standard EP and with SmallEP. Also prints a layer
// with experts step by step. If a length does not fit in one way, that way is skipped, and a line gives the reason. It
// is an error if no length fits in any way. The layer is that of 20K tokens; ways that do not fit are skipped as well.
absl::Status SimulateSeveral(const GpuMachine& machine, const SimulateRanksFlags& flags);

}  // namespace moestro::cli
