// The standard health protocol (grpc.health.v1). Not gRPC's built-in service: that reports SERVING for the unnamed
// service as soon as the server listens, before the process could say otherwise.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace moestro {

// SERVING while the process has what it needs, and is alive, but does not serve yet: whoever waits for it may wait on.
inline constexpr char kStartingService[] = "moestro.starting";

// Knows the named services and "", the whole process; all have the same status. SERVING while the process serves and is
// alive. Check knows kStartingService, too. Other names are NOT_FOUND for Check and SERVICE_UNKNOWN for Watch. An idle
// Watch occupies no thread. Thread-safe.
class HealthRpc final : public grpc::health::v1::Health::CallbackService {
 public:
  explicit HealthRpc(const std::vector<std::string>& services);
  ~HealthRpc() override;

  void SetStarting();             // it has what it needs; ends with SetServing
  void SetServing(bool serving);  // initially false
  void SetAlive(bool alive);      // initially true; false: a thread hangs
  // NOT_SERVING permanently. Watchers are notified, then their calls end with CANCELLED: otherwise a server that drains
  // running calls would wait for them.
  void Shutdown();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  bool Knows(const std::string& service) const { return names_.contains(service); }
  Status StatusLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellWatchersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::set<std::string> names_;  // constant
  Mutex mutex_;                  // protects all watchers, too
  bool starting_ ABSL_GUARDED_BY(mutex_) = false;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool alive_ ABSL_GUARDED_BY(mutex_) = true;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro
