// Gives the KV pool memory before its pages run out, on a thread of its own: a pool of many contexts costs no more than
// its tokens, and a start no longer than that of a small one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/statusor.h"
#include "common/kv/pool.h"

namespace moestro::decode {

class PoolGrower {
 public:
  struct Options {
    int64_t free_pages = 1;  // that the pool should have beyond those in use; cached ones are in use
    // Bytes that may still be taken. At 0 the pool keeps to what it has, and evicts, until there is more again.
    std::function<absl::StatusOr<int64_t>()> spare_bytes;
  };

  // `pool` must outlive it.
  PoolGrower(kv::KvPool& pool, Options options);
  // Waits for an extension that is under way: some tens of milliseconds.
  ~PoolGrower();
  PoolGrower(const PoolGrower&) = delete;
  PoolGrower& operator=(const PoolGrower&) = delete;

  // One look at the pool, as the thread takes it. False if nothing was to be done, or nothing could be.
  static bool Step(kv::KvPool& pool, const Options& options);

 private:
  void Loop();

  kv::KvPool& pool_;
  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool short_ = false;  // of pages, since the thread's last look
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace moestro::decode
