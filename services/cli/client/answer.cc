#include "services/cli/client/answer.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

const char* ReasonName(v1::FinishReason reason) {
  if (reason == v1::FINISH_REASON_STOP) return "stop";
  return reason == v1::FINISH_REASON_LENGTH ? "length" : "none";
}

const char* PathName(v1::PrefillPath path) {
  switch (path) {
    case v1::PREFILL_PATH_CHUNKED:
      return "chunked";
    case v1::PREFILL_PATH_SPLIT:
      return "split";
    case v1::PREFILL_PATH_WHOLE_MACHINE:
      return "whole_machine";
    default:
      return "none";
  }
}

// "3 prompt", "3 prompt (2 cached)"
std::string PromptPart(const v1::Usage& usage) {
  std::string part = absl::StrCat(usage.prompt_tokens(), " prompt");
  if (usage.cached_tokens() > 0) absl::StrAppend(&part, " (", usage.cached_tokens(), " cached)");
  return part;
}

// One line on stderr, rewritten in place and erased at the end.
class PrefillLine {
 public:
  ~PrefillLine() { Wipe(); }

  void Show(const v1::PrefillProgress& progress) {
    if (!terminal_ || std::chrono::steady_clock::now() - started_ < kQuietTime || progress.total_tokens() == 0) return;
    std::fprintf(stderr, "\rprefill %u / %u tokens (%u %%)", progress.done_tokens(), progress.total_tokens(),
                 static_cast<unsigned>(uint64_t{100} * progress.done_tokens() / progress.total_tokens()));
    std::fflush(stderr);
    shown_ = true;
  }

  void Wipe() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
    shown_ = false;
  }

 private:
  static constexpr std::chrono::seconds kQuietTime{2};  // short waits need no explanation
  const bool terminal_ = IsTerminal(StandardStream::kStderr);
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  bool shown_ = false;
};

// Tokens after the first, divided by the time after the first.
double TokensPerSecond(const v1::GenerateResponse::Finished& finished) {
  const double seconds = finished.total_seconds() - finished.time_to_first_token_seconds();
  const uint32_t tokens = finished.usage().completion_tokens();
  return tokens > 1 && seconds > 0 ? (tokens - 1) / seconds : 0;
}

}  // namespace

absl::Status StreamAnswer(RouterClient& client, const v1::GenerateRequest& request, bool print, Answer& answer) {
  PrefillLine prefill;
  return client.Generate(request, [&](const v1::GenerateResponse& reply) {
    if (reply.has_started()) answer.started = reply.started();
    if (reply.has_prefill()) prefill.Show(reply.prefill());
    if (reply.has_finished()) answer.finished = reply.finished();
    if (!reply.has_tokens()) return;
    prefill.Wipe();
    answer.text += reply.tokens().text();
    answer.tokens.insert(answer.tokens.end(), reply.tokens().tokens().begin(), reply.tokens().tokens().end());
    if (print) PrintText(reply.tokens().text());
  });
}

nlohmann::json ToJson(const Answer& answer) {
  nlohmann::json ids = nlohmann::json::array();
  nlohmann::json logprobs = nlohmann::json::array();
  nlohmann::json top_logprobs = nlohmann::json::array();
  for (const v1::Token& token : answer.tokens) {
    ids.push_back(token.id());
    logprobs.push_back(token.logprob());
    if (token.top().empty()) continue;
    nlohmann::json& top = top_logprobs.emplace_back(nlohmann::json::array());
    for (const v1::TokenAlternative& each : token.top())
      top.push_back({{"id", each.id()}, {"logprob", each.logprob()}});
  }
  const v1::GenerateResponse::Finished& finished = answer.finished;
  return {{"request_id", answer.started.request_id()},
          {"text", answer.text},
          {"token_ids", ids},
          {"logprobs", logprobs},
          {"top_logprobs", top_logprobs},
          {"finish_reason", ReasonName(finished.reason())},
          {"stop_text", finished.stop_text()},
          {"usage",
           {{"prompt_tokens", finished.usage().prompt_tokens()},
            {"completion_tokens", finished.usage().completion_tokens()},
            {"cached_tokens", finished.usage().cached_tokens()}}},
          {"timings",
           {{"queue_seconds", finished.queue_seconds()},
            {"prefill_seconds", finished.prefill_seconds()},
            {"time_to_first_token_seconds", finished.time_to_first_token_seconds()},
            {"total_seconds", finished.total_seconds()},
            {"tokens_per_second", TokensPerSecond(finished)}}},
          {"path", PathName(finished.path())},
          {"path_reason", answer.started.path_reason()},
          {"prefill_activations", finished.fp8_activations() ? "fp8" : "bf16"},
          {"resumed", finished.resumed()}};
}

std::string Summary(const Answer& answer) {
  const v1::GenerateResponse::Finished& finished = answer.finished;
  std::string line =
      absl::StrFormat("%s + %u tokens (%s), first after %.3f s, %.1f tok/s", PromptPart(finished.usage()),
                      finished.usage().completion_tokens(), ReasonName(finished.reason()),
                      finished.time_to_first_token_seconds(), TokensPerSecond(finished));
  if (finished.resumed() > 0) absl::StrAppend(&line, ", resumed ", finished.resumed(), "x");
  if (!answer.started.path_reason().empty()) {
    absl::StrAppend(&line, ", path ", PathName(answer.started.path()), " (", answer.started.path_reason(), ")");
  }
  // A request that lost its pages may have been recomputed on another path.
  if (finished.path() != answer.started.path()) absl::StrAppend(&line, ", then ", PathName(finished.path()));
  if (finished.fp8_activations()) absl::StrAppend(&line, ", FP8 activations");
  return line;
}

}  // namespace moestro::cli
