// Which of the roles that serve requests are up, and waiting for one that is coming back. Thread-safe.
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/router/admission/clock.h"

namespace moestro {

enum class Role { kPrefill = 0, kDecode = 1 };
inline constexpr std::array<Role, 2> kServingRoles = {Role::kPrefill, Role::kDecode};

const char* RoleName(Role role);  // "prefill", "decode"

class RoleMonitor {
 public:
  // Asks the role's health; must answer within a second or so. Called by one thread at a time for each role.
  using Ping = std::function<bool(Role)>;
  // Ends the calls to the role that are under way, with UNAVAILABLE.
  using CutOff = std::function<void(Role)>;

  // `recovery`: how long after a role went away requests wait for it. Roles count as down from now on until a ping
  // succeeds. `clock` must outlive the monitor.
  RoleMonitor(Ping ping, CutOff cut_off, Clock& clock, Clock::Duration recovery);

  // Asks every role once, unless it was asked less than kMinPingInterval ago, and cuts those off that have been away
  // for `recovery`: a role whose loop hangs keeps its calls open.
  void Poll();

  bool IsUp(Role role) const;

  // A call to the role failed because it is gone.
  void ReportDown(Role role);

  // OK once the role answers; UNAVAILABLE, naming it, when it has been away for `recovery`; the error of `check` (asked
  // between two pings) when the caller gives up.
  absl::Status WaitUntilUp(Role role, absl::FunctionRef<absl::Status()> check);

  // However many requests wait, a role is asked no more often than this.
  static constexpr std::chrono::milliseconds kMinPingInterval{50};

 private:
  struct State {
    Mutex ping_mutex;  // held during a ping; taken before `mutex_`
    bool up = false;
    Clock::TimePoint down_since;
    std::optional<Clock::TimePoint> pinged_at;
  };

  bool Probe(Role role);
  Clock::Duration Away(Role role) const;  // 0 while it is up
  State& state(Role role) { return states_[static_cast<size_t>(role)]; }
  const State& state(Role role) const { return states_[static_cast<size_t>(role)]; }

  const Ping ping_;
  const CutOff cut_off_;
  Clock& clock_;
  const Clock::Duration recovery_;
  mutable Mutex mutex_;  // of the states' values; not of their ping_mutex
  std::array<State, kServingRoles.size()> states_;
};

}  // namespace moestro
