// One rank's part of a distributed stream-loading prefill (DSLP): its stripes of the prompt, its experts of every
// layer, streamed through its own ring. README.md.
#pragma once

#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/collective/communicator.h"
#include "common/device/device.h"
#include "common/model/binding.h"
#include "services/prefill/distributed/rank_kernels.h"
#include "services/prefill/distributed/traffic.h"
#include "services/prefill/stream/memory_plan.h"
#include "services/prefill/stream/pipeline.h"

namespace moestro {

struct RankSetup {
  device::Device* device = nullptr;
  RankKernels* kernels = nullptr;
};

struct RankReport {
  MemoryPlan plan;
  PipelineReport pipeline;
  collective::OperationCounters exchanges[collective::kOperations];
};

struct RankCallbacks {
  absl::FunctionRef<absl::Status()> interrupted;
  absl::FunctionRef<void(const Step& step)> on_released;
  // row: of the rank's.
  absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits;
};

// Shares of a prompt as rows of the ranks: run.rows refers to them.
std::vector<EngineRow> RankRows(std::span<const EngineRow> rows, const ZigZagSplit& split, int rank);

// Returns OK when all ranks are done and the KV of all rows is in the pages. A failure of this rank becomes
// everybody's. Runs on the thread that has joined the communicator.
absl::Status RunRank(const RankSetup& setup, const ModelSpec& spec, const ModelWeights& weights,
                     ExpertParallelism experts, const RankRun& run, const MemoryLimits& limits,
                     collective::Communicator& communicator, const RankCallbacks& callbacks, RankReport* report);

}  // namespace moestro
