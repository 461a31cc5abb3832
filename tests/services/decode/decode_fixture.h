// A decode loop over a small synthetic model, and what a request gives when it runs alone.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "services/decode/decode_loop.h"
#include "tests/support/engine_node.h"
#include "tests/support/hang.h"

namespace moestro::decode {

// What came out of a stream, up to its end.
struct DecodeOutcome {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<int64_t> progress;  // done tokens
  std::optional<FinishReason> reason;
  absl::Status error;
};

inline DecodeOutcome Collect(TokenStream& stream) {
  DecodeOutcome outcome;
  while (true) {
    const auto event = stream.Next(kHang);
    if (!event) {
      ADD_FAILURE() << "no event";
      return outcome;
    }
    if (const auto* token = std::get_if<Token>(&*event)) {
      outcome.ids.push_back(token->id);
      outcome.logprobs.push_back(token->logprob);
    } else if (const auto* progress = std::get_if<PrefillProgress>(&*event)) {
      outcome.progress.push_back(progress->done_tokens);
    } else if (const auto* reason = std::get_if<FinishReason>(&*event)) {
      outcome.reason = *reason;
      return outcome;
    } else {
      outcome.error = std::get<absl::Status>(*event);
      return outcome;
    }
  }
}

// The first token of a prompt, or the one after the tokens that the lease's pages hold: an engine of its own, as
// prefill has, one pass over what is not valid yet.
inline absl::StatusOr<Token> PrefillInto(model::Engine& engine, kv::LeaseWriter& writer,
                                         const std::vector<int32_t>& tokens, const Sampling& sampling, uint64_t index) {
  std::vector<model::EngineRow> rows;
  const auto total = static_cast<int64_t>(tokens.size());
  for (int64_t i = std::min(writer.valid_tokens(), total - 1); i < total; ++i) {
    rows.push_back({tokens[static_cast<size_t>(i)], static_cast<int32_t>(i), 0, i + 1 == total});
  }
  const kv::KvPages pages = writer.pages();
  absl::StatusOr<Token> sampled = absl::InternalError("no logits");
  const absl::Status status = engine.Forward(
      {rows, std::span(&pages, 1), model::MlaForm::kAbsorbed},
      [&] { return writer.revoked() ? absl::AbortedError("revoked") : absl::OkStatus(); },
      [&](int64_t, std::span<const float> logits) { sampled = model::SampleNext(logits, tokens, sampling, index); });
  if (!status.ok()) return status;
  writer.Publish(std::max(writer.valid_tokens(), total));
  return sampled;
}

// The tokens of `prompt` alone: the whole prompt in one pass, then a pass for each token. No loop, no batch, no cache.
inline DecodeOutcome RunAlone(EngineNode& node, const std::vector<int32_t>& prompt, int64_t max_tokens,
                              const Sampling& sampling) {
  const auto capacity = static_cast<int64_t>(prompt.size()) + max_tokens;
  const KvLease lease = *node.pool().Reserve({.tokens = prompt, .capacity = capacity, .ignore_cache = true});
  DecodeOutcome outcome;
  {
    const auto writer = node.Writer(lease);
    std::vector<int32_t> tokens = prompt;
    for (int64_t index = 0; index < max_tokens; ++index) {
      const Token token = PrefillInto(node.engine(), *writer, tokens, sampling, static_cast<uint64_t>(index)).value();
      outcome.ids.push_back(token.id);
      outcome.logprobs.push_back(token.logprob);
      tokens.push_back(token.id);
    }
  }
  node.pool().Release(lease);
  outcome.reason = FinishReason::kLength;
  return outcome;
}

// Another pass, whose steps wait while it is closed: so what a test enqueues meanwhile meets in one step, and what it
// has let pass is all that has happened.
class GatedForward final : public ForwardPass {
 public:
  explicit GatedForward(ForwardPass& forward) : forward_(forward) {}
  const weights::ModelSpec& spec() const override { return forward_.spec(); }
  int64_t max_rows() const override { return forward_.max_rows(); }
  absl::Status Forward(const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                       absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override {
    {
      MutexLock lock(mutex_);
      while (left_ == 0) changed_.wait(lock);
      --left_;
    }
    return forward_.Forward(batch, interrupted, on_logits);
  }
  void SetClosed(bool closed) { LetPass(closed ? 0 : kAll); }
  // Closed after so many more steps.
  void LetPass(int64_t steps) {
    MutexLock lock(mutex_);
    left_ = steps;
    changed_.notify_all();
  }

 private:
  static constexpr int64_t kAll = INT64_MAX;
  ForwardPass& forward_;
  Mutex mutex_;
  Condition changed_;
  int64_t left_ ABSL_GUARDED_BY(mutex_) = kAll;
};

struct DecodeNodeOptions {
  int max_batch = 4;
  int64_t max_chunk = 16;
  double bound_seconds = 10;
  int64_t page_count = 64;
  int32_t nan_token = -1;
  int64_t reserve_ahead = 64;
  LentDevice* lent_device = nullptr;
  WorkerPool::Options workers = {.threads = 2};
  std::string cores = {};  // the file of SharedCores; empty: none
  std::chrono::milliseconds device_patience{60000};
};

// The decode role without its RPC.
class DecodeNode {
 public:
  explicit DecodeNode(const DecodeNodeOptions& options)
      : node(options.max_batch + options.max_chunk, options.nan_token, options.page_count, options.workers),
        cores(options.cores.empty() ? nullptr
                                    : SharedCores::Open(options.cores, SharedCores::Role::kDecode, node.workers(),
                                                        {.follow_quota = false})
                                          .value()),
        leases(node.pool(), options.reserve_ahead),
        forward(node.engine()),
        gate(forward),
        loop(gate, node.pool(), leases, metrics,
             {.max_batch = options.max_batch,
              .chunks = {.bound_seconds = options.bound_seconds, .max_rows = options.max_chunk},
              .lent_device = options.lent_device,
              .cores = cores.get(),
              .device_patience = options.device_patience}) {}

  EngineNode node;
  std::unique_ptr<SharedCores> cores;
  MetricsRegistry registry{"decode"};
  DecodeMetrics metrics{registry};
  LeaseTable leases;
  CpuForward forward;
  GatedForward gate;
  DecodeLoop loop;
};

}  // namespace moestro::decode
