// The figures of "Cloud-grade SLOs for local MoE" for prompts that stream through one device, beside simulated ones.
#pragma once

#include "absl/status/statusor.h"
#include "services/cli/plan/hardware_file.h"
#include "services/cli/plan/paper_claims.h"
#include "services/prefill/stream/simulate.h"

namespace moestro::cli {

bool IsTransferBound(const prefill::StreamCounters& counters);

// DeepSeek-V3. As built with products of BF16 values, in the paper's way with those of FP8 values; whatever
// costs.activations says.
absl::StatusOr<PaperComparison> CompareStream(const GpuMachine& machine, const prefill::MemoryLimits& limits,
                                              const engine::CostOptions& costs);

}  // namespace moestro::cli
