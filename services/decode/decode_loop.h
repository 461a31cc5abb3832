// Continuous batching: one thread, one forward pass a step over up to max_batch sequences. Sequences join and leave
// between steps; a sequence's tokens do not depend on its neighbours (the engine is batch-invariant).
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
#include "services/decode/step_runner.h"

namespace moestro {

class DecodeLoop {
 public:
  struct Options {
    int max_batch = 0;  // sequences in one step, those that are still in their prompt included
    ChunkSizer::Options chunks;
    RoutingTraceWriter* trace = nullptr;  // that the forward pass tells of its choices; null: none
    // The device of the forward pass, which others use while the loop has no work; null: nobody else does.
    LentDevice* lent_device = nullptr;
    // A borrower that has not given it back for so long is not waited for any more.
    std::chrono::milliseconds device_patience{5000};
    int64_t max_rows() const { return max_batch + chunks.max_rows; }
  };

  // forward.max_rows() >= options.max_rows(). All must outlive the loop.
  DecodeLoop(ForwardPass& forward, KvPool& pool, LeaseTable& leases, DecodeMetrics& metrics, const Options& options);
  ~DecodeLoop();  // ends all sequences with UNAVAILABLE

  struct FirstToken {
    int32_t id = 0;        // sampled by prefill; to be computed next
    int64_t position = 0;  // the number of the lease's tokens, all of which are valid
  };
  // Goes on after prefill, or runs the lease's own tokens first, as far as they are not valid. From here on the lease
  // is the loop's, until Remove: the pages go back when the sequence ends. INVALID_ARGUMENT when the continuation does
  // not fit the lease or the model; ABORTED when the lease was preempted.
  absl::StatusOr<std::shared_ptr<TokenStream>> Start(std::shared_ptr<Lease> lease, const FirstToken& first,
                                                     const Continuation& next);
  absl::StatusOr<std::shared_ptr<TokenStream>> Prompt(std::shared_ptr<Lease> lease, const Continuation& next);

  // Cancels the sequence if it still runs, and returns when the loop no longer touches its pages.
  void Remove(const std::shared_ptr<TokenStream>& stream);

  // Not OK, but UNAVAILABLE, once the forward pass was lost for good: all sequences have ended with that, and every new
  // one is refused. Thread-safe.
  absl::Status failure() const;

  // Of the thread, between the layers of its steps.
  std::shared_ptr<const Heartbeat> heartbeat() const { return heartbeat_; }

 private:
  absl::Status Validate(const Lease& lease, const Continuation& next) const;
  absl::Status ValidateToken(int32_t id) const;
  std::shared_ptr<TokenStream> Enqueue(std::shared_ptr<Sequence> sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Loop();
  void DropEnded();
  bool ClaimDevice();
  void ReturnDevice();
  void Admit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Batch MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndPreempted(const Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateGauges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  KvPool& pool_;
  LeaseTable& leases_;
  DecodeMetrics& metrics_;
  const ModelSpec& spec_;
  const size_t max_batch_;
  LentDevice* const lent_device_;
  const std::chrono::milliseconds device_patience_;
  const std::shared_ptr<Heartbeat> heartbeat_ = std::make_shared<Heartbeat>("the decode loop");
  StepRunner step_runner_;
  // The loop's.
  bool has_device_ = false;
  std::optional<std::chrono::steady_clock::time_point> claims_since_;
  mutable Mutex mutex_;
  Condition changed_;
  // In order of age: who came first has the first place in the batch, the first rows of a step, and the first
  // pages.
  Batch waiting_ ABSL_GUARDED_BY(mutex_);
  Batch running_;  // changed under mutex_ by the loop only
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace moestro
