// Ctrl-C as an event instead of an end.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace moestro {

// From now on SIGINT ends nothing. Call it before any other thread begins: threads inherit it.
void BlockInterrupts();

// While it lives each SIGINT calls `on_interrupt`, in a thread of its own. REQUIRES: BlockInterrupts was called.
class InterruptWatcher {
 public:
  explicit InterruptWatcher(std::function<void()> on_interrupt);
  ~InterruptWatcher();

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace moestro
