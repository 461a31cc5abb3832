// Continuous batching: one thread, one forward pass a step over up to max_batch sequences. Sequences join and leave
// between steps; a sequence's tokens do not depend on its neighbours (the engine is batch-invariant).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/kv/pool.h"
#include "common/model/engine.h"
#include "common/model/sampler.h"
#include "services/decode/metrics.h"
#include "services/decode/token_stream.h"

namespace moestro {

// A sequence whose first `position` tokens are valid in the lease's pages.
struct DecodeJob {
  const KvLease* lease = nullptr;  // outlives the job: see DecodeLoop::Remove
  int32_t token = 0;               // to be fed at `position`
  int64_t position = 0;
  uint64_t index = 0;      // of `token` among the request's generated tokens
  int64_t max_tokens = 0;  // still to be generated
  SamplingParams sampling;
  std::vector<int32_t> stop_ids;
};

class DecodeLoop {
 public:
  // engine.max_rows() >= max_batch. All must outlive the loop.
  DecodeLoop(Engine& engine, KvPool& pool, DecodeMetrics& metrics, int max_batch);
  ~DecodeLoop();  // ends all sequences with UNAVAILABLE

  // INVALID_ARGUMENT when the job does not fit its lease or the model.
  absl::StatusOr<std::shared_ptr<TokenStream>> Start(const DecodeJob& job);

  // Cancels the sequence if it still runs, and returns when the loop no longer touches its pages.
  void Remove(const std::shared_ptr<TokenStream>& stream);

 private:
  struct Sequence {
    DecodeJob job;
    std::shared_ptr<TokenStream> stream;
    bool done = false;
  };
  using Batch = std::vector<std::shared_ptr<Sequence>>;

  void Loop();
  void Admit(std::unique_lock<std::mutex>& lock);
  void DropFinished();
  void Step(const Batch& batch);
  absl::Status Forward(const Batch& batch);
  void Accept(Sequence& sequence, std::span<const float> logits);
  void End(Sequence& sequence, TokenStream::Event event);

  Engine& engine_;
  KvPool& pool_;
  DecodeMetrics& metrics_;
  const size_t max_batch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Sequence>> waiting_;  // guarded by mutex_
  Batch running_;                                  // changed under mutex_ by the loop only
  bool stopping_ = false;                          // guarded by mutex_
  std::thread thread_;
};

}  // namespace moestro
