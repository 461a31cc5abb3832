#include "services/router/request/generation.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/telemetry/log.h"

namespace moestro::router {

Generation::Generation(const GenerateJob& job, const RouterEnvironment& environment, const CallPeers& call,
                       GenerationSink& sink)
    : job_(job),
      environment_(environment),
      prefill_(call.prefill),
      sink_(sink),
      life_(environment, call, job.request_id, job.fingerprint,
            static_cast<uint32_t>(job.prompt.size()) + std::min(job.max_tokens, kAnswerPart),
            environment.policy.IsForPrefill(static_cast<uint32_t>(job.prompt.size())) ? AdmissionQueue::Kind::kLong
                                                                                      : AdmissionQueue::Kind::kShort),
      tokens_(job.prompt) {}

absl::Status Generation::Run() {
  while (true) {
    const absl::Status status = Attempt();
    // If a role dies after the last token, nothing is lost.
    if (reason_) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(life_.Recover(status));
  }
}

absl::Status Generation::Attempt() {
  if (!life_.has_pages()) {
    MOE_RETURN_IF_ERROR(life_.AcquirePages(tokens_, job_.max_tokens - emitted(), {.scope = job_.cache_scope},
                                           [this] { return sink_.OnWaiting(); }));
  }
  MOE_ASSIGN_OR_RETURN(PathPolicy::Decision decision, ChoosePath());
  if (!announced_) predicted_seconds_ = decision.work.predicted();
  MOE_RETURN_IF_ERROR(Announce(decision.choice));
  if (path_ == PrefillPath::kChunked) {
    MOE_RETURN_IF_ERROR(PromptDecode());
  } else {
    MOE_RETURN_IF_ERROR(Prefill(decision.work));
    if (reason_) return absl::OkStatus();
    decision.work.BeginDecode();
    MOE_RETURN_IF_ERROR(StartDecode());
  }
  return FollowDecode(decision.work);
}

absl::StatusOr<PathPolicy::Decision> Generation::ChoosePath() {
  const auto new_tokens = static_cast<uint32_t>(std::ssize(tokens_) - life_.lease().cached_tokens);
  bool prefill_up = life_.PrefillIsUp();
  if (job_.way ? *job_.way != PromptWay::kChunked : environment_.policy.IsForPrefill(new_tokens)) {
    const absl::Status status = life_.WaitForPrefill();
    if (!status.ok() && (job_.way || !absl::IsUnavailable(status))) return status;
    prefill_up = status.ok();
  }
  return environment_.policy.Choose(new_tokens, prefill_up, static_cast<uint32_t>(life_.lease().cached_tokens),
                                    job_.way);
}

absl::Status Generation::Announce(const PathChoice& choice) {
  path_ = choice.path;
  fp8_activations_ = false;
  LogInfo("[{}] path {}: {} ({} cached; {})", job_.request_id, PathName(path_), choice.reason,
          life_.lease().cached_tokens, choice.load);
  if (announced_) return absl::OkStatus();
  announced_ = true;
  // No token is emitted before the first announcement, so all of these belong to the prompt.
  cached_tokens_ = static_cast<uint32_t>(life_.lease().cached_tokens);
  environment_.metrics.prompt_tokens.Increment(static_cast<double>(job_.prompt.size()));
  environment_.metrics.prompt_tokens_cached.Increment(cached_tokens_);
  life_.tenant().metrics().cached_tokens.Increment(cached_tokens_);
  environment_.metrics.Admitted(path_).Increment();
  return sink_.OnAdmitted({.cached_tokens = cached_tokens_, .path = path_, .path_reason = choice.reason});
}

absl::Status Generation::Prefill(PathPolicy::Work& work) {
  const PrefillRequest job{.request_id = job_.request_id,
                           .tokens = tokens_,
                           .prompt_tokens = static_cast<uint32_t>(job_.prompt.size()),
                           .lease = life_.lease(),
                           .sampling = job_.sampling,
                           .stop_ids = job_.stop_ids,
                           .whole_machine = path_ == PrefillPath::kWholeMachine,
                           .way = work.way(),
                           .way_required = job_.way.has_value()};
  absl::Status client = absl::OkStatus();
  const absl::StatusOr<PrefilledPrompt> prompt =
      prefill_.Run(job, [&](const PrefillProgress& progress) { return client = OnProgress(progress); });
  MOE_RETURN_IF_ERROR(client);
  if (job_.way && absl::IsFailedPrecondition(prompt.status())) return prompt.status();  // no other way will do
  if (!prompt.ok()) return life_.Failed(Role::kPrefill, prompt.status());
  fp8_activations_ = prompt->fp8_activations;
  NotePrompt(work);
  if (std::ranges::find(job_.stop_ids, prompt->first_token.id) != job_.stop_ids.end()) {
    NoteFirstToken();
    reason_ = FinishReason::kStop;
    return absl::OkStatus();
  }
  return Emit(prompt->first_token);
}

absl::Status Generation::StartDecode() {
  return life_.Failed(Role::kDecode, life_.session().Start({.token = last_,
                                                            .position = static_cast<uint32_t>(tokens_.size() - 1),
                                                            .index = emitted() - 1,
                                                            .max_tokens = job_.max_tokens - emitted(),
                                                            .sampling = job_.sampling,
                                                            .stop_ids = job_.stop_ids}));
}

absl::Status Generation::PromptDecode() {
  return life_.Failed(Role::kDecode, life_.session().Prompt({.index = emitted(),
                                                             .max_tokens = job_.max_tokens - emitted(),
                                                             .sampling = job_.sampling,
                                                             .stop_ids = job_.stop_ids}));
}

absl::Status Generation::FollowDecode(PathPolicy::Work& work) {
  for (bool is_first = true;;) {
    const absl::StatusOr<DecodeEvent> event = life_.session().Next();
    if (!event.ok()) return life_.Failed(Role::kDecode, event.status());
    if (std::exchange(is_first, false)) NotePlace(work);
    if (!std::holds_alternative<PrefillProgress>(*event)) NotePrompt(work);
    if (const auto* reason = std::get_if<FinishReason>(&*event)) {
      NoteFirstToken();  // The very first token may be the stop.
      reason_ = *reason;
      return absl::OkStatus();
    }
    // The client has every token it asked for, so decode's later replies do not concern it.
    if (reason_) return absl::OkStatus();
    if (const auto* progress = std::get_if<PrefillProgress>(&*event)) {
      MOE_RETURN_IF_ERROR(OnProgress(*progress));
    } else {
      MOE_RETURN_IF_ERROR(Emit(std::get<Token>(*event)));
      // Decode does not know of this end: leaving the session tells it.
      if (reason_ == FinishReason::kStop) return absl::OkStatus();
    }
  }
}

absl::Status Generation::OnProgress(const PrefillProgress& progress) {
  life_.NotePrompt(progress.done_tokens);
  MOE_RETURN_IF_ERROR(life_.Check());
  return sink_.OnPrefill(progress);
}

absl::Status Generation::Emit(const Token& token) {
  MOE_RETURN_IF_ERROR(life_.Check());
  const double now = life_.SecondsSinceArrival();
  if (first_token_seconds_) environment_.metrics.ObserveNextToken(now - last_token_seconds_);
  NoteFirstToken();
  last_token_seconds_ = std::max(now, *first_token_seconds_);  // the clock has gone on since `now`
  environment_.metrics.generation_tokens.Increment();
  life_.CountGenerated();
  tokens_.push_back(token.id);
  last_ = token;
  MOE_ASSIGN_OR_RETURN(const bool more, sink_.OnToken(token));
  if (!more) {
    reason_ = FinishReason::kStop;
  } else if (emitted() == job_.max_tokens) {
    reason_ = FinishReason::kLength;
  }
  return absl::OkStatus();
}

void Generation::NotePlace(PathPolicy::Work& work) {
  const double waited = life_.session().waited_seconds();
  work.NotePlace(waited);
  if (!first_token_seconds_) place_seconds_ += waited;
}

// An attempt that resumes finds a part of its prompt in the pages, which the prediction does not know.
void Generation::NotePrompt(PathPolicy::Work& work) {
  const std::optional<double> ratio = work.NoteFirstToken(/*counts=*/life_.resumed() == 0);
  if (ratio) environment_.metrics.PredictionRatio(*work.way()).Observe(*ratio);
}

void Generation::NoteFirstToken() {
  if (first_token_seconds_) return;
  first_token_seconds_ = life_.SecondsSinceArrival();
  last_token_seconds_ = *first_token_seconds_;
  environment_.metrics.ObserveFirstToken(path_, *first_token_seconds_, predicted_seconds_);
}

RequestSummary Generation::Summary() const {
  RequestSummary summary{.reason = reason_.value_or(FinishReason::kLength),
                         .prompt_tokens = static_cast<uint32_t>(job_.prompt.size()),
                         .completion_tokens = emitted(),
                         .cached_tokens = cached_tokens_,
                         .used_tokens = life_.used_tokens(),
                         .resumed = life_.resumed(),
                         .path = path_,
                         .fp8_activations = fp8_activations_,
                         .queue_seconds = life_.queue_seconds() + place_seconds_,
                         .total_seconds = life_.SecondsSinceArrival()};
  if (first_token_seconds_) {
    summary.time_to_first_token_seconds = *first_token_seconds_;
    summary.prefill_seconds = *first_token_seconds_ - summary.queue_seconds;
    summary.decode_seconds = last_token_seconds_ - *first_token_seconds_;
  }
  return summary;
}

}  // namespace moestro::router
