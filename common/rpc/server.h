// A gRPC server with the parts common to all processes: health (standard protocol, one entry per service and ""),
// reflection, a receive limit that fits 128K token ids, and an orderly shutdown. For clients over TCP it bounds
// connections (by the process's file descriptors), idle time, streams, threads and buffers. It cannot bound the bytes
// of a call's headers: gRPC 1.51 limits those of each frame, not the number of frames.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/access/tls_files.h"
#include "common/rpc/channel.h"

namespace grpc {
class Service;
}

namespace moestro {

// A service and its full name for health checks and reflection ("moestro.v1.DecodeService").
struct NamedService {
  const char* name;
  grpc::Service* service;
};

// Limits on what callers may make the server hold. A compressed message is always UNIMPLEMENTED, since it may expand
// thousands of times.
struct RpcLimits {
  int message_bytes = kMaxMessageBytes;  // RESOURCE_EXHAUSTED above
  // For clients over TCP: bytes received and not yet handed over, of all calls together. gRPC checks a message's length
  // only when it is complete, so only this bounds a message of gigabytes: its call, or another large one, ends with
  // RESOURCE_EXHAUSTED. May briefly reach twice this value.
  size_t memory_bytes = size_t{512} << 20;
  int threads = 0;  // for clients over TCP: concurrent calls of synchronous services; 0: any number
};

// What clients over TCP see.
struct RpcExposure {
  bool services_only = false;  // neither health nor reflection
  // TLS 1.2 or 1.3. The files are read again when they change. REQUIRES: CheckTlsFiles finds nothing.
  access::TlsFiles tls = {};
};

class RpcServer {
 public:
  // addresses: "unix:/path" or "host:port" (port 0 = any). The services must outlive the server. Health starts as
  // NOT_SERVING. UNAVAILABLE names the address that cannot be bound; a unix socket with a listening server stays that
  // server's. Raises the process's limit of file descriptors.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const std::vector<std::string>& addresses,
                                                          const std::vector<NamedService>& services,
                                                          const RpcLimits& limits = {},
                                                          const RpcExposure& exposure = {});
  ~RpcServer();

  // Port of the i-th address; 0 for unix sockets.
  int port(size_t index) const;

  void SetStarting();             // the process has what it needs, and will serve (kStartingService)
  void SetServing(bool serving);  // for every service and ""
  void SetAlive(bool alive);      // false: NOT_SERVING, whatever SetServing said

  // Whether new TCP clients are still answered within that time; true after Drain. Thread-safe.
  bool Answers(std::chrono::milliseconds timeout) const;

  // Health becomes NOT_SERVING at once, and new calls are refused. Running calls may finish within `grace`; then they
  // are cancelled.
  void Drain(std::chrono::milliseconds grace);

 private:
  struct Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
