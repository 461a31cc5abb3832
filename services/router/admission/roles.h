// Tracks which of the serving roles are up, and waits for a role that restarts. Thread-safe.
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/router/admission/clock.h"

namespace moestro::router {

enum class Role { kPrefill = 0, kDecode = 1 };
inline constexpr std::array<Role, 2> kServingRoles = {Role::kPrefill, Role::kDecode};

const char* RoleName(Role role);  // "prefill", "decode"

// What a role says of itself. kStarting: it does not serve yet, but has what it needs for that.
enum class Life { kAway, kStarting, kUp };

class RoleMonitor {
 public:
  // Asks the role's health. Must answer within about two seconds. At most one thread at a time calls it for each role.
  using Ping = std::function<Life(Role)>;
  // Ends the role's calls in flight with UNAVAILABLE.
  using CutOff = std::function<void(Role)>;

  // `recovery`: how long requests wait for a role after it went away, or after the last sign that it is on its way
  // back. At first every role counts as down until a ping succeeds. `clock` must outlive the monitor.
  RoleMonitor(Ping ping, CutOff cut_off, RequestClock& clock, RequestClock::Duration recovery);

  // Pings every role once, unless it was pinged less than kMinPingInterval ago. Cuts off roles that have been away for
  // `recovery`: a role whose loop hangs keeps its calls open.
  void Poll();

  bool IsUp(Role role) const;

  // Reports that a call to the role failed because the role is gone.
  void ReportDown(Role role);

  // What the roles wait for makes progress: those that are away have all of `recovery` again.
  void ReportProgress();

  // OK once the role answers. UNAVAILABLE, naming the role, when it has been away for `recovery`. The error of `check`,
  // which is called between two pings, when the caller gives up.
  absl::Status WaitUntilUp(Role role, absl::FunctionRef<absl::Status()> check);

  // A role is pinged no more often than this, however many requests wait.
  static constexpr std::chrono::milliseconds kMinPingInterval{50};
  // A role that has been starting for longer hangs. To pin hundreds of GB for a GPU takes minutes.
  static constexpr std::chrono::minutes kLongestStart{15};

 private:
  struct State {
    Mutex ping_mutex;  // held during a ping; taken before `mutex_`
    bool up = false;
    RequestClock::TimePoint down_since;  // or the last sign of its return
    std::optional<RequestClock::TimePoint> starting_since;
    std::optional<RequestClock::TimePoint> pinged_at;
  };

  bool Probe(Role role);
  RequestClock::Duration Away(Role role) const;  // 0 while it is up
  State& state(Role role) { return states_[static_cast<size_t>(role)]; }
  const State& state(Role role) const { return states_[static_cast<size_t>(role)]; }

  const Ping ping_;
  const CutOff cut_off_;
  RequestClock& clock_;
  const RequestClock::Duration recovery_;
  mutable Mutex mutex_;  // guards the states' values, but not their ping_mutex
  std::array<State, kServingRoles.size()> states_;
};

}  // namespace moestro::router
