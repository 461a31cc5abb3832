// A thread that does work in order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "common/base/mutex.h"
#include "common/device/device.h"
#include "common/device/host/clock.h"
#include "common/device/host/copy_link.h"

namespace moestro::device {

// One Record's completion, which happens once. Thread-safe.
class HostCompletion {
 public:
  void Complete(absl::Status status, double seconds);
  absl::Status Wait();
  double Seconds() const;

 private:
  mutable Mutex mutex_;
  Condition completed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  double seconds_ ABSL_GUARDED_BY(mutex_) = 0;
};

class HostEvent final : public Event {
 public:
  absl::Status Wait() override { return last()->Wait(); }
  double Seconds() const override { return last()->Seconds(); }

  // Makes the new completion for a Record.
  std::shared_ptr<HostCompletion> Renew();
  // The completion of the last Record.
  std::shared_ptr<HostCompletion> last() const;

 private:
  mutable Mutex mutex_;
  std::shared_ptr<HostCompletion> last_ ABSL_GUARDED_BY(mutex_);
};

class HostStream final : public Stream {
 public:
  HostStream(const Clock& clock, CopyLink& to_device, CopyLink& to_host);
  ~HostStream() override;

  absl::Status CopyToDevice(uint8_t* to, const uint8_t* from, int64_t bytes) override;
  absl::Status CopyToHost(uint8_t* to, const uint8_t* from, int64_t bytes) override;
  absl::Status CopyFromPeer(uint8_t* to, const uint8_t* from, int64_t bytes) override;
  absl::Status Launch(Kernel kernel) override;
  absl::Status Record(Event& event) override;
  absl::Status WaitFor(Event& event) override;
  absl::Status Synchronize() override;

 private:
  struct Task {
    std::function<absl::Status()> work;          // skipped if the stream has failed
    std::shared_ptr<HostCompletion> completion;  // completed after the work, in any case; null if not needed
  };
  absl::Status Add(std::function<absl::Status()> work, std::shared_ptr<HostCompletion> completion = nullptr);
  void Work();

  const Clock& clock_;
  CopyLink& to_device_;
  CopyLink& to_host_;
  Mutex mutex_;
  Condition added_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_;  // used only by the thread
  std::thread thread_;
};

}  // namespace moestro::device
