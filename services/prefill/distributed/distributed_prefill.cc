#include "services/prefill/distributed/distributed_prefill.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "common/base/status.h"
#include "common/model/batch.h"

namespace moestro {
namespace {

class HeapGroup final : public Group {
 public:
  HeapGroup(int ranks, const collective::SharedOptions& options) : memory_(ranks), options_(options) {}
  absl::StatusOr<std::unique_ptr<collective::Communicator>> Join(int rank, device::Device& device) override {
    return collective::JoinRegion(memory_.region(), rank, device, options_);
  }

 private:
  const collective::HeapRegion memory_;
  const collective::SharedOptions options_;
};

absl::Status NeverInterrupted() { return absl::OkStatus(); }
void NobodyAsks(const Step&) {}

}  // namespace

std::unique_ptr<Group> NewHeapGroup(int ranks, const collective::SharedOptions& options) {
  return std::make_unique<HeapGroup>(ranks, options);
}

// A rank's part of a run, and what came of it.
struct DistributedPrefill::Share {
  RankRun run;
  std::vector<EngineRow> rows;
  std::map<int64_t, std::vector<float>> logits;  // by position
  absl::Status status;
};

absl::Status DistributedPrefill::Run(std::span<const EngineRow> rows, std::span<const KvPages> pages, MlaForm form,
                                     absl::FunctionRef<absl::Status()> interrupted, const StreamEvents& events,
                                     absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  reports_.assign(ranks_.size(), {});
  if (!pages.empty()) MOE_RETURN_IF_ERROR(CheckBatch(spec_, std::ssize(rows), {rows, pages, form}));
  const int64_t begin = rows.front().position;
  const ZigZagSplit split(begin, begin + std::ssize(rows), static_cast<int>(ranks_.size()));
  std::vector<Share> shares(ranks_.size());
  for (int rank = 0; rank < split.ranks(); ++rank) {
    Share& share = shares[static_cast<size_t>(rank)];
    share.rows = RankRows(rows, split, rank);
    share.run = {&split, rank, share.rows, pages.empty() ? KvPages() : pages.front(), form};
  }

  const std::unique_ptr<Group> group = options_.new_group(split.ranks());
  std::vector<std::thread> threads;
  for (size_t rank = 1; rank < shares.size(); ++rank) {
    threads.emplace_back([&, rank] { RunShare(shares[rank], *group, NeverInterrupted, NobodyAsks); });
  }
  const auto on_released = [&](const Step& step) {
    if (step.ends_layer && events.on_layer) events.on_layer({0, std::ssize(rows)}, step.layer);
  };
  RunShare(shares[0], *group, interrupted, on_released);
  for (std::thread& thread : threads) thread.join();

  MOE_RETURN_IF_ERROR(shares[0].status);  // the first failure of any rank, if there was one
  if (events.on_pass) events.on_pass({0, std::ssize(rows)});
  std::map<int64_t, std::vector<float>> logits;
  for (Share& share : shares) logits.merge(share.logits);
  for (const auto& [position, numbers] : logits) on_logits(position - begin, numbers);
  return absl::OkStatus();
}

void DistributedPrefill::RunShare(Share& share, Group& group, absl::FunctionRef<absl::Status()> interrupted,
                                  absl::FunctionRef<void(const Step& step)> on_released) {
  const auto rank = static_cast<size_t>(share.run.rank);
  const auto communicator = group.Join(share.run.rank, *ranks_[rank].device);
  if (!communicator.ok()) {  // the others learn of it when they wait for this rank
    share.status = communicator.status();
    return;
  }
  const auto on_logits = [&](int64_t row, std::span<const float> logits) {
    share.logits[share.rows[static_cast<size_t>(row)].position].assign(logits.begin(), logits.end());
  };
  share.status = RunRank(ranks_[rank], spec_, weights_, options_.experts, share.run, options_.limits, **communicator,
                         {interrupted, on_released, on_logits}, &reports_[rank]);
}

}  // namespace moestro
