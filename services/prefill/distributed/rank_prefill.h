// One rank's part of a distributed stream-loading prefill (DSLP): its stripes of the prompt, its experts of every
// layer, streamed through its own ring. README.md.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/collective/communicator.h"
#include "common/device/device.h"
#include "common/engine/rank_kernels.h"
#include "common/model/binding.h"
#include "common/roofline/traffic.h"
#include "services/prefill/distributed/expert_exchange.h"
#include "services/prefill/stream/memory_plan.h"
#include "services/prefill/stream/pipeline.h"

namespace moestro::prefill {

struct RankSetup {
  device::Device* device = nullptr;
  engine::RankKernels* kernels = nullptr;
  // Asked by the rank's thread every few milliseconds. Its error says that the device must be given back: all ranks end
  // before the next layer that none has begun, by this rank's fault. May be null.
  std::function<absl::Status()> check = nullptr;
  // Keeps all of it, and what it refers to, as long as a thread uses it; null: it outlives all threads.
  std::shared_ptr<void> owner = nullptr;
  // Its part of rows and experts, in proportion to the other ranks' shares: about how fast it computes beside them.
  int64_t share = 1;
};

struct RankReport {
  MemoryPlan plan;
  PipelineReport pipeline;
  std::vector<float> residuals;  // of a run that ended early: what the layers so far have left of the rank's rows
  collective::OperationCounters exchanges[collective::kOperations];
};

struct RankCallbacks {
  absl::FunctionRef<absl::Status()> interrupted;
  absl::FunctionRef<void(const Step& step)> on_released;
  // row: of the rank's.
  absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits;
  // As RunPipeline's; all ranks end before the same layer.
  absl::FunctionRef<bool(const Step& next)> ends_before = NeverEndsEarly;
};

// Shares of a prompt as rows of the ranks: run.rows refers to them.
std::vector<model::EngineRow> RankRows(std::span<const model::EngineRow> rows, const ZigZagSplit& split, int rank);

// How the rank would be run. RESOURCE_EXHAUSTED if its device is too small: there is one pass only.
absl::StatusOr<MemoryPlan> PlanRank(const RankSetup& setup, const weights::ModelSpec& spec,
                                    const model::ModelWeights& weights, roofline::ExpertParallelism experts,
                                    const RankRun& run, const MemoryLimits& limits);

// Returns OK when all ranks are done, or have ended early, and the KV of all rows is in the pages. A failure of this
// rank, an exception included, becomes everybody's. Runs on the thread that has joined the communicator.
absl::Status RunRank(const RankSetup& setup, const weights::ModelSpec& spec, const model::ModelWeights& weights,
                     roofline::ExpertParallelism experts, const RankRun& run, const MemoryLimits& limits,
                     collective::Communicator& communicator, const RankCallbacks& callbacks, RankReport* report);

}  // namespace moestro::prefill
