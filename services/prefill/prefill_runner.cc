#include "services/prefill/prefill_runner.h"

#include <algorithm>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/telemetry/log.h"

namespace moestro::prefill {
namespace {

constexpr char kRevoked[] = "the lease was revoked";

// Called when a layer is done. A streamed prompt calls `interrupted` also while a device hangs.
void Advance(kv::LeaseWriter& lease, const PrefillEvents& events) {
  lease.Renew();
  if (events.on_layer) events.on_layer();
}

}  // namespace

absl::Status PrefillRunner::Validate(const PrefillJob& job) const {
  const auto tokens = static_cast<int64_t>(job.token_ids.size());
  if (tokens == 0) return absl::InvalidArgumentError("token_ids is empty");
  if (tokens > engine_.spec().max_position_embeddings) {
    return absl::InvalidArgumentError("the prompt has " + std::to_string(tokens) + " tokens, the model's context " +
                                      std::to_string(engine_.spec().max_position_embeddings));
  }
  if (job.prompt_tokens < 1 || job.prompt_tokens > tokens) {
    return absl::InvalidArgumentError("prompt_tokens must be 1 to the number of token_ids");
  }
  for (const int32_t id : job.token_ids) {
    if (id < 0 || id >= engine_.spec().token_count) {
      return absl::InvalidArgumentError("token id " + std::to_string(id) + " is not in the vocabulary");
    }
  }
  if (job.score_top && (*job.score_top < 0 || *job.score_top > 100)) {
    return absl::InvalidArgumentError("score.top must be 0 to 100");
  }
  if (job.way_required && job.way == PromptWay::kChunked) {
    return absl::InvalidArgumentError("way: prefill computes in place or streamed");
  }
  return model::ValidateSampling(job.sampling, engine_.spec().token_count);
}

model::MlaForm PrefillRunner::FormAt(const PrefillJob& job, int64_t position) const {
  if (position >= job.prompt_tokens) return model::MlaForm::kAbsorbed;
  return form_.ForPrompt(job.prompt_tokens);
}

// A chunk has one form, and at most max_rows tokens.
int64_t PrefillRunner::ChunkEnd(const PrefillJob& job, int64_t begin) const {
  const auto tokens = static_cast<int64_t>(job.token_ids.size());
  const int64_t end = std::min(begin + engine_.max_rows(), tokens);
  return begin < job.prompt_tokens ? std::min(end, job.prompt_tokens) : end;
}

bool PrefillRunner::WantsStream(const PrefillJob& job, int64_t begin) const {
  const int64_t left = job.prompt_tokens - begin;
  if (left < 1 || (job.score_top && !job.way_required)) return false;
  if (job.way) return *job.way == PromptWay::kStreamed;
  return streamed_ != nullptr && left >= stream_.from_tokens;
}

absl::Status PrefillRunner::CheckStream(const PrefillJob& job, int64_t begin) const {
  if (streamed_ == nullptr) return absl::UnavailableError("prefill has no device");
  return streamed_->CheckFits({begin, job.prompt_tokens}, streamed_->FormFor(FormAt(job, begin)));
}

absl::Status PrefillRunner::Stream(std::span<const model::EngineRow> rows, model::MlaForm form, kv::LeaseWriter& lease,
                                   int64_t total, absl::FunctionRef<absl::Status()> interrupted,
                                   const PrefillEvents& events, std::span<float> residuals,
                                   absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const kv::KvPages pages = lease.pages();
  const int64_t begin = rows.front().position;
  const int64_t layers = engine_.spec().num_layers;
  const auto progress = [&](int64_t done) {
    if (events.on_progress) events.on_progress(begin + done, total);
  };
  const StreamEvents stream_events{.on_layer =
                                       [&](IndexRange pass, int64_t layer) {
                                         Advance(lease, events);
                                         if (layer + 1 < layers)
                                           progress(pass.begin + pass.size() * (layer + 1) / layers);
                                       },
                                   .on_pass =
                                       [&](IndexRange pass) {
                                         if (begin + pass.end > lease.valid_tokens()) lease.Publish(begin + pass.end);
                                         if (pass.end < std::ssize(rows)) progress(pass.end);
                                       },
                                   .on_step = [&] { heartbeat_->Beat(); },
                                   .residuals = residuals};
  const absl::Status status = streamed_->Run(rows, std::span(&pages, 1), form, interrupted, stream_events, on_logits);
  if (events.on_streamed) events.on_streamed(streamed_->run_counters());
  if (!stream_.trace_file.empty()) {
    const absl::Status written = streamed_->WriteTrace(stream_.trace_file);
    if (!written.ok()) LogWarning("--trace-file: {}", std::string(written.message()));
  }
  return status;
}

void PrefillRunner::UseWorkers(int count, const PrefillEvents& events) {
  if (count != workers_.active_threads()) workers_.SetActiveThreads(count);
  if (events.on_workers) events.on_workers(count);
}

absl::StatusOr<std::optional<Token>> PrefillRunner::Run(const PrefillJob& job, kv::LeaseWriter& lease,
                                                        absl::FunctionRef<absl::Status()> interrupted,
                                                        const PrefillEvents& events) {
  MOE_RETURN_IF_ERROR(Validate(job));
  auto token = Compute(job, lease, interrupted, events);
  if (absl::IsInternal(token.status())) {
    // An owner that died freed the pages under the computation, so their contents caused the error.
    if (lease.revoked()) return absl::AbortedError(kRevoked);
    lease.Fail();
  }
  return token;
}

absl::StatusOr<std::optional<Token>> PrefillRunner::Compute(const PrefillJob& job, kv::LeaseWriter& lease,
                                                            absl::FunctionRef<absl::Status()> interrupted,
                                                            const PrefillEvents& events) {
  const auto total = static_cast<int64_t>(job.token_ids.size());
  const bool scoring = job.score_top.has_value();
  if (total > lease.pages().capacity()) {
    return absl::InvalidArgumentError("the lease holds " + std::to_string(lease.pages().capacity()) + " tokens, not " +
                                      std::to_string(total));
  }
  const auto revoked = [&]() -> absl::Status {
    return lease.revoked() ? absl::AbortedError(kRevoked) : absl::OkStatus();
  };
  const BeatingScope beating(*heartbeat_);
  const auto revoked_or_interrupted = [&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(revoked());
    return interrupted();
  };

  if (cores_ != nullptr) cores_->Begin();
  const absl::Cleanup rest = [&] {
    if (cores_ != nullptr) cores_->End();
  };
  streamed_ = stream_.prefill ? stream_.prefill() : nullptr;
  if (streamed_ != nullptr) streamed_->UseWholeMachine(job.whole_machine);
  absl::StatusOr<Token> sampled = absl::InternalError("no logits");
  if (scoring && events.on_score) events.on_score({job.token_ids[0], std::nullopt, {}});
  // The last token is always computed: a resumed request still needs its logits.
  int64_t begin = scoring ? 0 : std::min(lease.valid_tokens(), total - 1);
  bool streams = WantsStream(job, begin);
  // It cannot be streamed.
  const auto in_place = [&](const absl::Status& why) -> absl::Status {
    const std::string message(why.message());
    if (job.way_required) return absl::FailedPreconditionError(absl::StrCat("cannot be streamed: ", message));
    streams = false;
    if (streamed_ != nullptr) LogWarning("[{}] continues in place, not streamed: {}", job.request_id, message);
    return absl::OkStatus();
  };
  if (streams) {
    if (const absl::Status can = CheckStream(job, begin); !can.ok()) MOE_RETURN_IF_ERROR(in_place(can));
  }
  std::vector<model::EngineRow> rows;
  std::vector<float> residuals;
  while (begin < total) {
    const bool streamed = streams && begin < job.prompt_tokens;
    const int64_t end = streamed ? job.prompt_tokens : ChunkEnd(job, begin);
    rows.clear();
    for (int64_t i = begin; i < end; ++i) {
      const bool needs_logits = scoring ? !streamed && i + 1 < total : i + 1 == total;
      rows.push_back({job.token_ids[static_cast<size_t>(i)], static_cast<int32_t>(i), 0, needs_logits});
    }
    const auto on_logits = [&](int64_t row, std::span<const float> logits) {
      if (lease.revoked()) return;  // its pages were freed meanwhile
      if (!scoring) {
        sampled =
            model::SampleNext(logits, job.token_ids, job.sampling, static_cast<uint64_t>(total - job.prompt_tokens),
                              job.mask ? job.mask->words() : std::span<const uint32_t>());
        return;
      }
      const int32_t next = job.token_ids[static_cast<size_t>(begin + row + 1)];
      model::LogprobResult result = model::ComputeLogprobs(logits, next, *job.score_top);
      if (events.on_score) events.on_score({next, result.logprob, std::move(result.top)});
    };
    const model::MlaForm wanted = FormAt(job, begin), form = streamed ? streamed_->FormFor(wanted) : wanted;
    const auto before_layer = [&] {
      heartbeat_->Beat();
      Advance(lease, events);
      return revoked_or_interrupted();
    };
    if (streamed) {
      // All logits are more than a streamed run gives.
      residuals.resize(scoring ? rows.size() * engine_.spec().hidden_size : 0);
      UseWorkers(job.whole_machine ? workers_.threads() : workers_.own_threads(), events);
      const absl::Status status =
          Stream(rows, form, lease, total, revoked_or_interrupted, events, residuals, on_logits);
      if (!status.ok()) {
        MOE_RETURN_IF_ERROR(revoked_or_interrupted());
        // The device itself failed. The passes that it finished are kept.
        MOE_RETURN_IF_ERROR(in_place(status));
        begin = std::max(begin, std::min(lease.valid_tokens(), total - 1));
        continue;
      }
      if (scoring) {
        for (model::EngineRow& row : rows) row.needs_logits = row.position + 1 < total;
        MOE_RETURN_IF_ERROR(engine_.Logits(rows, residuals, before_layer, on_logits));
      }
    } else {
      const kv::KvPages pages = lease.pages();
      const auto with_cores = [&] {
        UseWorkers(cores_ != nullptr ? cores_->Follow() : workers_.own_threads(), events);
        return before_layer();
      };
      MOE_RETURN_IF_ERROR(engine_.Forward({rows, std::span(&pages, 1), form}, with_cores, on_logits));
    }
    MOE_RETURN_IF_ERROR(revoked());
    const bool fp8_inputs = streamed ? stream_.fp8_inputs && stream_.fp8_inputs() : engine_.fp8_inputs();
    if (fp8_inputs && events.on_fp8_inputs) events.on_fp8_inputs();
    if (end > lease.valid_tokens()) lease.Publish(end);
    begin = end;
    if (events.on_progress) events.on_progress(end, total);
  }
  if (scoring) return std::nullopt;
  MOE_RETURN_IF_ERROR(sampled);
  return *sampled;
}

}  // namespace moestro::prefill
