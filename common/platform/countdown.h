// Lets tasks of a worker pool's run wait for other tasks of the same run.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace moestro {

// Counts the tasks that must finish before others may begin. Neither locks nor sleeps: for waits of microseconds
// between concurrent tasks. A wait ends only if threads have taken all tasks that it waits for. So these tasks must
// precede the waiting ones in the order in which the pool hands out indices (worker_pool.h).
class alignas(64) Countdown {  // a cache line of its own
 public:
  // Called before the run, by its caller.
  void Reset(int64_t tasks) { left_.store(tasks, std::memory_order_relaxed); }

  // One task is done. Returns how many are left. Its writes are visible to a thread that has returned from Wait, and to
  // those that arrive later.
  int64_t Arrive() { return left_.fetch_sub(1, std::memory_order_acq_rel) - 1; }

  // Returns when all tasks have arrived. Yields the CPU if that takes long, since the awaited thread may need it.
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
