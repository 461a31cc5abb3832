#include "services/router/request/request_runner.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/telemetry/log.h"
#include "services/router/request/generation.h"
#include "services/router/text/stop_matcher.h"

namespace moestro::router {
namespace {

// Turns tokens into text for the client.
class TextSink final : public GenerationSink {
 public:
  TextSink(const GenerateJob& job, const ModelText& text, GenerateReplies& replies, Tenant::TokenHold& hold)
      : job_(job),
        stream_(text.NewStream(job.keep_special_tokens)),
        stops_(job.stop, job.keep_stop_text),
        replies_(replies),
        hold_(hold) {}

  absl::Status OnWaiting() override { return replies_.Waiting(); }
  absl::Status OnAdmitted(const AdmissionNotice& notice) override {
    return replies_.Started(job_.request_id, static_cast<uint32_t>(job_.prompt.size()), notice);
  }
  absl::Status OnPrefill(const PrefillProgress& progress) override { return replies_.Prefill(progress); }
  absl::StatusOr<bool> OnToken(const Token& token) override {
    hold_.SetUsed(static_cast<int64_t>(job_.prompt.size()) + ++generated_);
    MOE_RETURN_IF_ERROR(replies_.Tokens({token}, stops_.Push(stream_->Push(token.id))));
    return stops_.found().empty();
  }

  absl::Status Flush() {
    std::string rest = stops_.Push(stream_->Flush());
    rest += stops_.Flush();
    return rest.empty() ? absl::OkStatus() : replies_.Tokens({}, rest);
  }
  const std::string& stop_text() const { return stops_.found(); }

 private:
  const GenerateJob& job_;
  const std::unique_ptr<TextStream> stream_;
  StopMatcher stops_;
  GenerateReplies& replies_;
  Tenant::TokenHold& hold_;
  int64_t generated_ = 0;
};

void LogEnd(const std::string& request_id, const char* kind, const absl::Status& status,
            const RequestSummary& summary) {
  if (!status.ok()) {
    LogWarning("[{}] {} failed after {} tokens: {}", request_id, kind, summary.completion_tokens, status.ToString());
    return;
  }
  LogInfo(
      "[{}] {} done: {} ({} cached) + {} tokens, queued {:.3f} s, first token {:.3f} s, total {:.3f} s, "
      "resumed {}x",
      request_id, kind, summary.prompt_tokens, summary.cached_tokens, summary.completion_tokens, summary.queue_seconds,
      summary.time_to_first_token_seconds, summary.total_seconds, summary.resumed);
}

}  // namespace

RequestRunner::RequestRunner(const ModelBoard& board, const RouterEnvironment& environment, const PrepareLimits& limits,
                             RandomBits random)
    : board_(board),
      environment_(environment),
      limits_(limits),
      random_(std::move(random)),
      text_turns_(TextTurns::OfMachine()) {}

PrepareLimits RequestRunner::LimitsOf(const Tenant& tenant) const {
  return {.default_max_tokens = limits_.default_max_tokens, .tenant = tenant.limits()};
}

std::string RequestRunner::NewRequestId() { return absl::StrFormat("%016x%016x", random_(), random_()); }

absl::Status RequestRunner::Generate(Read<GenerateInput> read, const CallPeers& call, GenerateReplies& replies) {
  std::string request_id = NewRequestId();
  RequestSummary summary;
  const absl::Status status = RunGenerate(read, call, replies, request_id, summary);
  LogEnd(request_id, "generate", status, summary);
  environment_.metrics.CountRequest(RequestKind::kGenerate, status, summary);
  MOE_RETURN_IF_ERROR(status);
  return replies.Finished(summary);  // last: whoever reads it finds the request counted and its name free
}

absl::Status RequestRunner::RunGenerate(Read<GenerateInput> read, const CallPeers& call, GenerateReplies& replies,
                                        std::string& request_id, RequestSummary& summary) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Ready());
  std::optional<RunningRequests::Entry> running;
  ConstraintCheck quick = ConstraintCheck::Quick(known_constraints_);
  std::string constraint_field;
  absl::Status followed;  // by the constraint
  MOE_ASSIGN_OR_RETURN(GenerateJob job, InTurn(call.bytes, call.check, [&]() -> absl::StatusOr<GenerateJob> {
                         MOE_ASSIGN_OR_RETURN(const GenerateInput input, read(*model));
                         MOE_RETURN_IF_ERROR(CheckRequestId(input.request_id, *model));
                         if (!input.request_id.empty()) request_id = input.request_id;
                         MOE_ASSIGN_OR_RETURN(RunningRequests::Entry entry,
                                              running_.Begin(call.tenant->name(), request_id, call.cancel));
                         running.emplace(std::move(entry));
                         constraint_field = input.constraint_field;
                         auto prepared =
                             PrepareGenerate(input, *model, LimitsOf(*call.tenant), request_id, random_(), call.check);
                         if (prepared.ok()) followed = quick.Compile(prepared->sampling.constraint);
                         return prepared;
                       }));
  if (quick.is_interrupted()) {
    ConstraintCheck whole = ConstraintCheck::Whole(known_constraints_, call.check);
    followed = background_.Run([&] { return whole.Compile(job.sampling.constraint); }, call.check);
  }
  MOE_RETURN_IF_ERROR(Annotate(followed, constraint_field));
  MOE_ASSIGN_OR_RETURN(Tenant::TokenHold hold,
                       call.tenant->TakeTokens(static_cast<int64_t>(job.prompt.size()), job.max_tokens, job.choices));
  replies.Bounded(job.max_tokens);
  job.cache_scope = call.tenant->CacheScope(job.cache_scope);
  LogInfo("[{}] generate for {}: {} prompt tokens, at most {} more", request_id, call.tenant->name(), job.prompt.size(),
          job.max_tokens);
  TextSink sink(job, *model->text, replies, hold);
  {
    // Ends before the last reply: when the client reads that reply, the pages are already being returned.
    Generation generation(job, environment_, call, sink);
    const absl::Status status = generation.Run();
    summary = generation.Summary();
    hold.SetUsed(summary.used_tokens);
    if (absl::IsCancelled(status) && running->aborted()) return absl::CancelledError("aborted by its request_id");
    MOE_RETURN_IF_ERROR(status);
  }
  MOE_RETURN_IF_ERROR(sink.Flush());
  summary.stop_text = sink.stop_text();
  if (!summary.stop_text.empty()) summary.reason = FinishReason::kStop;
  return absl::OkStatus();
}

absl::Status RequestRunner::Score(Read<ScoreInput> read, const CallPeers& call, const Scoring::Sink& scores) {
  const std::string request_id = NewRequestId();
  RequestSummary summary;
  const absl::Status status = RunScore(read, call, scores, request_id, summary);
  LogEnd(request_id, "score", status, summary);
  environment_.metrics.CountRequest(RequestKind::kScore, status, summary);
  return status;
}

absl::Status RequestRunner::RunScore(Read<ScoreInput> read, const CallPeers& call, const Scoring::Sink& scores,
                                     const std::string& request_id, RequestSummary& summary) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Ready());
  MOE_ASSIGN_OR_RETURN(const ScoreJob job, InTurn(call.bytes, call.check, [&]() -> absl::StatusOr<ScoreJob> {
                         MOE_ASSIGN_OR_RETURN(const ScoreInput input, read(*model));
                         return PrepareScore(input, *model, LimitsOf(*call.tenant), request_id, call.check);
                       }));
  MOE_ASSIGN_OR_RETURN(Tenant::TokenHold hold, call.tenant->TakeTokens(static_cast<int64_t>(job.tokens.size()), 0));
  LogInfo("[{}] score for {}: {} tokens", request_id, call.tenant->name(), job.tokens.size());
  Scoring scoring(job, environment_, call, scores);
  const absl::Status status = scoring.Run();
  summary = scoring.Summary();
  hold.SetUsed(summary.used_tokens);
  return status;
}

absl::StatusOr<RequestRunner::Tokens> RequestRunner::Tokenize(Read<TokenizeInput> read, size_t bytes,
                                                              const CancelCheck& check) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Described());
  return InTurn(bytes, check, [&]() -> absl::StatusOr<Tokens> {
    MOE_ASSIGN_OR_RETURN(const TokenizeInput input, read(*model));
    Tokens tokens{.model = model, .ids = {}};
    if (const auto* chat = std::get_if<text::Chat>(&input.text)) {
      MOE_ASSIGN_OR_RETURN(tokens.ids, EncodeChat(*chat, *model, check));
    } else {
      const std::string& text = std::get<PlainText>(input.text).text;
      MOE_ASSIGN_OR_RETURN(tokens.ids, EncodeText(text, input.plain, *model, "text", check));
    }
    return tokens;
  });
}

absl::StatusOr<std::string> RequestRunner::Detokenize(Read<DetokenizeInput> read, size_t bytes,
                                                      const CancelCheck& check) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Described());
  return InTurn(bytes, check, [&]() -> absl::StatusOr<std::string> {
    MOE_ASSIGN_OR_RETURN(const DetokenizeInput input, read(*model));
    return DecodeIds(input.ids, input.keep_special_tokens, *model, check);
  });
}

}  // namespace moestro::router
