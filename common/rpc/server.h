// A gRPC server with what every process has: health (standard protocol, one entry per service and ""), reflection, a
// receive limit that fits 128K token ids, and an orderly end. Where clients reach it over TCP, what they can take is
// bounded: connections by the file descriptors of the process, idle ones by time, streams, threads and buffers. The
// bytes of a call's headers are not: gRPC 1.51 limits those of each frame, not their number.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/channel.h"

namespace grpc {
class Service;
}

namespace moestro {

// A service and the full name that health checks and reflection know it by ("moestro.v1.DecodeService").
struct NamedService {
  const char* name;
  grpc::Service* service;
};

// What callers may make the server hold. A compressed message is UNIMPLEMENTED whatever the limits are, for it may
// become thousands of times as long.
struct RpcLimits {
  int message_bytes = kMaxMessageBytes;  // RESOURCE_EXHAUSTED beyond
  // Of clients over TCP, what is received and not handed over yet, of all calls together. gRPC looks at the length of a
  // message only when it has all of it, so this alone bounds one of gigabytes: its call, or another one that takes
  // much, ends with RESOURCE_EXHAUSTED. For a moment it may be up to twice as much.
  size_t memory_bytes = size_t{512} << 20;
  int threads = 0;  // of clients over TCP: calls of synchronous services at once; 0: any number
};

class RpcServer {
 public:
  // addresses: "unix:/path" or "host:port" (port 0 = any). The services must outlive the server. Health starts as
  // NOT_SERVING. UNAVAILABLE names the address that cannot be bound; a unix socket on which another server listens is
  // left to it. Raises the process's limit of file descriptors.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const std::vector<std::string>& addresses,
                                                          const std::vector<NamedService>& services,
                                                          const RpcLimits& limits = {});
  ~RpcServer();

  // Port of the i-th address; 0 for unix sockets.
  int port(size_t index) const;

  void SetServing(bool serving);  // of every service and of ""
  void SetAlive(bool alive);      // false: nothing serves, whatever SetServing has said

  // Whether clients that come over TCP are still answered, within that time; true after Drain. Thread-safe.
  bool Answers(std::chrono::milliseconds timeout) const;

  // Health goes to NOT_SERVING at once, new calls are refused, running ones may finish until `grace` is over; what is
  // left then is cancelled.
  void Drain(std::chrono::milliseconds grace);

 private:
  struct Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
