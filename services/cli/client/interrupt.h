// Turns Ctrl-C into an event instead of the end of the process.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace moestro::cli {

// From now on SIGINT ends nothing. Call it before other threads start, because they inherit it.
void BlockInterrupts();

// While it lives, each SIGINT calls `on_interrupt` in a separate thread. REQUIRES: BlockInterrupts was called.
class InterruptWatcher {
 public:
  explicit InterruptWatcher(std::function<void()> on_interrupt);
  ~InterruptWatcher();

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace moestro::cli
