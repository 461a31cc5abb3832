#include "services/router/request/scoring.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace moestro::router {

Scoring::Scoring(const ScoreJob& job, const RouterEnvironment& environment, const CallPeers& call, Sink sink)
    : job_(job),
      environment_(environment),
      prefill_(call.prefill),
      sink_(std::move(sink)),
      life_(environment, call, job.request_id, job.fingerprint, static_cast<uint32_t>(job.tokens.size()),
            AdmissionQueue::Kind::kLong) {}

absl::Status Scoring::Run() {
  while (true) {
    const absl::Status status = Attempt();
    // Only tokens that are computed get scores, so every attempt begins with pages in which no token is valid.
    if (status.ok() || delivered_ == job_.tokens.size()) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(life_.Recover(status));
    life_.ReleasePages();
  }
}

absl::Status Scoring::Attempt() {
  const auto count = static_cast<uint32_t>(job_.tokens.size());
  // Decode cannot replace prefill here, and pages are useless without prefill.
  MOE_RETURN_IF_ERROR(WaitForPrefill());
  MOE_RETURN_IF_ERROR(life_.AcquirePages(job_.tokens, 0, {.scope = "", .ignore = true}));
  received_ = 0;
  const bool whole_machine = environment_.policy.DecodeIsIdle();
  const PrefillRequest job{.request_id = job_.request_id,
                           .tokens = job_.tokens,
                           .prompt_tokens = count,
                           .lease = life_.lease(),
                           .whole_machine = whole_machine,
                           .way = job_.way,
                           .way_required = job_.way.has_value()};
  absl::Status client = absl::OkStatus();
  const absl::Status status = prefill_.Score(
      job, job_.top,
      [&](const PrefillProgress& progress) {
        life_.NotePrompt(progress.done_tokens);
        return client = life_.Check();
      },
      [&](std::vector<ScoredToken> scores) { return client = Deliver(std::move(scores)); });
  MOE_RETURN_IF_ERROR(client);
  if (job_.way && absl::IsFailedPrecondition(status)) return status;  // no other way will do
  if (!status.ok()) return life_.Failed(Role::kPrefill, status);
  if (delivered_ != job_.tokens.size()) return absl::InternalError("prefill did not score every position");
  environment_.metrics.prompt_tokens.Increment(count);
  return absl::OkStatus();
}

absl::Status Scoring::WaitForPrefill() {
  const absl::Status status = life_.WaitForPrefill();
  if (!absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(absl::StrCat("scoring needs the prefill role: ", std::string(status.message())));
}

absl::Status Scoring::Deliver(std::vector<ScoredToken> scores) {
  MOE_RETURN_IF_ERROR(life_.Check());
  const size_t begin = received_;
  received_ += scores.size();
  if (received_ > job_.tokens.size()) return absl::InternalError("prefill scored more positions than there are");
  if (received_ <= delivered_) return absl::OkStatus();
  // An earlier attempt has already delivered the first of them.
  if (delivered_ > begin) scores.erase(scores.begin(), scores.begin() + static_cast<ptrdiff_t>(delivered_ - begin));
  delivered_ = received_;
  return sink_(std::move(scores));
}

RequestSummary Scoring::Summary() const {
  return {.prompt_tokens = static_cast<uint32_t>(job_.tokens.size()),
          .used_tokens = life_.used_tokens(),
          .resumed = life_.resumed(),
          .queue_seconds = life_.queue_seconds(),
          .total_seconds = life_.SecondsSinceArrival()};
}

}  // namespace moestro::router
