// The standard health protocol (grpc.health.v1), answered by ourselves: gRPC's built-in service says SERVING for the
// unnamed service from the moment at which the server listens, before the process had a chance to say otherwise.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"

namespace moestro {

// Knows the named services and "", the process as a whole; all have the same status, NOT_SERVING at first. Other names
// are NOT_FOUND for Check and SERVICE_UNKNOWN for Watch. A Watch costs no thread while nothing changes. Thread-safe.
class HealthRpc final : public grpc::health::v1::Health::CallbackService {
 public:
  explicit HealthRpc(const std::vector<std::string>& services);
  ~HealthRpc() override;

  void SetServing(bool serving);
  // NOT_SERVING for good. Watchers are told, and then their calls end with CANCELLED: otherwise a server that lets
  // running calls finish would wait for them.
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
  Status StatusLocked() const;
  void TellWatchersLocked();

  std::set<std::string> names_;  // constant
  std::mutex mutex_;             // guards what follows, and all watchers
  bool serving_ = false;
  bool shut_down_ = false;
  std::set<Watcher*> watchers_;
};

}  // namespace moestro
