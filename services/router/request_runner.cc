#include "services/router/request_runner.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "services/router/generation.h"

namespace moestro {
namespace {

// Turns tokens into text on their way to the client.
class TextSink final : public GenerationSink {
 public:
  TextSink(const GenerateJob& job, const ModelText& text, GenerateReplies& replies)
      : job_(job), stream_(text.NewStream()), replies_(replies) {}

  absl::Status OnAdmitted(const AdmissionNotice& notice) override {
    return replies_.Started(job_.request_id, static_cast<uint32_t>(job_.prompt.size()), notice);
  }
  absl::Status OnPrefill(const PrefillProgress& progress) override { return replies_.Prefill(progress); }
  absl::Status OnToken(const GeneratedToken& token) override {
    return replies_.Tokens({token}, stream_->Push(token.id));
  }

  absl::Status Flush() {
    const std::string rest = stream_->Flush();
    return rest.empty() ? absl::OkStatus() : replies_.Tokens({}, rest);
  }

 private:
  const GenerateJob& job_;
  const std::unique_ptr<TextStream> stream_;
  GenerateReplies& replies_;
};

void LogEnd(const std::string& request_id, const char* kind, const absl::Status& status,
            const RequestSummary& summary) {
  if (!status.ok()) {
    spdlog::warn("[{}] {} failed after {} tokens: {}", request_id, kind, summary.completion_tokens, status.ToString());
    return;
  }
  spdlog::info(
      "[{}] {} done: {} ({} cached) + {} tokens, queued {:.3f} s, first token {:.3f} s, total {:.3f} s, "
      "resumed {}x",
      request_id, kind, summary.prompt_tokens, summary.cached_tokens, summary.completion_tokens, summary.queue_seconds,
      summary.time_to_first_token_seconds, summary.total_seconds, summary.resumed);
}

}  // namespace

RequestRunner::RequestRunner(const ModelBoard& board, const RouterEnvironment& environment, const PrepareLimits& limits,
                             RandomBits random)
    : board_(board), environment_(environment), limits_(limits), random_(std::move(random)) {}

std::string RequestRunner::NewRequestId() { return absl::StrFormat("%016x%016x", random_(), random_()); }

absl::Status RequestRunner::Generate(const GenerateInput& input, const CallPeers& call, GenerateReplies& replies) {
  const std::string request_id = NewRequestId();
  RequestSummary summary;
  const absl::Status status = RunGenerate(input, call, replies, request_id, summary);
  LogEnd(request_id, "generate", status, summary);
  environment_.metrics.CountRequest(RequestKind::kGenerate, status, summary);
  return status;
}

absl::Status RequestRunner::RunGenerate(const GenerateInput& input, const CallPeers& call, GenerateReplies& replies,
                                        const std::string& request_id, RequestSummary& summary) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Ready());
  MOE_ASSIGN_OR_RETURN(const GenerateJob job, PrepareGenerate(input, *model, limits_, request_id, random_()));
  spdlog::info("[{}] generate: {} prompt tokens, at most {} more", request_id, job.prompt.size(), job.max_tokens);
  TextSink sink(job, *model->text, replies);
  {
    // Ends before the last reply: when the client reads it, the pages are on their way back.
    Generation generation(job, environment_, call, sink);
    const absl::Status status = generation.Run();
    summary = generation.Summary();
    MOE_RETURN_IF_ERROR(status);
  }
  MOE_RETURN_IF_ERROR(sink.Flush());
  return replies.Finished(summary);
}

absl::Status RequestRunner::Score(const ScoreInput& input, const CallPeers& call, const Scoring::Sink& scores) {
  const std::string request_id = NewRequestId();
  RequestSummary summary;
  const absl::Status status = RunScore(input, call, scores, request_id, summary);
  LogEnd(request_id, "score", status, summary);
  environment_.metrics.CountRequest(RequestKind::kScore, status, summary);
  return status;
}

absl::Status RequestRunner::RunScore(const ScoreInput& input, const CallPeers& call, const Scoring::Sink& scores,
                                     const std::string& request_id, RequestSummary& summary) {
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Ready());
  MOE_ASSIGN_OR_RETURN(const ScoreJob job, PrepareScore(input, *model, request_id));
  spdlog::info("[{}] score: {} tokens", request_id, job.tokens.size());
  Scoring scoring(job, environment_, call, scores);
  const absl::Status status = scoring.Run();
  summary = scoring.Summary();
  return status;
}

}  // namespace moestro
