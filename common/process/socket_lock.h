// Ensures that only one server listens on a unix socket. gRPC removes a socket at its address and binds its own, even
// while another process listens there; that process then becomes unreachable. So servers take a lock beside the socket.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/platform/lock_file.h"

namespace moestro {

class SocketLock {
 public:
  // Locks `socket`.lock until destruction or death of the process; a file left by a killed process is harmless.
  // UNAVAILABLE names the socket, its listener and the remedy, or the file that cannot be made.
  static absl::StatusOr<std::unique_ptr<SocketLock>> Take(const std::string& socket);
  ~SocketLock();  // removes the file

 private:
  SocketLock(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor), file_(descriptor) {}
  bool Hold();

  const std::string path_;
  const int descriptor_;  // file_ closes it
  LockFile file_;
  bool held_ = false;
};

}  // namespace moestro
