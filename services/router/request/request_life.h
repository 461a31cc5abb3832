// What generating and scoring share: getting pages from decode, and resuming after a role has died.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "services/router/access/tenant.h"
#include "services/router/admission/admission.h"
#include "services/router/admission/clock.h"
#include "services/router/admission/path_policy.h"
#include "services/router/admission/roles.h"
#include "services/router/metrics.h"
#include "services/router/request/peers.h"

namespace moestro::router {

// Shared by all requests of the process.
struct RouterEnvironment {
  RoleMonitor& roles;
  AdmissionQueue& queue;
  PathPolicy& policy;
  RouterMetrics& metrics;
  RequestClock& clock;
};

// Belongs to one call of a client.
struct CallPeers {
  PrefillPeer& prefill;
  DecodePeer& decode;
  // OK while the client waits, else CANCELLED or DEADLINE_EXCEEDED.
  std::function<absl::Status()> check;
  // Ends the client's call as CANCELLED, and with it the calls of the peers. From then on `check` says so. Called from
  // any thread while the call runs; must not block.
  std::function<void()> cancel;
  std::shared_ptr<Tenant> tenant;  // who calls; not null
  // Called whenever decode is about to be asked for pages: how long the request has waited in the line. Empty: nobody
  // wants to know.
  std::function<void(RequestClock::Duration waited)> asking = {};
  size_t bytes = 0;  // of the client's request: large ones do not hold up small ones (text_turns.h)
  // When `check` will say DEADLINE_EXCEEDED; nullopt: never.
  std::optional<RequestClock::TimePoint> deadline = std::nullopt;
  // Calls `on_cancel` when `check` begins to say CANCELLED, at once if it does already, until the returned object is
  // destroyed. On any thread; must not block. Empty: nobody tells, so that waits ask `check` now and then.
  std::function<std::shared_ptr<void>(std::function<void()> on_cancel)> watch = {};
};

// How a request uses the prefix cache.
struct CacheUse {
  std::string scope = {};
  bool ignore = false;  // neither uses cached prefixes nor adds to them
};

// Used by one thread. The destructor returns the pages to decode.
class RequestLife {
 public:
  // Role failures that a request survives without getting on. A new token, or more of its prompt than ever before,
  // makes up for those until then. Losing its pages to an older request does not count.
  static constexpr int kMaxRecoveries = 5;
  // When pages have come back, the first in the line asks decode. After that it asks with pauses that double from the
  // first to the second: pages may still drain, or belong to an earlier router process.
  static constexpr std::chrono::milliseconds kMinAdmissionPause{20};
  static constexpr std::chrono::milliseconds kMaxAdmissionPause{640};
  // How often a request in the line looks whether its client still waits, if nobody tells it. Its turn wakes it.
  static constexpr std::chrono::milliseconds kCheckInterval{250};

  // `fingerprint`: of the weights that the request's tokens are for. `tokens`: as of AdmissionQueue::Request.
  RequestLife(const RouterEnvironment& environment, const CallPeers& call, std::string request_id,
              std::string fingerprint, uint32_t tokens, AdmissionQueue::Kind kind);
  ~RequestLife() { ReleasePages(); }

  // Waits in the queue until decode grants pages for `tokens` and `max_tokens` more. RESOURCE_EXHAUSTED: the queue is
  // full. UNAVAILABLE with a retry-after: the pool has no memory for that many now. FAILED_PRECONDITION: decode serves
  // other weights.
  // `waiting` is called once if that does not succeed at once; its error ends the wait.
  absl::Status AcquirePages(std::span<const int32_t> tokens, uint32_t max_tokens, const CacheUse& cache,
                            const std::function<absl::Status()>& waiting = nullptr);
  void ReleasePages();
  // Tokens of the prompt once pages were granted, and those that were counted since.
  uint32_t used_tokens() const { return used_tokens_; }
  void CountGenerated();
  // So many tokens of the prompt are computed.
  void NotePrompt(uint32_t tokens);
  Tenant& tenant() const { return *call_.tenant; }
  bool has_pages() const { return session_ != nullptr; }
  DecodeSession& session() { return *session_; }  // REQUIRES: has_pages()
  const KvLease& lease() const { return lease_; }

  // Waits until prefill answers. UNAVAILABLE if it has been away for longer than requests wait, or has refused this
  // request.
  absl::Status WaitForPrefill();
  // Whether it answers now, and has not refused this request.
  bool PrefillIsUp() const { return prefill_refusal_.ok() && environment_.roles.IsUp(Role::kPrefill); }

  // Notes that a call to `role` failed with `status`, and returns it. If prefill found the lease revoked, asks decode
  // why, and notes and returns that answer instead.
  absl::Status Failed(Role role, const absl::Status& status);

  // Called after an attempt that ended with `failure`. OK if another attempt may begin now. Releases the pages if they
  // are lost, and waits for a role that went away. Returns `failure` if another attempt cannot help. An older request
  // may take the pages any number of times: this is normal operation.
  absl::Status Recover(const absl::Status& failure);

  // The request arrives when this object is constructed.
  double SecondsSinceArrival() const { return Seconds(environment_.clock.Now() - arrived_at_); }
  double queue_seconds() const { return queue_seconds_; }  // until the first pages were granted
  uint32_t resumed() const { return resumed_; }            // times that work under way was resumed
  absl::Status Check() const { return call_.check(); }
  const std::string& request_id() const { return request_id_; }

 private:
  absl::Status TryAcquire(const ReserveRequest& request);
  void CountResumed();

  const RouterEnvironment environment_;
  const CallPeers call_;
  const std::string request_id_;
  const std::string fingerprint_;
  AdmissionQueue::Request queued_;
  const RequestClock::TimePoint arrived_at_;
  bool admitted_ = false;
  uint32_t used_tokens_ = 0;
  double queue_seconds_ = 0;
  std::unique_ptr<DecodeSession> session_;
  KvLease lease_;
  std::unique_ptr<GaugeHold> running_;
  std::unique_ptr<GaugeHold> running_of_tenant_;
  std::optional<Role> failed_role_;
  absl::Status prefill_refusal_;  // what another call to prefill would return
  int recoveries_ = 0;            // since the request got on
  uint32_t most_prompt_ = 0;      // computed at any time
  uint32_t resumed_ = 0;
};

}  // namespace moestro::router
