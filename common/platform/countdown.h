// A wait of some tasks of a worker pool's run for other tasks of the same run.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace moestro {

// Counts tasks that must be done before others may begin. Neither locks nor sleeps: for waits of microseconds between
// tasks that run at the same time. A wait ends only if every task that is waited for has been taken by some thread, so
// these tasks must come before those that wait, in the order in which the pool hands out indices (worker_pool.h).
class alignas(64) Countdown {  // a cache line of its own
 public:
  // Before the run, by its caller.
  void Reset(int64_t tasks) { left_.store(tasks, std::memory_order_relaxed); }

  // One task is done. What it wrote is visible to whoever has waited.
  void Arrive() { left_.fetch_sub(1, std::memory_order_release); }

  // Until all have arrived. Gives the CPU away if that takes long: the thread that is waited for may need it.
  void Wait() const {
    for (int i = 0; i < kPauses; ++i) {
      if (left_.load(std::memory_order_acquire) <= 0) return;
      __builtin_ia32_pause();
    }
    while (left_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  }

 private:
  static constexpr int kPauses = 1000;  // 10 to 50 us, about one task
  std::atomic<int64_t> left_{0};
};

}  // namespace moestro
