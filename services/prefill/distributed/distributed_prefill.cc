#include "services/prefill/distributed/distributed_prefill.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exceptions.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/collective/peer/peer_communicator.h"
#include "common/model/batch.h"

namespace moestro::prefill {
namespace {

using SteadyClock = std::chrono::steady_clock;

// How often the caller looks around.
constexpr std::chrono::milliseconds kPoll{10};

class InProcessRankGroup final : public RankGroup {
 public:
  InProcessRankGroup(int ranks, const collective::SharedOptions& options) : memory_(ranks), options_(options) {}
  absl::StatusOr<std::unique_ptr<collective::Communicator>> Join(int rank, device::Device& device) override {
    return collective::JoinRegion(memory_.region(), rank, device, options_);
  }

 private:
  const collective::HeapRegion memory_;
  const collective::SharedOptions options_;
};

class PeerRankGroup final : public RankGroup {
 public:
  PeerRankGroup(int ranks, const collective::SharedOptions& options) : group_(ranks), options_(options) {}
  absl::StatusOr<std::unique_ptr<collective::Communicator>> Join(int rank, device::Device& device) override {
    return collective::JoinPeers(group_, rank, device, options_);
  }
  absl::Status failure() const override { return group_.failure(); }
  int failed_rank() const override { return group_.failed_rank(); }
  bool copies_failed() const override { return group_.copies_failed(); }

 private:
  collective::PeerGroup group_;
  const collective::SharedOptions options_;
};

std::string RankName(int rank) { return absl::StrCat("rank ", rank); }

}  // namespace

std::unique_ptr<RankGroup> NewInProcessRankGroup(int ranks, const collective::SharedOptions& options) {
  return std::make_unique<InProcessRankGroup>(ranks, options);
}

std::unique_ptr<RankGroup> NewPeerRankGroup(int ranks, const collective::SharedOptions& options) {
  return std::make_unique<PeerRankGroup>(ranks, options);
}

// What the threads of a run share. It lives as long as one of them.
struct DistributedPrefill::Shared {
  Shared(const weights::ModelSpec& model, const model::ModelWeights& model_weights, const Options& options,
         const ZigZagSplit& stripes, const kv::KvPages& pages, int64_t first_layer)
      : spec(model),
        weights(model_weights),
        experts(options.experts),
        limits(options.limits),
        split(stripes),
        revocable_pages(pages),
        group(options.new_group(stripes.ranks())),
        begun(first_layer - 1) {}

  // The rank's thread will do no more. `failed`: whose fault it is.
  void End(Share& share, const absl::Status& status, int failed);
  // The rank must give its device back, which is why nobody begins another layer.
  void Leave(int rank, const absl::Status& reason);
  // Whether the step belongs to a layer that nobody begins any more.
  bool EndsBefore(const Step& next);

  const weights::ModelSpec& spec;
  const model::ModelWeights& weights;
  const roofline::ExpertParallelism experts;
  const MemoryLimits limits;
  const ZigZagSplit split;
  RevocablePages revocable_pages;
  const std::unique_ptr<RankGroup> group;

  Mutex mutex;
  Condition changed;
  absl::Status failure ABSL_GUARDED_BY(mutex);        // the first, which ends all ranks
  int failed_rank ABSL_GUARDED_BY(mutex) = -1;        // whose fault it is
  int ended ABSL_GUARDED_BY(mutex) = 0;               // ranks
  int64_t layers_done ABSL_GUARDED_BY(mutex) = 0;     // by rank 0
  int64_t steps_done ABSL_GUARDED_BY(mutex) = 0;      // by any
  int64_t begun ABSL_GUARDED_BY(mutex);               // the last layer that a rank has begun
  std::optional<int64_t> end ABSL_GUARDED_BY(mutex);  // the layer before which all ranks end early
  absl::Status left ABSL_GUARDED_BY(mutex);           // why
  int leaving_rank ABSL_GUARDED_BY(mutex) = -1;
};

// A rank's part of a run, and what came of it: its thread's alone until it has ended.
struct DistributedPrefill::Share {
  // Between the rank's rows and their places in a prompt whose rows begin at `begin`.
  void TakeResiduals(int64_t begin, int64_t hidden, std::span<const float> from) {
    residuals.resize(rows.size() * hidden);
    for (size_t row = 0; row < rows.size(); ++row) {
      std::copy_n(from.data() + (rows[row].position - begin) * hidden, hidden, residuals.data() + row * hidden);
    }
  }
  void GiveResiduals(std::span<const float> own, int64_t begin, int64_t hidden, std::span<float> to) const {
    for (size_t row = 0; row < rows.size(); ++row) {
      std::copy_n(own.data() + row * hidden, hidden, to.data() + (rows[row].position - begin) * hidden);
    }
  }

  RankSetup setup;
  RankRun run;
  std::vector<model::EngineRow> rows;
  std::map<int64_t, std::vector<float>> logits;  // by position
  std::vector<float> residuals;                  // of `rows`; empty: not wanted
  RankReport report;
  bool ended = false;  // under Shared::mutex
};

void DistributedPrefill::Shared::End(Share& share, const absl::Status& status, int failed) {
  MutexLock lock(mutex);
  share.ended = true;
  ++ended;
  if (!status.ok() && failure.ok()) {
    failure = failed == share.run.rank ? Annotate(status, RankName(failed)) : status;
    failed_rank = failed;
  }
  changed.notify_all();
}

void DistributedPrefill::Shared::Leave(int rank, const absl::Status& reason) {
  MutexLock lock(mutex);
  if (end || begun + 1 >= spec.num_layers) return;  // there is little left to do
  end = begun + 1;
  left = Annotate(reason, RankName(rank));
  leaving_rank = rank;
}

bool DistributedPrefill::Shared::EndsBefore(const Step& next) {
  MutexLock lock(mutex);
  if (end && next.layer >= *end) return true;
  begun = std::max(begun, next.layer);
  return false;
}

void DistributedPrefill::RunShare(Shared& shared, Share& share) {
  const int rank = share.run.rank;
  int failed = rank;
  const auto interrupted = [&]() -> absl::Status {
    if (share.setup.check) {
      if (const absl::Status status = share.setup.check(); !status.ok()) shared.Leave(rank, status);
    }
    MutexLock lock(shared.mutex);
    return shared.failure;
  };
  const auto on_released = [&](const Step& step) {
    MutexLock lock(shared.mutex);
    ++shared.steps_done;
    if (rank != 0 || !step.ends_layer) return;
    ++shared.layers_done;
    shared.changed.notify_all();
  };
  const auto ends_before = [&](const Step& next) { return shared.EndsBefore(next); };
  const auto on_logits = [&](int64_t row, std::span<const float> logits) {
    share.logits[share.rows[static_cast<size_t>(row)].position].assign(logits.begin(), logits.end());
  };
  const absl::Status status = CatchExceptions([&]() -> absl::Status {
    MOE_ASSIGN_OR_RETURN(const auto communicator, shared.group->Join(rank, *share.setup.device));
    const absl::Status run = RunRank(share.setup, shared.spec, shared.weights, shared.experts, share.run, shared.limits,
                                     *communicator, {interrupted, on_released, on_logits, ends_before}, &share.report);
    if (communicator->failed_rank() >= 0) failed = communicator->failed_rank();
    return run;
  });
  shared.End(share, status, failed);
}

ProportionalParts DistributedPrefill::PartsOf(std::span<const RankSetup> ranks) {
  std::vector<int64_t> shares;
  for (const RankSetup& rank : ranks) shares.push_back(rank.share);
  return ProportionalParts(shares);
}

absl::Status DistributedPrefill::CheckFits(IndexRange positions, model::MlaForm form) const {
  const ZigZagSplit split(positions.begin, positions.end, parts_);
  std::vector<model::EngineRow> rows(static_cast<size_t>(positions.size()));
  rows.back().needs_logits = true;
  for (int rank = 0; rank < split.ranks(); ++rank) {
    const std::vector<model::EngineRow> own = RankRows(rows, split, rank);
    const auto plan = PlanRank(ranks_[static_cast<size_t>(rank)], spec_, weights_, options_.experts,
                               {&split, rank, own, nullptr, form}, options_.limits);
    MOE_RETURN_IF_ERROR(Annotate(plan.status(), RankName(rank)));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> DistributedPrefill::Passes(IndexRange positions, model::MlaForm form) const {
  absl::Status fits;
  for (int64_t passes = 1; passes <= positions.size(); ++passes) {
    if (passes > 1 && CeilDiv(positions.size(), passes) < options_.limits.min_pass_rows) break;
    fits = absl::OkStatus();
    // Each: how evenly ranks share its rows depends on where it begins. The last has most before it.
    for (int64_t pass = passes - 1; fits.ok() && pass >= 0; --pass) {
      const IndexRange part = EvenPart(positions.size(), pass, passes);
      fits = CheckFits({positions.begin + part.begin, positions.begin + part.end}, form);
    }
    if (fits.ok()) return passes;
  }
  return fits;
}

absl::Status DistributedPrefill::Run(std::span<const model::EngineRow> rows, std::span<const kv::KvPages> pages,
                                     model::MlaForm form, absl::FunctionRef<absl::Status()> interrupted,
                                     const StreamEvents& events,
                                     absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  kept_ = {};
  layers_done_ = 0;
  reports_.assign(ranks_.size(), {});
  failed_ranks_.clear();
  copies_failed_ = false;
  in_use_.assign(ranks_.size(), {});
  if (!pages.empty()) MOE_RETURN_IF_ERROR(model::CheckBatch(spec_, std::ssize(rows), {rows, pages, form}));
  const int64_t begin = rows.front().position;
  const auto shared =
      std::make_shared<Shared>(spec_, weights_, options_, ZigZagSplit(begin, begin + std::ssize(rows), parts_),
                               pages.empty() ? kv::KvPages() : pages.front(), events.first_layer);

  // All of them before the first thread: what is thrown here must find none that runs.
  std::vector<std::shared_ptr<Share>> shares;
  std::vector<std::thread> threads(ranks_.size());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto share = shares.emplace_back(std::make_shared<Share>());
    const int rank = static_cast<int>(i);
    share->setup = ranks_[i];
    share->rows = RankRows(rows, shared->split, rank);
    if (!events.residuals.empty()) share->TakeResiduals(begin, spec_.hidden_size, events.residuals);
    share->run = {&shared->split,    rank, share->rows, &shared->revocable_pages, form, share->residuals,
                  events.first_layer};
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const std::shared_ptr<Share>& share = shares[i];
    const absl::Status started = CatchExceptions([&] {
      threads[i] = std::thread([shared, share] { RunShare(*shared, *share); });
      return absl::OkStatus();
    });
    if (!started.ok()) shared->End(*share, started, static_cast<int>(i));
  }
  const absl::Status interruption = Watch(*shared, interrupted, events);

  // Whoever has not ended is left behind: from here on it finds the pages revoked, and what it holds is its own.
  shared->revocable_pages.Revoke();
  std::map<int64_t, std::vector<float>> logits;
  MutexLock lock(shared->mutex);
  const absl::Status failure = interruption.ok() ? shared->failure : interruption;
  if (interruption.ok() && shared->failed_rank >= 0) failed_ranks_.push_back(shared->failed_rank);
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i]->ended) {
      reports_[i] = std::move(shares[i]->report);
      logits.merge(shares[i]->logits);
      continue;
    }
    in_use_[i] = shares[i];
    const int rank = static_cast<int>(i);
    if (interruption.ok() && rank != shared->failed_rank) failed_ranks_.push_back(rank);
    threads[i].detach();
  }
  layers_done_ = shared->layers_done;
  copies_failed_ = shared->group->copies_failed();
  // Every rank has ended before the same layer, or none.
  const bool left = failure.ok() && reports_.front().pipeline.ended_early;
  if (left) {
    failed_ranks_.push_back(shared->leaving_rank);
    kept_ = {*shared->end, std::vector<float>(rows.size() * spec_.hidden_size)};
  }
  const absl::Status reason = left ? shared->left : failure;
  lock.unlock();
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  for (size_t i = 0; left && i < shares.size(); ++i) {
    shares[i]->GiveResiduals(std::exchange(reports_[i].residuals, {}), begin, spec_.hidden_size, kept_.residuals);
  }
  MOE_RETURN_IF_ERROR(reason);
  if (!events.residuals.empty()) {
    for (const auto& share : shares) share->GiveResiduals(share->residuals, begin, spec_.hidden_size, events.residuals);
  }
  if (events.on_pass) events.on_pass({0, std::ssize(rows)});
  for (const auto& [position, numbers] : logits) on_logits(position - begin, numbers);
  return absl::OkStatus();
}

absl::Status DistributedPrefill::Watch(Shared& shared, absl::FunctionRef<absl::Status()> interrupted,
                                       const StreamEvents& events) const {
  const auto ranks = static_cast<int>(ranks_.size());
  const IndexRange rows{0, shared.split.tokens()};
  absl::Status interruption;
  std::optional<SteadyClock::time_point> failed_at;
  int64_t reported = 0;
  int64_t steps = 0;
  MutexLock lock(shared.mutex);
  while (true) {
    const int64_t layers = shared.layers_done;
    const bool goes_on = shared.steps_done > steps;
    steps = shared.steps_done;
    lock.unlock();
    if (goes_on && events.on_step) events.on_step();
    for (; reported < layers; ++reported) {
      if (events.on_layer) events.on_layer(rows, events.first_layer + reported);
    }
    if (!failed_at) interruption = interrupted();
    lock.lock();
    if (shared.ended == ranks && reported == shared.layers_done) return interruption;
    if (shared.failure.ok()) shared.failure = interruption;
    if (shared.failure.ok()) {
      shared.failure = shared.group->failure();
      if (!shared.failure.ok()) shared.failed_rank = shared.group->failed_rank();
    }
    if (!shared.failure.ok()) {
      const auto now = SteadyClock::now();
      if (!failed_at) failed_at = now;
      // The others have not been waited for in vain: they end, if the machine is not too busy to let them.
      const bool stalled = interruption.ok() && absl::IsDeadlineExceeded(shared.failure) && shared.ended == ranks - 1;
      const std::chrono::duration<double> patience(stalled ? options_.stalled_patience_seconds
                                                           : options_.patience_seconds);
      if (now - *failed_at >= patience) return interruption;
    }
    shared.changed.wait_for(lock, kPoll);
  }
}

}  // namespace moestro::prefill
