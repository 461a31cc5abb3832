// The order in which the lanes of a step use what there is only one of.
#pragma once

#include <array>

#include "common/base/mutex.h"
#include "common/device/device.h"
#include "common/engine/decode_compute.h"

namespace moestro::decode {

// Lane 0, lane 1, lane 0, ... strictly: all lanes have the same layers to do, so none gets ahead of the other by more
// than one, and the order is the same every time. On a device with a time of its own, who takes a turn is no earlier
// than who passed it. Thread-safe.
class LaneOrder {
 public:
  explicit LaneOrder(device::Device& device) : device_(device) {}  // outlives it

  // A step of so many lanes. Nobody takes part in one now.
  void Begin(int lanes) {
    MutexLock lock(mutex_);
    present_.fill(false);
    for (int lane = 0; lane < lanes; ++lane) present_[static_cast<size_t>(lane)] = true;
    next_ = 0;
    passed_at_ = device_.Now();
  }
  // Returns when it is the lane's turn.
  void Take(int lane) {
    MutexLock lock(mutex_);
    while (next_ != lane) changed_.wait(lock);
    device_.AdvanceTo(passed_at_);
  }
  // Whether it is the lane's turn.
  bool IsNext(int lane) const {
    MutexLock lock(mutex_);
    return next_ == lane;
  }
  // The lane's turn is over.
  void Pass(int lane) {
    {
      MutexLock lock(mutex_);
      PassFrom(lane);
    }
    changed_.notify_all();  // without the mutex, which the other lane would wait for
  }
  // The lane takes no more turns in this step; if it has one it is over. May be called again.
  void Leave(int lane) {
    {
      MutexLock lock(mutex_);
      present_[static_cast<size_t>(lane)] = false;
      if (next_ == lane) PassFrom(lane);
    }
    changed_.notify_all();
  }

 private:
  void PassFrom(int lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    passed_at_ = device_.Now();
    for (int i = 1; i <= engine::kMaxLanes; ++i) {
      const int other = (lane + i) % engine::kMaxLanes;
      if (present_[static_cast<size_t>(other)]) {
        next_ = other;
        break;
      }
    }
  }

  device::Device& device_;
  mutable Mutex mutex_;
  Condition changed_;
  std::array<bool, engine::kMaxLanes> present_ ABSL_GUARDED_BY(mutex_) = {};
  int next_ ABSL_GUARDED_BY(mutex_) = 0;
  double passed_at_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moestro::decode
