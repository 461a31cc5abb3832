#include "common/process/socket_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace moestro {
namespace {

constexpr int64_t kListener = 0;

// False if the file was removed after it was opened: another process may have a new one of that name.
bool IsLinked(int descriptor) {
  struct stat info;
  return fstat(descriptor, &info) == 0 && info.st_nlink > 0;
}

std::string ListenerIn(int descriptor) {
  char text[32];
  const ssize_t bytes = pread(descriptor, text, sizeof(text), 0);
  int pid = 0;
  const bool known = bytes > 0 && absl::SimpleAtoi(absl::string_view(text, static_cast<size_t>(bytes)), &pid);
  return known ? absl::StrCat("process ", pid) : "another process";
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketLock>> SocketLock::Take(const std::string& socket) {
  const std::string path = socket + ".lock";
  while (true) {
    const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor < 0) return absl::UnavailableError(absl::StrCat("cannot make ", path, ": ", strerror(errno)));
    std::unique_ptr<SocketLock> lock(new SocketLock(path, descriptor));
    if (!lock->file_.TryLock(kListener)) {
      return absl::UnavailableError(absl::StrCat(socket, ": ", ListenerIn(descriptor),
                                                 " listens on it; stop that one, or choose another --run-dir"));
    }
    if (lock->Hold()) return lock;
  }
}

bool SocketLock::Hold() {
  held_ = IsLinked(descriptor_);
  if (held_ && ftruncate(descriptor_, 0) == 0) dprintf(descriptor_, "%d\n", getpid());  // for the message above
  return held_;
}

SocketLock::~SocketLock() {
  if (held_ && IsLinked(descriptor_)) unlink(path_.c_str());
}

}  // namespace moestro
