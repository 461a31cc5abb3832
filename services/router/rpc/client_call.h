// One call of a client, whichever front received it: whether the client still waits, and until when. The router's calls
// to roles on its behalf end with it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/router/rpc/call_times.h"

namespace grpc {
class ClientContext;
}

namespace moestro::router {

class Tenant;

class ClientCall {  // thread-safe
 public:
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;

  explicit ClientCall(Deadline deadline = std::nullopt) : deadline_(deadline) {}
  virtual ~ClientCall() = default;
  ClientCall(const ClientCall&) = delete;
  ClientCall& operator=(const ClientCall&) = delete;

  // OK while the client waits; else CANCELLED or DEADLINE_EXCEEDED. Cheap enough to call between two tokens.
  virtual absl::Status Check() const;

  // A call to a role that has this call's deadline.
  virtual std::unique_ptr<grpc::ClientContext> NewContext() const;

  // Who calls; null until it is known. Set it before other threads use the call.
  void SetTenant(std::shared_ptr<Tenant> tenant) { tenant_ = std::move(tenant); }
  const std::shared_ptr<Tenant>& tenant() const { return tenant_; }

  // Of the client's request. Set them before other threads use the call.
  void SetBytes(size_t bytes) { bytes_ = bytes; }
  size_t bytes() const { return bytes_; }

  const Deadline& deadline() const { return deadline_; }

  CallTimes& times() const { return times_; }

  // The client has left, or nobody wants the answer any more: ends the calls to roles, too. Does not block.
  void Cancel();

  // During its lifetime, Cancel calls `on_cancel`, which must not block; at once if Cancel was called before.
  class Watch {
   public:
    Watch(const ClientCall& call, std::function<void()> on_cancel);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    const ClientCall& call_;
    std::list<std::function<void()>>::iterator place_ ABSL_GUARDED_BY(call_.mutex_);
  };

 private:
  const Deadline deadline_;
  std::shared_ptr<Tenant> tenant_;
  size_t bytes_ = 0;
  mutable CallTimes times_;
  mutable Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  mutable std::list<std::function<void()>> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::router
