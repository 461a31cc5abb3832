#include "services/router/generation.h"

#include <algorithm>

#include "common/base/status.h"

namespace moestro {

Generation::Generation(const GenerateJob& job, const RouterEnvironment& environment, const CallPeers& call,
                       GenerationSink& sink)
    : job_(job),
      environment_(environment),
      prefill_(call.prefill),
      sink_(sink),
      life_(environment, call, job.request_id),
      tokens_(job.prompt) {}

absl::Status Generation::Run() {
  while (true) {
    const absl::Status status = Attempt();
    // A role that dies after the last token has cost nothing.
    if (reason_) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(life_.Recover(status));
  }
}

absl::Status Generation::Attempt() {
  if (!life_.has_pages()) MOE_RETURN_IF_ERROR(Admit());
  MOE_RETURN_IF_ERROR(Prefill());
  if (reason_) return absl::OkStatus();
  return Decode();
}

absl::Status Generation::Admit() {
  MOE_RETURN_IF_ERROR(life_.AcquirePages(tokens_, job_.max_tokens - emitted()));
  if (announced_) return absl::OkStatus();
  announced_ = true;
  cached_tokens_ = life_.reservation().cached_tokens;
  environment_.metrics.prompt_tokens.Increment(static_cast<double>(job_.prompt.size()));
  return sink_.OnAdmitted();
}

absl::Status Generation::Prefill() {
  const PrefillJob job{.request_id = job_.request_id,
                       .tokens = tokens_,
                       .prompt_tokens = static_cast<uint32_t>(job_.prompt.size()),
                       .lease = life_.reservation().lease,
                       .sampling = job_.sampling};
  absl::Status client = absl::OkStatus();
  const absl::StatusOr<GeneratedToken> token = prefill_.Run(job, [&](uint32_t done, uint32_t total) {
    client = life_.Check();
    if (client.ok()) client = sink_.OnPrefill(done, total);
    return client;
  });
  MOE_RETURN_IF_ERROR(client);
  if (!token.ok()) return life_.Failed(Role::kPrefill, token.status());
  if (std::ranges::find(job_.stop_ids, token->id) != job_.stop_ids.end()) {
    NoteFirstToken();
    reason_ = FinishReason::kStop;
    return absl::OkStatus();
  }
  return Emit(*token);
}

absl::Status Generation::Decode() {
  const absl::Status started = life_.session().Start({.token = last_,
                                                      .position = static_cast<uint32_t>(tokens_.size() - 1),
                                                      .index = emitted() - 1,
                                                      .max_tokens = job_.max_tokens - emitted(),
                                                      .sampling = job_.sampling,
                                                      .stop_ids = job_.stop_ids});
  if (!started.ok()) return life_.Failed(Role::kDecode, started);
  while (true) {
    const absl::StatusOr<DecodeEvent> event = life_.session().Next();
    if (!event.ok()) return life_.Failed(Role::kDecode, event.status());
    if (const auto* reason = std::get_if<FinishReason>(&*event)) {
      reason_ = *reason;
      return absl::OkStatus();
    }
    if (reason_) return absl::OkStatus();  // The client has all it asked for; what else decode says is not for it.
    MOE_RETURN_IF_ERROR(Emit(std::get<GeneratedToken>(*event)));
  }
}

absl::Status Generation::Emit(const GeneratedToken& token) {
  MOE_RETURN_IF_ERROR(life_.Check());
  const Clock::TimePoint now = environment_.clock.Now();
  if (first_token_seconds_) environment_.metrics.inter_token_latency.Observe(Seconds(now - last_token_at_));
  last_token_at_ = now;
  NoteFirstToken();
  environment_.metrics.generation_tokens.Increment();
  tokens_.push_back(token.id);
  last_ = token;
  MOE_RETURN_IF_ERROR(sink_.OnToken(token));
  if (emitted() == job_.max_tokens) reason_ = FinishReason::kLength;
  return absl::OkStatus();
}

void Generation::NoteFirstToken() {
  if (first_token_seconds_) return;
  first_token_seconds_ = life_.SecondsSinceArrival();
  environment_.metrics.time_to_first_token.Observe(*first_token_seconds_);
}

RequestSummary Generation::Summary() const {
  return {.reason = reason_.value_or(FinishReason::kLength),
          .prompt_tokens = static_cast<uint32_t>(job_.prompt.size()),
          .completion_tokens = emitted(),
          .cached_tokens = cached_tokens_,
          .resumed = life_.resumed(),
          .queue_seconds = life_.queue_seconds(),
          .time_to_first_token_seconds = first_token_seconds_.value_or(0),
          .total_seconds = life_.SecondsSinceArrival()};
}

}  // namespace moestro
