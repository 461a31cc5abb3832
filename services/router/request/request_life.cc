#include "services/router/request/request_life.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/telemetry/log.h"
#include "services/router/access/retry_after.h"

namespace moestro::router {
namespace {

// True if the work is lost although the role may be up. Either decode ended a session that was not started in time, or
// a draining role cut the call off. Only for calls whose client still waits, so the client caused none of these.
bool IsCutOff(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
}

// Of a wait that ends by itself. Any number will do: it keeps the clock's arithmetic from overflowing.
constexpr RequestClock::Duration kLongestPause = std::chrono::hours(1);
// A deadline may pass between `check` and the next look at the clock.
constexpr RequestClock::Duration kShortestPause = std::chrono::milliseconds(1);

// The pool looks for memory every five seconds.
constexpr std::chrono::seconds kRetryWithoutMemory(5);

// The request fits the context that is announced, so decode's pool is smaller for now: the memory that it may grow into
// is with others.
absl::Status OutOfMemory(size_t tokens) {
  return WithRetryAfter(absl::UnavailableError(absl::StrCat("decode's KV pool has no memory for ", tokens,
                                                            " tokens and an answer now; try again later")),
                        kRetryWithoutMemory);
}

// When the first request in the queue asks decode for pages.
class AskingPace {
 public:
  // `returns`: how often pages have come back so far.
  bool IsTime(RequestClock::TimePoint now, uint64_t returns) {
    if (std::exchange(returns_, returns) != returns) {
      pause_ = RequestLife::kMinAdmissionPause;
    } else if (now < next_) {
      return false;
    }
    next_ = now + pause_;
    pause_ = std::min<RequestClock::Duration>(2 * pause_, RequestLife::kMaxAdmissionPause);
    return true;
  }
  RequestClock::TimePoint next() const { return next_; }

 private:
  RequestClock::TimePoint next_;
  RequestClock::Duration pause_ = RequestLife::kMinAdmissionPause;
  uint64_t returns_ = 0;
};

}  // namespace

RequestLife::RequestLife(const RouterEnvironment& environment, const CallPeers& call, std::string request_id,
                         std::string fingerprint, uint32_t tokens, AdmissionQueue::Kind kind)
    : environment_(environment),
      call_(call),
      request_id_(std::move(request_id)),
      fingerprint_(std::move(fingerprint)),
      queued_(environment.queue, call.tenant, tokens, kind),
      arrived_at_(environment.clock.Now()) {}

absl::Status RequestLife::AcquirePages(std::span<const int32_t> tokens, uint32_t max_tokens, const CacheUse& cache,
                                       const std::function<absl::Status()>& waiting) {
  ReserveRequest request{.request_id = request_id_,
                         .fingerprint = fingerprint_,
                         .tokens = tokens,
                         .max_tokens = max_tokens,
                         .arrival = 0,  // known when it is first
                         .cache_scope = cache.scope,
                         .ignore_cache = cache.ignore};
  const GaugeHold counted(environment_.metrics.waiting);
  const GaugeHold counted_of_tenant(tenant().metrics().waiting);
  bool told = waiting == nullptr;
  MOE_ASSIGN_OR_RETURN(const AdmissionQueue::Request::Place place, queued_.LineUp());
  const std::shared_ptr<void> watch = call_.watch ? call_.watch([&place] { place.Wake(); }) : nullptr;
  AskingPace pace;
  RequestClock::Duration waited{0};
  while (true) {
    MOE_RETURN_IF_ERROR(Check());
    RequestClock::Duration pause = call_.watch ? kLongestPause : kCheckInterval;
    if (call_.deadline) {
      pause =
          std::min(pause, std::max<RequestClock::Duration>(*call_.deadline - environment_.clock.Now(), kShortestPause));
    }
    if (place.IsFirst()) {
      if (pace.IsTime(environment_.clock.Now(), environment_.queue.returns())) {
        request.arrival = queued_.seniority();
        if (call_.asking) call_.asking(waited);
        const absl::Status status = TryAcquire(request);
        if (status.ok()) break;
        if (absl::IsInvalidArgument(status)) return OutOfMemory(tokens.size());
        if (!absl::IsResourceExhausted(status)) return Failed(Role::kDecode, status);
      }
      pause = std::min(pause, pace.next() - environment_.clock.Now());
    }
    if (!std::exchange(told, true)) MOE_RETURN_IF_ERROR(waiting());
    const RequestClock::TimePoint before = environment_.clock.Now();
    place.Wait(environment_.clock, pause);
    waited += environment_.clock.Now() - before;
  }
  running_ = std::make_unique<GaugeHold>(environment_.metrics.running);
  running_of_tenant_ = std::make_unique<GaugeHold>(tenant().metrics().running);
  if (!admitted_) {
    admitted_ = true;
    used_tokens_ = static_cast<uint32_t>(tokens.size());
    queued_.SetUsed(used_tokens_);
    tenant().metrics().prompt_tokens.Increment(used_tokens_);
    queue_seconds_ = SecondsSinceArrival();
    environment_.metrics.queue_seconds.Observe(queue_seconds_);
  }
  return absl::OkStatus();
}

absl::Status RequestLife::TryAcquire(const ReserveRequest& request) {
  std::unique_ptr<DecodeSession> session = call_.decode.OpenSession();
  MOE_ASSIGN_OR_RETURN(Reservation reservation, session->Reserve(request));
  lease_ = std::move(reservation.lease);
  environment_.queue.SetPlaces(reservation.max_batch);
  if (lease_.cached_tokens >= std::ssize(request.tokens)) {
    return absl::InternalError("decode: reports the last token as cached, so that no token could be sampled after it");
  }
  session_ = std::move(session);
  return absl::OkStatus();
}

void RequestLife::CountGenerated() {
  recoveries_ = 0;
  queued_.SetUsed(++used_tokens_);
  tenant().metrics().generated_tokens.Increment();
}

void RequestLife::NotePrompt(uint32_t tokens) {
  if (tokens <= most_prompt_) return;
  most_prompt_ = tokens;
  recoveries_ = 0;
}

void RequestLife::ReleasePages() {
  if (!has_pages()) return;
  session_.reset();
  running_.reset();
  running_of_tenant_.reset();
  environment_.queue.CountReturn();
}

absl::Status RequestLife::WaitForPrefill() {
  MOE_RETURN_IF_ERROR(prefill_refusal_);
  if (environment_.roles.IsUp(Role::kPrefill)) return absl::OkStatus();
  return environment_.roles.WaitUntilUp(Role::kPrefill, call_.check);
}

absl::Status RequestLife::Failed(Role role, const absl::Status& status) {
  if (status.ok()) return status;
  failed_role_ = role;
  if (role == Role::kDecode || !absl::IsAborted(status)) return status;
  // Only decode revokes leases, so only decode knows whether an older request got the pages.
  failed_role_ = Role::kDecode;
  return session_->GiveUp();
}

void RequestLife::CountResumed() {
  ++resumed_;
  environment_.metrics.resumed.Increment();
}

absl::Status RequestLife::Recover(const absl::Status& failure) {
  const std::optional<Role> role = std::exchange(failed_role_, std::nullopt);
  if (!role) return failure;
  if (*role == Role::kPrefill && absl::IsFailedPrecondition(failure)) {
    LogWarning("[{}] {}; continuing without prefill", request_id_, std::string(failure.message()));
    prefill_refusal_ = absl::UnavailableError(failure.message());
    CountResumed();
    ReleasePages();
    return absl::OkStatus();
  }
  const bool gone = absl::IsUnavailable(failure);
  if (!gone && !IsCutOff(failure)) return failure;
  MOE_RETURN_IF_ERROR(Check());
  if (*role == Role::kDecode && absl::IsAborted(failure)) {
    LogInfo("[{}] an older request took its pages; queued again", request_id_);
    environment_.metrics.preempted.Increment();
    CountResumed();
    ReleasePages();
    return absl::OkStatus();
  }
  if (++recoveries_ > kMaxRecoveries) {
    return absl::UnavailableError(absl::StrCat("gave up after ", kMaxRecoveries,
                                               " recoveries without progress: ", std::string(failure.message())));
  }
  if (has_pages()) CountResumed();  // Otherwise no work was under way that could resume.
  LogWarning("[{}] {}; recovery {} of {}", request_id_, std::string(failure.message()), recoveries_, kMaxRecoveries);
  // Pages die with decode. When only prefill died, the part it had finished is still in them.
  if (*role == Role::kDecode || !gone) ReleasePages();
  if (!gone) return absl::OkStatus();
  environment_.roles.ReportDown(*role);
  const absl::Status back = environment_.roles.WaitUntilUp(*role, call_.check);
  if (*role == Role::kDecode || !absl::IsUnavailable(back)) return back;
  // A request that does not need prefill goes on in new pages: a hanging prefill may still hold these.
  ReleasePages();
  return absl::OkStatus();
}

}  // namespace moestro::router
