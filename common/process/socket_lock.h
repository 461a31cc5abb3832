// Who listens on a unix socket. gRPC removes the socket that it finds at its address and binds its own, even while
// another process listens there, which then lives on where nobody can reach it; so servers agree on a lock beside the
// socket.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/platform/lock_file.h"

namespace moestro {

class SocketLock {
 public:
  // The lock is on `socket`.lock, until destruction or death of the process; a file that a killed process left does not
  // matter. UNAVAILABLE names the socket, who listens on it and the remedy, or the file that cannot be made.
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
