// A prompt on several devices of this process: a thread for each rank.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/collective/shared/shared_communicator.h"
#include "common/model/binding.h"
#include "services/prefill/distributed/rank_prefill.h"
#include "services/prefill/stream/stream_prefill.h"

namespace moestro {

// How the ranks of one run find each other: `Join` is called once by each rank's thread.
class Group {
 public:
  virtual ~Group() = default;
  virtual absl::StatusOr<std::unique_ptr<collective::Communicator>> Join(int rank, device::Device& device) = 0;
};
// Through memory of this process.
std::unique_ptr<Group> NewHeapGroup(int ranks, const collective::SharedOptions& options);

class DistributedPrefill {  // one run at a time
 public:
  struct Options {
    ExpertParallelism experts = ExpertParallelism::kSmall;
    MemoryLimits limits;  // of each rank
    // A new group of so many ranks, for every run.
    std::function<std::unique_ptr<Group>(int ranks)> new_group;
  };
  // All outlive it. `weights` point into host memory that stays. 1 or more ranks.
  DistributedPrefill(const ModelSpec& spec, const ModelWeights& weights, std::vector<RankSetup> ranks,
                     const Options& options)
      : spec_(spec), weights_(weights), ranks_(std::move(ranks)), options_(options) {}

  // As StreamPrefill::Run, by all ranks: KV and logits differ from one device's by the rounding of merged partial
  // results. on_layer is called when rank 0 has done a layer, on_pass once, when all rows are done.
  absl::Status Run(std::span<const EngineRow> rows, std::span<const KvPages> pages, MlaForm form,
                   absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                   absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

  // Of the last run.
  const std::vector<RankReport>& reports() const { return reports_; }

 private:
  struct Share;
  void RunShare(Share& share, Group& group, absl::FunctionRef<absl::Status()> interrupted,
                absl::FunctionRef<void(const Step& step)> on_released);

  const ModelSpec& spec_;
  const ModelWeights& weights_;
  const std::vector<RankSetup> ranks_;
  const Options options_;
  std::vector<RankReport> reports_;
};

}  // namespace moestro
