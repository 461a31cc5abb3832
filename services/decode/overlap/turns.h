// The order in which the lanes of a step use what there is only one of.
#pragma once

#include <array>
#include <condition_variable>
#include <mutex>

#include "common/device/device.h"
#include "services/decode/overlap/compute.h"

namespace moestro {

// Lane 0, lane 1, lane 0, ... strictly: all lanes have the same layers to do, so none gets ahead of the other by more
// than one, and the order is the same every time. On a device with a time of its own, who takes a turn is no earlier
// than who passed it. Thread-safe.
class Turns {
 public:
  explicit Turns(device::Device& device) : device_(device) {}  // outlives it

  // A step of so many lanes. Nobody takes part in one now.
  void Begin(int lanes) {
    std::lock_guard lock(mutex_);
    present_.fill(false);
    for (int lane = 0; lane < lanes; ++lane) present_[static_cast<size_t>(lane)] = true;
    next_ = 0;
    passed_at_ = device_.Now();
  }
  // Returns when it is the lane's turn.
  void Take(int lane) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ == lane; });
    device_.AdvanceTo(passed_at_);
  }
  // The lane's turn is over.
  void Pass(int lane) {
    std::lock_guard lock(mutex_);
    PassFrom(lane);
  }
  // The lane takes no more turns in this step; if it has one it is over. May be called again.
  void Leave(int lane) {
    std::lock_guard lock(mutex_);
    present_[static_cast<size_t>(lane)] = false;
    if (next_ == lane) PassFrom(lane);
  }

 private:
  void PassFrom(int lane) {
    passed_at_ = device_.Now();
    for (int i = 1; i <= kMaxLanes; ++i) {
      const int other = (lane + i) % kMaxLanes;
      if (present_[static_cast<size_t>(other)]) {
        next_ = other;
        break;
      }
    }
    changed_.notify_all();
  }

  device::Device& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<bool, kMaxLanes> present_ = {};  // guarded by mutex_
  int next_ = 0;                              // guarded by mutex_
  double passed_at_ = 0;                      // guarded by mutex_
};

}  // namespace moestro
