#include "common/device/pinning.h"

#include <algorithm>
#include <utility>

namespace moestro::device {

Pinning::Pinning(Device& device, const uint8_t* data, int64_t bytes, const Options& options,
                 std::function<void(int64_t pinned, const absl::Status& status)> on_change)
    : device_(device), on_change_(std::move(on_change)), thread_([this, data, bytes, options] {
        Pin(data, options.limit_bytes > 0 ? std::min(options.limit_bytes, bytes) : bytes, options.access);
      }) {}

Pinning::~Pinning() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Pinning::Retry() {
  MutexLock lock(mutex_);
  if (!refused_ || device_.Now() < retry_after_) return;
  refused_ = false;
  changed_.notify_all();
}

void Pinning::AwaitRetry(double seconds) {
  MutexLock lock(mutex_);
  refused_ = true;
  retry_after_ = device_.Now() + seconds;
  while (!stopped_ && refused_) changed_.wait(lock);
}

void Pinning::Pin(const uint8_t* data, int64_t bytes, HostAccess access) {
  int64_t pinned = 0;
  int64_t told = -1;  // bytes pinned at the last reported refusal
  double wait = kFirstRetrySeconds;
  while (pinned < bytes) {
    if (stopped()) return;
    const int64_t slice = std::min(kSliceBytes, bytes - pinned);
    auto registration = device_.Register(data + pinned, slice, access);
    if (registration.ok()) {
      slices_.push_back(*std::move(registration));
      pinned += slice;
      registered_ = pinned;
      wait = kFirstRetrySeconds;
      continue;
    }
    if (std::exchange(told, pinned) != pinned) on_change_(pinned, registration.status());
    AwaitRetry(wait);
    wait = std::min(2 * wait, kLastRetrySeconds);
  }
  on_change_(pinned, absl::OkStatus());
}

}  // namespace moestro::device
