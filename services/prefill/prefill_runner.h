// Computes one prompt, in chunks or streamed, into a lease's pages. Not thread-safe: one prompt at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/heartbeat.h"
#include "common/inference/prompt_costs.h"
#include "common/kv/lease_writer.h"
#include "common/model/engine.h"
#include "common/model/sampler.h"
#include "common/platform/shared_cores.h"
#include "common/platform/worker_pool.h"
#include "common/text/grammar/token_mask.h"
#include "services/prefill/config.h"
#include "services/prefill/stream/prompt_prefill.h"

namespace moestro::prefill {

struct PrefillJob {
  std::string request_id;  // for the log
  std::vector<int32_t> token_ids;
  // Tokens of the prompt. Later tokens were generated earlier and are computed in the absorbed form, as in decode.
  int64_t prompt_tokens = 0;
  Sampling sampling;
  std::optional<text::grammar::TokenMask> mask = {};  // what the constraint allows next; not set: there is none
  std::optional<int32_t> score_top;  // set: score all positions, with this many alternatives, instead of sampling
  bool whole_machine = false;        // streamed: use lent CPUs and a borrowed device
  // In place or streamed, where that is possible; nullopt: streamed from StreamPath::from_tokens on.
  std::optional<PromptWay> way = std::nullopt;
  bool way_required = false;  // fail rather than go another way; only then are scores streamed
};

struct PrefillEvents {
  // Called after each chunk. In a streamed prompt, called after each layer as if its share of the rows were done.
  std::function<void(int64_t done, int64_t total)> on_progress;
  std::function<void()> on_layer = {};                              // before or after every layer: work moves on
  std::function<void(int workers)> on_workers = {};                 // that compute the next layer
  std::function<void(ScoredToken)> on_score = {};                   // in position order
  std::function<void(const StreamCounters& run)> on_streamed = {};  // after a streamed run, whatever its outcome
  // After a part of the prompt was computed from inputs that were rounded to FP8.
  std::function<void()> on_fp8_inputs = {};
};

// How long prompts are streamed.
struct StreamPath {
  // Asked before each prompt; null: it is not streamed. Empty: never.
  std::function<PromptPrefill*()> prefill = {};
  int64_t from_tokens = 1;  // shortest of those that say nothing, in tokens to compute
  std::string trace_file;   // of the last run; empty: none
  // Called after each prompt, and from time to time while idle; empty: not called.
  std::function<void()> between_prompts = {};
  // Whether a device that streams rounds inputs of FP8 weights to FP8; empty: none does.
  std::function<bool()> fp8_inputs = {};
};

class PrefillRunner {
 public:
  // `workers` belongs to the engine and the stream. `cores`, unless null, are those of `workers`; they follow the work
  // between the layers of a prompt that is computed in place.
  PrefillRunner(model::Engine& engine, WorkerPool& workers, MlaFormPolicy form, StreamPath stream = {},
                SharedCores* cores = nullptr)
      : engine_(engine), workers_(workers), form_(form), stream_(std::move(stream)), cores_(cores) {}

  // Called after a prompt, and from time to time while idle.
  void BetweenPrompts() {
    if (stream_.between_prompts) stream_.between_prompts();
  }

  // INVALID_ARGUMENT names the fault of the job.
  absl::Status Validate(const PrefillJob& job) const;

  // Fills the pages from the first invalid token on, publishes after every chunk, and samples the next token (none when
  // scoring). Renews the lease with every layer. ABORTED when the lease is revoked, otherwise the error of
  // `interrupted`, each within one layer. A device failure costs only time: the prompt continues without the device.
  // FAILED_PRECONDITION: the way that is required cannot be had.
  // INTERNAL when the logits are NaN or infinite: the lease is then marked as failed.
  absl::StatusOr<std::optional<Token>> Run(const PrefillJob& job, kv::LeaseWriter& lease,
                                           absl::FunctionRef<absl::Status()> interrupted, const PrefillEvents& events);

  // Of the thread that runs a prompt. Beats between layers, or when a module of a streamed prompt is done.
  std::shared_ptr<const Heartbeat> heartbeat() const { return heartbeat_; }

 private:
  absl::StatusOr<std::optional<Token>> Compute(const PrefillJob& job, kv::LeaseWriter& lease,
                                               absl::FunctionRef<absl::Status()> interrupted,
                                               const PrefillEvents& events);
  // From the next run of the pool on.
  void UseWorkers(int count, const PrefillEvents& events);
  model::MlaForm FormAt(const PrefillJob& job, int64_t position) const;
  int64_t ChunkEnd(const PrefillJob& job, int64_t begin) const;

  // Whether the rest of the prompt, from `begin` on, is to be streamed, and whether it can be.
  bool WantsStream(const PrefillJob& job, int64_t begin) const;
  absl::Status CheckStream(const PrefillJob& job, int64_t begin) const;
  absl::Status Stream(std::span<const model::EngineRow> rows, model::MlaForm form, kv::LeaseWriter& lease,
                      int64_t total, absl::FunctionRef<absl::Status()> interrupted, const PrefillEvents& events,
                      std::span<float> residuals,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

  model::Engine& engine_;
  WorkerPool& workers_;
  const MlaFormPolicy form_;
  const StreamPath stream_;
  PromptPrefill* streamed_ = nullptr;  // of the running prompt; null: not streamed
  SharedCores* const cores_;
  const std::shared_ptr<Heartbeat> heartbeat_ = std::make_shared<Heartbeat>("the running prompt");
};

}  // namespace moestro::prefill
