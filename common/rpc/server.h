// A gRPC server with what every process has: health (standard protocol, one entry per service and ""), reflection, a
// receive limit that fits 128K token ids, and an orderly end.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace grpc {
class Service;
}

namespace moestro {

// A service and the full name that health checks and reflection know it by ("moestro.v1.Decode").
struct NamedService {
  const char* name;
  grpc::Service* service;
};

class RpcServer {
 public:
  // addresses: "unix:/path" or "host:port" (port 0 = any). The services must outlive the server. Health starts as
  // NOT_SERVING. UNAVAILABLE names the address that cannot be bound; a unix socket on which another server listens is
  // left to it.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const std::vector<std::string>& addresses,
                                                          const std::vector<NamedService>& services);
  ~RpcServer();

  // Port of the i-th address; 0 for unix sockets.
  int port(size_t index) const;

  void SetServing(bool serving);  // of every service and of ""

  // Health goes to NOT_SERVING at once, new calls are refused, running ones may finish until `grace` is over; what is
  // left then is cancelled.
  void Drain(std::chrono::milliseconds grace);

 private:
  struct Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
