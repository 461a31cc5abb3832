#include "services/decode/step_runner.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "common/telemetry/log.h"

namespace moestro::decode {
namespace {

// No token can follow.
TokenStream::Event EndOf(const text::grammar::TokenConstraint& constraint) {
  if (constraint.MayEnd()) return FinishReason::kStop;  // and no stop id says so
  return absl::FailedPreconditionError("constraint: the model has no token that continues the text");
}

}  // namespace

absl::Status StepRunner::Run(const Batch& batch) {
  const StepPlan plan = Plan(batch);
  const auto start = std::chrono::steady_clock::now();
  std::vector<Output> outputs;
  absl::Status status = Forward(batch, plan.rows, outputs);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (status.ok()) chunk_sizer_.Note(plan.decode_rows, plan.prompt_rows, seconds);
  metrics_.Observe(plan, batch.size(), seconds);  // first: whoever sees a request's end sees all its steps counted
  if (status.ok()) AdvanceAll(batch, plan.rows, outputs);
  if (absl::IsUnavailable(status)) return status;
  if (status.ok() || absl::IsCancelled(status)) return absl::OkStatus();
  return StepHalves(batch, plan.rows, std::move(status));
}

absl::Status StepRunner::StepHalves(std::span<const std::shared_ptr<Sequence>> batch, std::span<const int64_t> rows,
                                    absl::Status failure) {
  if (batch.size() == 1) {
    batch[0]->End(leases_, std::move(failure));
    return absl::OkStatus();
  }
  const size_t middle = batch.size() / 2;
  for (const auto& [begin, count] : {std::pair(size_t{0}, middle), std::pair(middle, batch.size() - middle)}) {
    const auto half = batch.subspan(begin, count);
    const auto its_rows = rows.subspan(begin, count);
    if (std::ranges::all_of(its_rows, [](int64_t n) { return n == 0; })) continue;
    std::vector<Output> outputs;
    absl::Status status = Forward(half, its_rows, outputs);
    if (status.ok()) AdvanceAll(half, its_rows, outputs);
    if (absl::IsUnavailable(status)) return status;
    if (status.ok() || absl::IsCancelled(status)) continue;
    MOE_RETURN_IF_ERROR(StepHalves(half, its_rows, std::move(status)));
  }
  return absl::OkStatus();
}

StepPlan StepRunner::Plan(const Batch& batch) {
  std::vector<int64_t> pending;
  for (const auto& sequence : batch) pending.push_back(sequence->pending());
  const int64_t chunk = chunk_sizer_.Choose(CountDecodeRows(pending));
  metrics_.chunk_tokens.Set(static_cast<double>(chunk));
  return PlanStep(pending, chunk);
}

absl::Status StepRunner::Forward(std::span<const std::shared_ptr<Sequence>> batch, std::span<const int64_t> rows,
                                 std::vector<Output>& outputs) {
  std::vector<model::EngineRow> engine_rows;
  std::vector<size_t> sequence_of;  // by engine row
  std::vector<kv::KvPages> pages;
  std::vector<model::TracedToken> traced;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (rows[i] == 0) continue;
    const Sequence& sequence = *batch[i];
    const auto index = static_cast<int32_t>(pages.size());
    pages.push_back(pool_.Pages(sequence.lease->kv));
    for (int64_t position = sequence.valid; position < sequence.valid + rows[i]; ++position) {
      const bool last = position + 1 == static_cast<int64_t>(sequence.lease->tokens.size());
      engine_rows.push_back(
          {sequence.lease->tokens[static_cast<size_t>(position)], static_cast<int32_t>(position), index, last});
      sequence_of.push_back(i);
      traced.push_back({static_cast<uint32_t>(sequence.lease->arrival), static_cast<uint32_t>(position),
                        position < sequence.prompt_tokens});
    }
  }
  if (trace_ != nullptr) trace_->Begin(traced);
  // Kept until the whole pass succeeds: all sequences of the step advance, or none.
  outputs.resize(batch.size());
  const auto interrupted = [&] {
    heartbeat_.Beat();
    if (cores_ != nullptr) metrics_.workers.Set(cores_->Follow());
    const bool all_gone =
        std::ranges::all_of(batch, [](const auto& sequence) { return sequence->stream->cancelled(); });
    return all_gone ? absl::CancelledError("all sequences of the step were cancelled") : absl::OkStatus();
  };
  FindMasks(batch, rows);
  MOE_RETURN_IF_ERROR(forward_.Forward(
      {engine_rows, pages, model::MlaForm::kAbsorbed}, interrupted, [&](int64_t row, std::span<const float> values) {
        const size_t i = sequence_of[static_cast<size_t>(row)];
        const Sequence& sequence = *batch[i];
        const Continuation& next = sequence.next;
        if (next.constraint != nullptr) {
          outputs[i].logits.assign(values.begin(), values.end());
        } else {
          outputs[i].token = model::SampleNext(values, sequence.lease->tokens, next.sampling, next.index);
        }
      }));
  if (trace_ != nullptr) EndTrace();
  return absl::OkStatus();
}

void StepRunner::AdvanceAll(std::span<const std::shared_ptr<Sequence>> batch, std::span<const int64_t> rows,
                            std::vector<Output>& outputs) {
  for (size_t i = 0; i < batch.size(); ++i) {
    if (rows[i] > 0) Advance(*batch[i], rows[i], outputs[i]);
  }
}

// The masks depend on tokens that are already known. A step that is computed again finds the searches of the first try.
void StepRunner::FindMasks(std::span<const std::shared_ptr<Sequence>> batch, std::span<const int64_t> rows) {
  for (size_t i = 0; i < batch.size(); ++i) {
    Sequence& sequence = *batch[i];
    const bool samples = rows[i] > 0 && rows[i] == sequence.pending();
    if (!samples || sequence.next.constraint == nullptr || sequence.mask != nullptr) continue;
    sequence.mask = masks_.Find(sequence.next.constraint, sequence.masks_are_dear);
  }
}

void StepRunner::EndTrace() {
  const absl::Status status = trace_->End();
  if (!status.ok() && !trace_failed_) LogWarning("--routing-trace: {}", std::string(status.message()));
  trace_failed_ = !status.ok();
}

void StepRunner::Advance(Sequence& sequence, int64_t rows, Output& output) {
  sequence.valid += rows;
  pool_.PublishValidTokens(sequence.lease->kv, sequence.valid);
  if (sequence.valid <= sequence.prompt_tokens) {
    sequence.stream->Push(
        PrefillProgress{static_cast<uint32_t>(sequence.valid), static_cast<uint32_t>(sequence.prompt_tokens)});
  }
  if (sequence.pending() > 0) return;
  if (sequence.valid == sequence.prompt_tokens) leases_.Cache(*sequence.lease);
  if (sequence.mask != nullptr) {
    if (!sequence.mask->done()) {
      sequence.logits = std::move(output.logits);
      sequence.waits_since = std::chrono::steady_clock::now();
      return;
    }
    Sample(sequence, output);
  }
  Accept(sequence, output);
}

void StepRunner::TakeMasks(const Batch& batch) {
  for (const auto& sequence : batch) {
    if (sequence->ended || !sequence->waits_for_mask() || !sequence->mask->done()) continue;
    const auto waited = std::chrono::steady_clock::now() - sequence->waits_since;
    metrics_.mask_wait_seconds.Increment(std::chrono::duration<double>(waited).count());
    Output output{.logits = std::exchange(sequence->logits, {})};
    Sample(*sequence, output);
    Accept(*sequence, output);
  }
}

void StepRunner::Sample(Sequence& sequence, Output& output) {
  const Continuation& next = sequence.next;
  const std::unique_ptr<MaskFinder::Search> search = std::move(sequence.mask);
  sequence.masks_are_dear = search->is_dear();
  const auto& allowed = search->mask();
  if (!allowed.ok()) {
    output.token = Annotate(allowed.status(), "constraint");
  } else if ((*allowed)->empty()) {
    output.end = EndOf(*next.constraint);
  } else {
    output.token =
        model::SampleNext(output.logits, sequence.lease->tokens, next.sampling, next.index, (*allowed)->words());
  }
}

void StepRunner::Accept(Sequence& sequence, const Output& output) {
  if (output.end) return sequence.End(leases_, *output.end);
  Continuation& next = sequence.next;
  const absl::StatusOr<Token>& token = output.token;
  if (!token.ok()) return sequence.End(leases_, token.status());
  metrics_.generated_tokens.Increment();
  if (std::ranges::find(next.stop_ids, token->id) != next.stop_ids.end()) {
    return sequence.End(leases_, FinishReason::kStop);
  }
  if (next.constraint != nullptr) {
    absl::Status followed = next.constraint->Advance(token->id);
    if (!followed.ok()) return sequence.End(leases_, Annotate(followed, "constraint"));
  }
  sequence.lease->tokens.push_back(token->id);
  ++next.index;
  --next.max_tokens;
  sequence.stream->Push(*token);
  if (next.max_tokens == 0) sequence.End(leases_, FinishReason::kLength);
}

}  // namespace moestro::decode
