#include "services/router/request_life.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace moestro {
namespace {

// The work is lost though the role may be up: prefill found the lease revoked, decode ended a session that was not
// started in time, or a role that drains cut the call off. Only for calls whose client still waits, so none of these is
// its doing.
bool IsCutOff(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

RequestLife::RequestLife(const RouterEnvironment& environment, const CallPeers& call, std::string request_id)
    : environment_(environment),
      call_(call),
      request_id_(std::move(request_id)),
      arrival_(environment.queue.NextArrival()),
      arrived_at_(environment.clock.Now()) {}

absl::StatusOr<AdmissionQueue::Place> RequestLife::LineUp() {
  if (lined_up_) return environment_.queue.EnterAgain(arrival_);
  lined_up_ = true;
  return environment_.queue.Enter(arrival_);
}

absl::Status RequestLife::AcquirePages(std::span<const int32_t> tokens, uint32_t max_tokens, bool ignore_cache) {
  const ReserveRequest request{.request_id = request_id_,
                               .tokens = tokens,
                               .max_tokens = max_tokens,
                               .arrival = arrival_,
                               .ignore_cache = ignore_cache};
  const GaugeHold waiting(environment_.metrics.waiting);
  MOE_ASSIGN_OR_RETURN(const AdmissionQueue::Place place, LineUp());
  while (true) {
    MOE_RETURN_IF_ERROR(Check());
    if (place.IsFirst()) {
      const absl::Status status = TryAcquire(request);
      if (status.ok()) break;
      if (!absl::IsResourceExhausted(status)) return Failed(Role::kDecode, status);
    }
    environment_.clock.SleepFor(kAdmissionInterval);
  }
  running_ = std::make_unique<GaugeHold>(environment_.metrics.running);
  if (!admitted_) {
    admitted_ = true;
    queue_seconds_ = SecondsSinceArrival();
    environment_.metrics.queue_seconds.Observe(queue_seconds_);
  }
  return absl::OkStatus();
}

absl::Status RequestLife::TryAcquire(const ReserveRequest& request) {
  std::unique_ptr<DecodeSession> session = call_.decode.OpenSession();
  MOE_ASSIGN_OR_RETURN(reservation_, session->Reserve(request));
  session_ = std::move(session);
  return absl::OkStatus();
}

void RequestLife::ReleasePages() {
  session_.reset();
  running_.reset();
}

absl::Status RequestLife::Failed(Role role, const absl::Status& status) {
  if (!status.ok()) failed_role_ = role;
  return status;
}

absl::Status RequestLife::Recover(const absl::Status& failure) {
  const std::optional<Role> role = std::exchange(failed_role_, std::nullopt);
  if (!role) return failure;
  const bool gone = absl::IsUnavailable(failure);
  if (!gone && !IsCutOff(failure)) return failure;
  MOE_RETURN_IF_ERROR(Check());
  if (++recoveries_ > kMaxRecoveries) {
    return absl::UnavailableError(
        absl::StrCat("gave up after ", kMaxRecoveries, " recoveries: ", std::string(failure.message())));
  }
  if (has_pages()) {  // Else nothing was under way that could go on.
    ++resumed_;
    environment_.metrics.resumed.Increment();
  }
  spdlog::warn("[{}] {}; recovery {} of {}", request_id_, std::string(failure.message()), recoveries_, kMaxRecoveries);
  // Pages live and die with decode; when only prefill died, what it had finished is still in them.
  if (*role == Role::kDecode || !gone) ReleasePages();
  if (!gone) return absl::OkStatus();
  environment_.roles.ReportDown(*role);
  return environment_.roles.WaitUntilUp(*role, call_.check);
}

}  // namespace moestro
