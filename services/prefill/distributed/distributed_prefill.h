// A prompt on several devices of this process: a thread for each rank, and the caller, who watches over them.
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

namespace moestro::prefill {

// How the ranks of one run find each other: `Join` is called once by each rank's thread.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual absl::StatusOr<std::unique_ptr<collective::Communicator>> Join(int rank, device::Device& device) = 0;
  // A failure of which no rank may be able to tell, and the rank at fault. Thread-safe.
  virtual absl::Status failure() const { return absl::OkStatus(); }
  virtual int failed_rank() const { return -1; }
  // Whether devices have failed to copy from each other: they may do through the host's memory. Thread-safe.
  virtual bool copies_failed() const { return false; }
};
// Through memory of this process.
std::unique_ptr<RankGroup> NewInProcessRankGroup(int ranks, const collective::SharedOptions& options);
// From device to device: collective::CheckPeers has found that they can.
std::unique_ptr<RankGroup> NewPeerRankGroup(int ranks, const collective::SharedOptions& options);

class DistributedPrefill {  // one run at a time
 public:
  struct Options {
    roofline::ExpertParallelism experts = roofline::ExpertParallelism::kSmall;
    MemoryLimits limits;  // of each rank
    // A new group of so many ranks, for every run.
    std::function<std::unique_ptr<RankGroup>(int ranks)> new_group;
    // When a run is over, ranks have so long to end what they are at, and those that others have waited for in vain
    // `stalled_patience_seconds`; then they are left behind.
    double patience_seconds = 4;
    double stalled_patience_seconds = 0.5;
  };
  // Spec and weights outlive it, and every rank that is left behind; `weights` point into host memory that stays. 1 or
  // more ranks.
  DistributedPrefill(const weights::ModelSpec& spec, const model::ModelWeights& weights, std::vector<RankSetup> ranks,
                     const Options& options)
      : spec_(spec), weights_(weights), ranks_(std::move(ranks)), parts_(PartsOf(ranks_)), options_(options) {}

  // Whether rows at these positions, after what is cached, fit the devices. RESOURCE_EXHAUSTED names the rank.
  absl::Status CheckFits(IndexRange positions, model::MlaForm form) const;
  // Into how many passes, EvenPart each, these positions must be cut at least for all of them to fit. No pass is
  // shorter than limits.min_pass_rows, but for a single one. RESOURCE_EXHAUSTED if that does not do.
  absl::StatusOr<int64_t> Passes(IndexRange positions, model::MlaForm form) const;

  // As StreamPrefill::Run, by all ranks: KV and logits differ from one device's by the rounding of merged partial
  // results. on_layer is called when rank 0 has done a layer, on_step soon after steps of any rank, on_pass once, when
  // all rows are done. After a failure nothing of the run uses rows or pages any more, and no device but those of ranks
  // that are left behind. One that a rank's `check` caused has lost nothing: see kept().
  absl::Status Run(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages, model::MlaForm form,
                   absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                   absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

  // Where a run stands between two layers.
  struct Kept {
    int64_t layers = 0;            // that all rows have gone through, and whose KV is in the pages
    std::vector<float> residuals;  // what they have left: [rows, hidden_size]; nothing if layers is 0
  };
  // What is left of the last run, which failed: another may begin there.
  Kept& kept() { return kept_; }
  // Layers that rank 0 has done in the last run.
  int64_t layers_done() const { return layers_done_; }
  // Of the last run; empty for ranks that were left behind.
  const std::vector<RankReport>& reports() const { return reports_; }
  // Whose fault it was that the last run failed; nobody's if it was interrupted.
  const std::vector<int>& failed_ranks() const { return failed_ranks_; }
  // Of the last run: RankGroup's.
  bool copies_failed() const { return copies_failed_; }
  // Expires when the rank of the last run has let go of its device.
  std::weak_ptr<const void> in_use(int rank) const { return in_use_[static_cast<size_t>(rank)]; }

 private:
  struct Shared;
  struct Share;
  static ProportionalParts PartsOf(std::span<const RankSetup> ranks);
  static void RunShare(Shared& shared, Share& share);
  // Until all ranks have ended, or the patience with those that have not. What interrupted the run, if anything did.
  absl::Status Watch(Shared& shared, absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events) const;

  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  const std::vector<RankSetup> ranks_;
  const ProportionalParts parts_;  // of the ranks
  const Options options_;
  Kept kept_;
  int64_t layers_done_ = 0;
  std::vector<RankReport> reports_;
  std::vector<int> failed_ranks_;
  bool copies_failed_ = false;
  std::vector<std::weak_ptr<const void>> in_use_;
};

}  // namespace moestro::prefill
