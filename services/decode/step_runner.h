// One step: one forward pass over the sequences of a batch. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/heartbeat.h"
#include "common/kv/pool.h"
#include "common/model/routing_trace.h"
#include "common/platform/shared_cores.h"
#include "services/decode/chunk_sizer.h"
#include "services/decode/forward_pass.h"
#include "services/decode/lease_table.h"
#include "services/decode/mask_finder.h"
#include "services/decode/metrics.h"
#include "services/decode/sequence.h"
#include "services/decode/step_plan.h"

namespace moestro::decode {

class StepRunner {
 public:
  // All must outlive the runner. `heartbeat` beats between layers. `cores`, unless null, follow the work there.
  // `trace`, unless null, gets the steps' tokens; the forward pass records their experts. `on_mask` is called in some
  // thread when a mask was found. REQUIRES: forward.max_rows() >= chunks.max_rows + sequences of any batch.
  StepRunner(ForwardPass& forward, kv::KvPool& pool, LeaseTable& leases, DecodeMetrics& metrics, Heartbeat& heartbeat,
             SharedCores* cores, const ChunkSizer::Options& chunks, model::RoutingTraceWriter* trace,
             std::function<void()> on_mask)
      : forward_(forward),
        pool_(pool),
        leases_(leases),
        metrics_(metrics),
        heartbeat_(heartbeat),
        cores_(cores),
        chunk_sizer_(chunks),
        trace_(trace),
        masks_(metrics, std::move(on_mask)) {}

  // Advances every sequence by one token, and prompts by a chunk. REQUIRES: leases have room for their tokens; the
  // sequence whose prompt comes first is at the front; none has ended. A sequence that fails is ended; its neighbours
  // are unaffected. UNAVAILABLE if the forward pass is lost for good: the sequences have not ended then.
  // None may wait for its mask.
  absl::Status Run(const Batch& batch);

  // Samples for the sequences whose mask was missing when their logits came, and is there now.
  void TakeMasks(const Batch& batch);

 private:
  // What the pass gives a sequence that samples. Without a constraint the token is sampled as its logits come, so that
  // those of thousands of sequences are never held together.
  struct Output {
    absl::StatusOr<Token> token = Token{};
    std::vector<float> logits = {};              // with a constraint, whose mask may still be looked for
    std::optional<TokenStream::Event> end = {};  // instead of a token: none can follow
  };

  StepPlan Plan(const Batch& batch);
  // Computes the batch's rows. Nobody hears of it, and nothing has changed if it fails.
  absl::Status Forward(std::span<const std::shared_ptr<Sequence>> batch, std::span<const int64_t> rows,
                       std::vector<Output>& outputs);
  // What Forward has computed is told, and counts.
  void AdvanceAll(std::span<const std::shared_ptr<Sequence>> batch, std::span<const int64_t> rows,
                  std::vector<Output>& outputs);
  // After a failure of all together, none of which has advanced: one bad sequence must not fail its neighbours, so each
  // half is stepped alone, down to the sequences that fail.
  absl::Status StepHalves(std::span<const std::shared_ptr<Sequence>> batch, std::span<const int64_t> rows,
                          absl::Status failure);
  // Begins to look for the masks of the constrained sequences that sample in this step.
  void FindMasks(std::span<const std::shared_ptr<Sequence>> batch, std::span<const int64_t> rows);
  void EndTrace();
  void Advance(Sequence& sequence, int64_t rows, Output& output);
  // Of a sequence with a constraint, whose mask is there.
  static void Sample(Sequence& sequence, Output& output);
  void Accept(Sequence& sequence, const Output& output);

  ForwardPass& forward_;
  kv::KvPool& pool_;
  LeaseTable& leases_;
  DecodeMetrics& metrics_;
  Heartbeat& heartbeat_;
  SharedCores* const cores_;
  ChunkSizer chunk_sizer_;
  model::RoutingTraceWriter* trace_;  // null: no trace
  bool trace_failed_ = false;
  MaskFinder masks_;
};

}  // namespace moestro::decode
