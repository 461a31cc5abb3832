// How a process proves that it does not hang. Once a second, while no thread that has work has stood still for too
// long, it counts on in RUN_DIR/<role>.heartbeat and, where systemd has set NOTIFY_SOCKET, sends WATCHDOG=1. Whoever
// supervises it kills it when that ends: also when the whole process is stopped, or waits for a disk.
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
    std::string file;  // that counts; a predecessor's is taken over
    Heartbeat::Clock::duration stall_time{};
    // Told when the first thread stalls, and when the last goes on: by the watchdog's thread. Empty: not told.
    std::function<void(bool alive)> on_change = {};
  };

  // For the role, with a thread; `on_change` as in Options. Sends READY=1. UNAVAILABLE if the file cannot be written.
  static absl::StatusOr<std::unique_ptr<Watchdog>> Start(const NodeOptions& node, const std::string& role,
                                                         std::function<void(bool alive)> on_change);
  // Without a thread: whoever has a clock calls Look.
  static absl::StatusOr<std::unique_ptr<Watchdog>> Open(Options options);
  ~Watchdog();  // removes the file: whoever supervises does not expect signs of life from a process that ends

  // From now on that thread must go on, too. Thread-safe.
  void Watch(std::shared_ptr<const Heartbeat> heartbeat);

  // One sign of life, or none.
  void Look(Heartbeat::Clock::time_point now);

 private:
  Watchdog(Options options, int descriptor) : options_(std::move(options)), descriptor_(descriptor) {}
  std::string Stalled(Heartbeat::Clock::time_point now);
  void Loop();

  const Options options_;
  int descriptor_;  // of the file; this and the next two: whoever looks
  int64_t count_ = 0;
  bool alive_ = true;
  Mutex mutex_;
  Condition ending_;
  std::vector<std::shared_ptr<const Heartbeat>> heartbeats_ ABSL_GUARDED_BY(mutex_);
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace moestro
