// Proves that a process does not hang. Once a second it increments the count in RUN_DIR/<role>.heartbeat. Once a thread
// with work has stalled for too long, the file says "hangs" instead, and the supervisor kills the process. It also does
// so when the count stands still though nothing keeps the process from working. If systemd has set NOTIFY_SOCKET, it
// hears the same.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/heartbeat.h"
#include "common/base/mutex.h"
#include "common/process/node_options.h"

namespace moestro {

class Watchdog {
 public:
  struct Options {
    std::string file;  // the heartbeat file; replaces a predecessor's
    Heartbeat::Clock::duration stall_time{};
    // The watchdog's thread calls it when the first thread stalls, and when the last one recovers. Empty: not called.
    std::function<void(bool alive)> on_change = {};
  };

  // The role's watchdog, with a thread; `on_change` as in Options. Sends READY=1. UNAVAILABLE if the file cannot be
  // written.
  static absl::StatusOr<std::unique_ptr<Watchdog>> Start(const NodeOptions& node, const std::string& role,
                                                         std::function<void(bool alive)> on_change);
  // Without a thread: the caller calls Look.
  static absl::StatusOr<std::unique_ptr<Watchdog>> Open(Options options);
  ~Watchdog();  // removes the file: the supervisor expects no heartbeat from a process that ends

  // From now on that thread must beat, too. Thread-safe.
  void Watch(std::shared_ptr<const Heartbeat> heartbeat);

  // Beats once, unless a thread is stalled. Call it once a second. After a pause in which the process was stopped or
  // starved, every thread has all of its time again.
  void Look(Heartbeat::Clock::time_point now);

 private:
  Watchdog(Options options, int descriptor) : options_(std::move(options)), descriptor_(descriptor) {}
  std::string Stalled(Heartbeat::Clock::time_point now);
  void Loop();

  const Options options_;
  int descriptor_;  // of the file; this and the next four are used only by Look's thread
  int64_t count_ = 0;
  Heartbeat::Clock::time_point looked_;
  Heartbeat::Clock::time_point resumed_;  // after the last pause
  bool alive_ = true;
  Mutex mutex_;
  Condition ending_;
  std::vector<std::shared_ptr<const Heartbeat>> heartbeats_ ABSL_GUARDED_BY(mutex_);
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace moestro
