#include "services/router/admission/roles.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace moestro::router {

const char* RoleName(Role role) { return role == Role::kPrefill ? "prefill" : "decode"; }

RoleMonitor::RoleMonitor(Ping ping, CutOff cut_off, RequestClock& clock, RequestClock::Duration recovery)
    : ping_(std::move(ping)), cut_off_(std::move(cut_off)), clock_(clock), recovery_(recovery) {
  for (State& state : states_) state.down_since = clock_.Now();
}

void RoleMonitor::Poll() {
  for (const Role role : kServingRoles) {
    if (!Probe(role) && Away(role) >= recovery_) cut_off_(role);
  }
}

bool RoleMonitor::IsUp(Role role) const {
  MutexLock lock(mutex_);
  return state(role).up;
}

void RoleMonitor::ReportDown(Role role) {
  MutexLock lock(mutex_);
  State& entry = state(role);
  const RequestClock::TimePoint now = clock_.Now();
  if (entry.up) entry.down_since = now;
  entry.up = false;
  entry.pinged_at = now;  // An answer it gives right now is stale: a dying process may still answer.
}

bool RoleMonitor::Probe(Role role) {
  State& entry = state(role);
  MutexLock ping_lock(entry.ping_mutex);
  {
    MutexLock lock(mutex_);
    if (entry.pinged_at && clock_.Now() - *entry.pinged_at < kMinPingInterval) return entry.up;
  }
  const Life life = ping_(role);
  MutexLock lock(mutex_);
  const RequestClock::TimePoint now = clock_.Now();
  entry.pinged_at = now;
  if (life != Life::kStarting) {
    entry.starting_since.reset();
  } else if (!entry.starting_since) {
    entry.starting_since = now;
  }
  const bool comes_back = entry.starting_since && now - *entry.starting_since < kLongestStart;
  if (life != Life::kUp && (entry.up || comes_back)) entry.down_since = now;
  entry.up = life == Life::kUp;
  return entry.up;
}

void RoleMonitor::ReportProgress() {
  MutexLock lock(mutex_);
  for (State& entry : states_) {
    if (!entry.up) entry.down_since = clock_.Now();
  }
}

RequestClock::Duration RoleMonitor::Away(Role role) const {
  MutexLock lock(mutex_);
  return state(role).up ? RequestClock::Duration(0) : clock_.Now() - state(role).down_since;
}

absl::Status RoleMonitor::WaitUntilUp(Role role, absl::FunctionRef<absl::Status()> check) {
  while (!Probe(role)) {
    MOE_RETURN_IF_ERROR(check());
    const RequestClock::Duration away = Away(role);
    if (away >= recovery_) {
      return absl::UnavailableError(
          absl::StrFormat("%s has not answered for %.0f seconds: is it running?", RoleName(role), Seconds(away)));
    }
    clock_.SleepFor(kMinPingInterval);
  }
  return absl::OkStatus();
}

}  // namespace moestro::router
