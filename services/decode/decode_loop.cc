#include "services/decode/decode_loop.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro {

DecodeLoop::DecodeLoop(Engine& engine, KvPool& pool, DecodeMetrics& metrics, int max_batch)
    : engine_(engine), pool_(pool), metrics_(metrics), max_batch_(static_cast<size_t>(max_batch)) {
  MOE_CHECK(max_batch >= 1 && max_batch <= engine.max_rows());
  thread_ = std::thread([this] { Loop(); });
}

DecodeLoop::~DecodeLoop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

absl::StatusOr<std::shared_ptr<TokenStream>> DecodeLoop::Start(const DecodeJob& job) {
  MOE_RETURN_IF_ERROR(ValidateSamplingParams(job.sampling));
  if (job.token < 0 || job.token >= engine_.spec().token_count) {
    return absl::InvalidArgumentError("token " + std::to_string(job.token) + " is not in the vocabulary");
  }
  if (job.position != pool_.ValidTokens(*job.lease)) {
    return absl::InvalidArgumentError("position " + std::to_string(job.position) + " does not follow the " +
                                      std::to_string(pool_.ValidTokens(*job.lease)) + " valid tokens of the lease");
  }
  const int64_t capacity = pool_.Pages(*job.lease).capacity();
  if (job.max_tokens < 1 || job.max_tokens > capacity - job.position) {
    return absl::InvalidArgumentError("max_tokens " + std::to_string(job.max_tokens) + " does not fit the lease's " +
                                      std::to_string(capacity) + " tokens");
  }
  auto sequence = std::make_shared<Sequence>();
  sequence->job = job;
  sequence->stream = std::make_shared<TokenStream>();
  std::lock_guard lock(mutex_);
  if (stopping_) return absl::UnavailableError("decode is shutting down");
  waiting_.push_back(sequence);
  metrics_.waiting.Set(static_cast<double>(waiting_.size()));
  changed_.notify_all();
  return sequence->stream;
}

void DecodeLoop::Remove(const std::shared_ptr<TokenStream>& stream) {
  stream->Cancel();
  std::unique_lock lock(mutex_);
  const auto is_stream = [&](const auto& sequence) { return sequence->stream == stream; };
  std::erase_if(waiting_, is_stream);
  metrics_.waiting.Set(static_cast<double>(waiting_.size()));
  changed_.notify_all();
  changed_.wait(lock, [&] { return std::none_of(running_.begin(), running_.end(), is_stream); });
}

void DecodeLoop::Loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    DropFinished();
    Admit(lock);
    if (stopping_) break;
    const Batch batch = running_;
    lock.unlock();
    Step(batch);
    lock.lock();
  }
  for (const auto& sequence : waiting_) End(*sequence, absl::UnavailableError("decode is shutting down"));
  for (const auto& sequence : running_) {
    if (!sequence->done) End(*sequence, absl::UnavailableError("decode is shutting down"));
  }
  waiting_.clear();
  running_.clear();
  changed_.notify_all();
}

// Fills the batch from the queue, first come first served; waits while there is nothing to do.
void DecodeLoop::Admit(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return stopping_ || !running_.empty() || !waiting_.empty(); });
  while (running_.size() < max_batch_ && !waiting_.empty()) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  metrics_.waiting.Set(static_cast<double>(waiting_.size()));
  metrics_.batch_size.Set(static_cast<double>(running_.size()));
}

void DecodeLoop::DropFinished() {
  if (std::erase_if(running_, [](const auto& sequence) { return sequence->done || sequence->stream->cancelled(); }) >
      0) {
    metrics_.batch_size.Set(static_cast<double>(running_.size()));
    changed_.notify_all();
  }
}

void DecodeLoop::Step(const Batch& batch) {
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = Forward(batch);
  metrics_.steps.Increment();
  metrics_.step_seconds.Observe(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (status.ok() || absl::IsCancelled(status)) return;
  if (batch.size() == 1) {
    End(*batch[0], status);
    return;
  }
  // One bad sequence must not fail its neighbours: no sequence has advanced yet, so step each alone.
  for (const auto& sequence : batch) {
    if (const absl::Status alone = Forward({sequence}); !alone.ok() && !absl::IsCancelled(alone)) End(*sequence, alone);
  }
}

absl::Status DecodeLoop::Forward(const Batch& batch) {
  std::vector<EngineRow> rows;
  std::vector<KvPages> pages;
  for (const auto& sequence : batch) {
    const DecodeJob& job = sequence->job;
    rows.push_back({job.token, static_cast<int32_t>(job.position), static_cast<int32_t>(pages.size()), true});
    pages.push_back(pool_.Pages(*job.lease));
  }
  // Kept until the whole pass has succeeded: either every sequence of the step advances, or none does.
  std::vector<std::vector<float>> logits(batch.size());
  const auto interrupted = [&] {
    const bool all_gone =
        std::all_of(batch.begin(), batch.end(), [](const auto& sequence) { return sequence->stream->cancelled(); });
    return all_gone ? absl::CancelledError("all sequences of the step were cancelled") : absl::OkStatus();
  };
  MOE_RETURN_IF_ERROR(
      engine_.Forward({rows, pages, MlaForm::kAbsorbed}, interrupted, [&](int64_t row, std::span<const float> values) {
        logits[static_cast<size_t>(row)].assign(values.begin(), values.end());
      }));
  for (size_t i = 0; i < batch.size(); ++i) Accept(*batch[i], logits[i]);
  return absl::OkStatus();
}

void DecodeLoop::Accept(Sequence& sequence, std::span<const float> logits) {
  DecodeJob& job = sequence.job;
  pool_.PublishValidTokens(*job.lease, job.position + 1);
  const absl::StatusOr<SampledToken> token = Sample(logits, job.sampling, job.index + 1);
  if (!token.ok()) return End(sequence, token.status());
  metrics_.generated_tokens.Increment();
  if (std::find(job.stop_ids.begin(), job.stop_ids.end(), token->id) != job.stop_ids.end()) {
    return End(sequence, StopReason::kStopId);
  }
  job.token = token->id;
  ++job.position;
  ++job.index;
  --job.max_tokens;
  sequence.stream->Push(*token);
  if (job.max_tokens == 0) End(sequence, StopReason::kLength);
}

void DecodeLoop::End(Sequence& sequence, TokenStream::Event event) {
  sequence.done = true;
  sequence.stream->Push(std::move(event));
}

}  // namespace moestro
