// Continuous batching: one thread, one forward pass per step over up to max_batch sequences. Sequences join and leave
// between steps. A sequence's tokens do not depend on its neighbours: the engine is batch-invariant.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "absl/status/statusor.h"
#include "common/base/heartbeat.h"
#include "common/base/mutex.h"
#include "common/platform/device_loan.h"
#include "common/platform/shared_cores.h"
#include "services/decode/step_runner.h"

namespace moestro::decode {

class DecodeLoop {
 public:
  struct Options {
    int max_batch = 0;  // sequences in one step, including those still in their prompt; the oldest of those that run
    ChunkSizer::Options chunks;
    model::RoutingTraceWriter* trace = nullptr;  // records the experts chosen in the forward pass; null: none
    // The device of the forward pass, which others may borrow while the loop has no work; null: never lent.
    LentDevice* lent_device = nullptr;
    // The cores of the forward pass, which follow the work; null: the pool's workers stay as they are.
    SharedCores* cores = nullptr;
    // The loop stops waiting for a borrower that keeps the device longer than this.
    std::chrono::milliseconds device_patience{5000};
    int64_t max_rows() const { return max_batch + chunks.max_rows; }
  };

  // REQUIRES: forward.max_rows() >= options.max_rows(). All arguments must outlive the loop.
  DecodeLoop(ForwardPass& forward, kv::KvPool& pool, LeaseTable& leases, DecodeMetrics& metrics,
             const Options& options);
  ~DecodeLoop();  // ends all sequences with UNAVAILABLE

  struct FirstToken {
    int32_t id = 0;        // sampled by prefill; the next to be computed
    int64_t position = 0;  // the number of the lease's tokens, all of which are valid
  };
  // Start continues after prefill. Prompt first computes the lease's tokens that are not valid. From then until Remove
  // the loop owns the lease, and releases its pages when the sequence ends. INVALID_ARGUMENT: the continuation does not
  // fit the lease or the model. ABORTED: the lease was preempted.
  absl::StatusOr<std::shared_ptr<TokenStream>> Start(std::shared_ptr<Lease> lease, const FirstToken& first,
                                                     const Continuation& next);
  absl::StatusOr<std::shared_ptr<TokenStream>> Prompt(std::shared_ptr<Lease> lease, const Continuation& next);

  // Cancels the sequence if it still runs. Returns when the loop no longer touches its pages.
  void Remove(const std::shared_ptr<TokenStream>& stream);

  size_t max_batch() const { return max_batch_; }

  // UNAVAILABLE once the forward pass is lost for good, else OK. All sequences have then ended with that error, and
  // every new one is refused. Thread-safe.
  absl::Status failure() const;

  // Of the loop's thread; beats between the layers of its steps.
  std::shared_ptr<const Heartbeat> heartbeat() const { return heartbeat_; }

 private:
  // `known`: tokens of the request when the next one is sampled.
  absl::Status Validate(const Lease& lease, const Continuation& next, size_t known) const;
  // The same with no more tokens than the pool can hold after those of the lease.
  Continuation WithinPool(const Lease& lease, const Continuation& next) const;
  absl::Status ValidateToken(int32_t id) const;
  std::shared_ptr<TokenStream> Enqueue(std::shared_ptr<Sequence> sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Loop();
  void DropEnded();
  bool ClaimDevice();
  void ReturnDevice();
  void Admit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Batch MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of those whose first step this is.
  static void NotePlaces(const Batch& batch);
  void EndPreempted(const Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateGauges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  kv::KvPool& pool_;
  LeaseTable& leases_;
  DecodeMetrics& metrics_;
  const weights::ModelSpec& spec_;
  const size_t max_batch_;
  const size_t most_without_place_;  // sequences beyond max_batch_, while as many wait for their masks
  LentDevice* const lent_device_;
  SharedCores* const cores_;
  const std::chrono::milliseconds device_patience_;
  const std::shared_ptr<Heartbeat> heartbeat_ = std::make_shared<Heartbeat>("the decode loop");
  // Used by the loop's thread only, as the runner.
  bool has_device_ = false;
  std::optional<std::chrono::steady_clock::time_point> claims_since_;
  mutable Mutex mutex_;
  Condition changed_;
  StepRunner step_runner_;  // calls from its threads, which use the two above
  // By age. The oldest gets the first place in the batch, the first rows of a step, and the first pages.
  Batch waiting_ ABSL_GUARDED_BY(mutex_);
  Batch running_;  // changed under mutex_ by the loop only
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace moestro::decode
