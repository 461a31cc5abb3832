#include "common/process/watchdog.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "common/telemetry/log.h"

namespace moestro {
namespace {

constexpr std::chrono::seconds kPeriod(1);
// Between two looks this much passes on a busy machine; more only when the process could not work.
constexpr std::chrono::seconds kPause(4);

// The protocol of sd_notify(3), whose library would be larger than these lines. Does nothing without a listening
// supervisor, or if it does not accept the datagram.
void Notify(std::string_view state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || std::strlen(path) >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path);
  if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract address, not in the file system
  const int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return;
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  (void)sendto(descriptor, state.data(), state.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), bytes);
  close(descriptor);
}

int OpenFile(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Watchdog>> Watchdog::Open(Options options) {
  const int descriptor = OpenFile(options.file);
  if (descriptor < 0) return absl::UnavailableError(absl::StrCat(options.file, ": ", strerror(errno)));
  return std::unique_ptr<Watchdog>(new Watchdog(std::move(options), descriptor));
}

absl::StatusOr<std::unique_ptr<Watchdog>> Watchdog::Start(const NodeOptions& node, const std::string& role,
                                                          std::function<void(bool alive)> on_change) {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<Watchdog> watchdog, Open({.file = HeartbeatPath(node, role),
                                                                 .stall_time = std::chrono::seconds(node.stall_seconds),
                                                                 .on_change = std::move(on_change)}));
  Notify("READY=1");
  watchdog->thread_ = std::thread([&watchdog = *watchdog] { watchdog.Loop(); });
  return watchdog;
}

Watchdog::~Watchdog() {
  {
    MutexLock lock(mutex_);
    end_ = true;
    ending_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  Notify("STOPPING=1");
  unlink(options_.file.c_str());
  close(descriptor_);
}

void Watchdog::Watch(std::shared_ptr<const Heartbeat> heartbeat) {
  MutexLock lock(mutex_);
  heartbeats_.push_back(std::move(heartbeat));
}

void Watchdog::Loop() {
  MutexLock lock(mutex_);
  do {
    lock.unlock();
    const absl::Status status = CatchExceptions([&] {
      Look(Heartbeat::Clock::now());
      return absl::OkStatus();
    });
    if (!status.ok()) LogWarning("watchdog: {}", std::string(status.message()));
    lock.lock();
  } while (!ending_.wait_for(lock, kPeriod, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return end_; }));
}

// The threads that have stalled for too long; empty: none.
std::string Watchdog::Stalled(Heartbeat::Clock::time_point now) {
  std::string stalled;
  MutexLock lock(mutex_);
  for (const auto& heartbeat : heartbeats_) {
    if (std::min(heartbeat->Silence(now), now - resumed_) < options_.stall_time) continue;
    absl::StrAppend(&stalled, stalled.empty() ? "" : ", ", heartbeat->thread());
  }
  return stalled;
}

void Watchdog::Look(Heartbeat::Clock::time_point now) {
  if (now - looked_ > kPause) resumed_ = now;
  looked_ = now;
  const std::string stalled = Stalled(now);
  const bool changed = stalled.empty() != alive_;
  if (changed) {
    alive_ = stalled.empty();
    if (alive_) {
      LogWarning("all threads make progress again");
    } else {
      LogError("{}: no sign of life for {} s; this process's supervisor kills it now", stalled,
               std::chrono::duration_cast<std::chrono::seconds>(options_.stall_time).count());
    }
    if (options_.on_change) options_.on_change(alive_);
  }
  struct stat info;
  if (fstat(descriptor_, &info) == 0 && info.st_nlink == 0) {  // the file was removed
    if (const int again = OpenFile(options_.file); again >= 0) {
      close(descriptor_);
      descriptor_ = again;
    }
  }
  const std::string text = alive_ ? absl::StrCat(++count_, "\n") : "hangs\n";
  if (changed) (void)!ftruncate(descriptor_, 0);  // the other text may be longer
  (void)!pwrite(descriptor_, text.data(), text.size(), 0);
  Notify(alive_ ? "WATCHDOG=1" : "WATCHDOG=trigger");
}

}  // namespace moestro
