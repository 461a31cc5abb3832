// Replies to a client that reads as slowly as it likes: whoever makes them never waits for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/status/status.h"

namespace moestro {

// Stream: has `bool Write(const Reply&)`, false once the client is gone. Push and Finish: one thread at a time.
template <typename Reply, typename Stream>
class QueuedWriter {
 public:
  explicit QueuedWriter(Stream& stream) : stream_(stream), thread_([this] { WriteAll(); }) {}
  ~QueuedWriter() { Finish().IgnoreError(); }
  QueuedWriter(const QueuedWriter&) = delete;
  QueuedWriter& operator=(const QueuedWriter&) = delete;

  // CANCELLED once the client is known to be gone. What it has not read yet stays in memory.
  absl::Status Push(Reply reply) {
    std::lock_guard lock(mutex_);
    if (!open_) return Gone();
    queue_.push_back(std::move(reply));
    changed_.notify_one();
    return absl::OkStatus();
  }

  // After the last Push: waits until the client has everything, or is gone.
  absl::Status Finish() {
    {
      std::lock_guard lock(mutex_);
      complete_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    return open_ ? absl::OkStatus() : Gone();
  }

 private:
  static absl::Status Gone() { return absl::CancelledError("the client went away"); }

  void WriteAll() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return complete_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Reply reply = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      const bool written = stream_.Write(reply);
      lock.lock();
      if (written) continue;
      open_ = false;
      queue_.clear();
      return;
    }
  }

  Stream& stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Reply> queue_;
  bool complete_ = false;
  bool open_ = true;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace moestro
