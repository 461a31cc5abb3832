// A queue of replies to one client, so that the thread that makes them never waits for the client to read.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/router/rpc/slow_clients.h"

namespace moestro::router {

// Reply has `size_t SpaceUsedLong()`, its size in memory. Writer has `bool Write(const Reply&)`, which returns false
// once the client is gone. Call Push and Finish from one thread at a time. The first Push starts a thread.
template <typename Reply, typename Writer>
class QueuedWriter {
 public:
  // `cancel` aborts a Write in progress. All arguments must outlive this object.
  QueuedWriter(Writer& writer, SlowClients& clients, std::function<void()> cancel)
      : writer_(writer), client_(clients, std::move(cancel)) {}
  ~QueuedWriter() { Finish().IgnoreError(); }
  QueuedWriter(const QueuedWriter&) = delete;
  QueuedWriter& operator=(const QueuedWriter&) = delete;

  // CANCELLED once the client is known to be gone. RESOURCE_EXHAUSTED when too many replies wait for it; they are then
  // dropped.
  absl::Status Push(Reply reply) {
    const auto bytes = static_cast<size_t>(reply.SpaceUsedLong());
    MutexLock lock(mutex_);
    if (!open_) return Gone();
    if (const absl::Status room = client_.Enqueue(bytes); !room.ok()) {
      CloseLocked();
      return room;
    }
    queue_.push_back({std::move(reply), bytes});
    changed_.notify_one();
    return thread_.joinable() ? absl::OkStatus() : StartLocked();
  }

  // Called after the last Push. Waits until the client has everything or is gone.
  absl::Status Finish() {
    {
      MutexLock lock(mutex_);
      complete_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    MutexLock lock(mutex_);
    return open_ ? absl::OkStatus() : Gone();
  }

 private:
  struct Queued {
    Reply reply;
    size_t bytes = 0;
  };

  static absl::Status Gone() { return absl::CancelledError("the client went away"); }

  absl::Status StartLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    try {
      thread_ = std::thread([this] { WriteAll(); });
      return absl::OkStatus();
    } catch (const std::system_error& error) {
      CloseLocked();
      return absl::ResourceExhaustedError(std::string("no thread for the client's replies: ") + error.what());
    }
  }

  void CloseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    open_ = false;
    queue_.clear();
  }

  void WriteAll() {
    MutexLock lock(mutex_);
    while (true) {
      while (!complete_ && queue_.empty()) changed_.wait(lock);
      if (queue_.empty()) return;
      const Queued next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      client_.BeginWrite();
      const bool written = writer_.Write(next.reply);
      client_.EndWrite();
      client_.Dequeue(next.bytes);
      lock.lock();
      if (written) continue;
      CloseLocked();
      return;
    }
  }

  Writer& writer_;
  SlowClients::Stream client_;
  Mutex mutex_;
  Condition changed_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  std::thread thread_;  // started by the first Push, joined by Finish
};

}  // namespace moestro::router
