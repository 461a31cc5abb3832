// What generating and scoring have in common: getting pages at decode, and going on after a role has died.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "services/router/admission/admission.h"
#include "services/router/admission/clock.h"
#include "services/router/admission/path_policy.h"
#include "services/router/admission/roles.h"
#include "services/router/metrics.h"
#include "services/router/request/peers.h"

namespace moestro {

// What all requests of the process share.
struct RouterEnvironment {
  RoleMonitor& roles;
  AdmissionQueue& queue;
  PathPolicy& policy;
  RouterMetrics& metrics;
  Clock& clock;
};

// What belongs to one call of a client.
struct CallPeers {
  PrefillPeer& prefill;
  DecodePeer& decode;
  // OK while the client waits, else CANCELLED or DEADLINE_EXCEEDED.
  std::function<absl::Status()> check;
};

// What a request has to do with the prefix cache.
struct CacheUse {
  std::string scope = {};
  bool ignore = false;  // neither uses what is cached nor adds to it
};

// Used by one thread. The pages go back to decode when this object ends.
class RequestLife {
 public:
  // Failures of roles that one request survives. Losing its pages to an older one is none.
  static constexpr int kMaxRecoveries = 5;
  // How often a waiting request looks whether it is its turn, and the first of them whether pages have come back.
  static constexpr std::chrono::milliseconds kAdmissionInterval{20};
  // The first asks decode when they have, and then with pauses that double up to this: pages may still drain, or be
  // those of a router before this one.
  static constexpr std::chrono::milliseconds kMaxAdmissionPause{640};

  // `fingerprint`: of the weights that the request's tokens are for.
  RequestLife(const RouterEnvironment& environment, const CallPeers& call, std::string request_id,
              std::string fingerprint);
  ~RequestLife() { ReleasePages(); }

  // Waits in line until decode grants pages for `tokens` and `max_tokens` more. RESOURCE_EXHAUSTED when the line is
  // full, INVALID_ARGUMENT when the pool could never hold that many, FAILED_PRECONDITION when decode serves other
  // weights.
  absl::Status AcquirePages(std::span<const int32_t> tokens, uint32_t max_tokens, const CacheUse& cache);
  void ReleasePages();
  bool has_pages() const { return session_ != nullptr; }
  DecodeSession& session() { return *session_; }  // REQUIRES: has_pages()
  const KvLease& lease() const { return lease_; }

  // OK if prefill answers. Waits for it if it does not; UNAVAILABLE if it has been away for longer than requests wait,
  // or has refused this request.
  absl::Status WaitForPrefill();

  // Notes that a call to `role` failed with `status`, and returns it. When prefill found the lease revoked, decode is
  // asked why, and its answer is noted and returned instead.
  absl::Status Failed(Role role, const absl::Status& status);

  // After an attempt that ended with `failure`: OK if another may begin now. If the pages are lost they have been
  // released. Waits for a role that went away. Returns the failure if it is not one that another attempt could mend.
  // Losing the pages to an older request is a part of normal operation and may happen any number of times.
  absl::Status Recover(const absl::Status& failure);

  // Arrival is when this object was made.
  double SecondsSinceArrival() const { return Seconds(environment_.clock.Now() - arrived_at_); }
  double queue_seconds() const { return queue_seconds_; }  // until the first pages were granted
  uint32_t resumed() const { return resumed_; }            // times that work under way was taken up again
  absl::Status Check() const { return call_.check(); }
  const std::string& request_id() const { return request_id_; }

 private:
  absl::Status TryAcquire(const ReserveRequest& request);
  absl::StatusOr<AdmissionQueue::Place> LineUp();
  void CountResumed();

  const RouterEnvironment environment_;
  const CallPeers call_;
  const std::string request_id_;
  const std::string fingerprint_;
  const uint64_t arrival_;
  const Clock::TimePoint arrived_at_;
  bool lined_up_ = false;
  bool admitted_ = false;
  double queue_seconds_ = 0;
  std::unique_ptr<DecodeSession> session_;
  KvLease lease_;
  std::unique_ptr<GaugeHold> running_;
  std::optional<Role> failed_role_;
  absl::Status prefill_refusal_;  // what another call to it would end with
  int recoveries_ = 0;
  uint32_t resumed_ = 0;
};

}  // namespace moestro
