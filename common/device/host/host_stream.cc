#include "common/device/host/host_stream.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/exceptions.h"
#include "common/base/status.h"

namespace moestro::device {

void HostCompletion::Complete(absl::Status status, double seconds) {
  MutexLock lock(mutex_);
  done_ = true;
  status_ = std::move(status);
  seconds_ = seconds;
  completed_.notify_all();
}

absl::Status HostCompletion::Wait() {
  MutexLock lock(mutex_);
  while (!done_) completed_.wait(lock);
  return status_;
}

double HostCompletion::Seconds() const {
  MutexLock lock(mutex_);
  return seconds_;
}

std::shared_ptr<HostCompletion> HostEvent::Renew() {
  MutexLock lock(mutex_);
  last_ = std::make_shared<HostCompletion>();
  return last_;
}

std::shared_ptr<HostCompletion> HostEvent::last() const {
  MutexLock lock(mutex_);
  MOE_CHECK(last_ != nullptr);  // not recorded
  return last_;
}

HostStream::HostStream(const Clock& clock, CopyLink& to_device, CopyLink& to_host)
    : clock_(clock), to_device_(to_device), to_host_(to_host), thread_([this] { Work(); }) {}

HostStream::~HostStream() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
    added_.notify_one();
  }
  thread_.join();
}

absl::Status HostStream::CopyToDevice(uint8_t* to, const uint8_t* from, int64_t bytes) {
  return Add([this, to, from, bytes] {
    to_device_.Copy(to, from, bytes);
    return absl::OkStatus();
  });
}

absl::Status HostStream::CopyToHost(uint8_t* to, const uint8_t* from, int64_t bytes) {
  return Add([this, to, from, bytes] {
    to_host_.Copy(to, from, bytes);
    return absl::OkStatus();
  });
}

// What another device has is in host memory, as what is copied to this one.
absl::Status HostStream::CopyFromPeer(uint8_t* to, const uint8_t* from, int64_t bytes) {
  return CopyToDevice(to, from, bytes);
}

absl::Status HostStream::Launch(Kernel kernel) {
  return Add([name = kernel.name, run = std::move(kernel.run)] { return Annotate(run(nullptr), std::string(name)); });
}

absl::Status HostStream::Record(Event& event) { return Add(nullptr, static_cast<HostEvent&>(event).Renew()); }

absl::Status HostStream::WaitFor(Event& event) {
  return Add([completion = static_cast<HostEvent&>(event).last()] { return completion->Wait(); });
}

absl::Status HostStream::Synchronize() {
  const auto completion = std::make_shared<HostCompletion>();
  MOE_RETURN_IF_ERROR(Add(nullptr, completion));
  return completion->Wait();
}

absl::Status HostStream::Add(std::function<absl::Status()> work, std::shared_ptr<HostCompletion> completion) {
  MutexLock lock(mutex_);
  tasks_.push_back({std::move(work), std::move(completion)});
  added_.notify_one();
  return absl::OkStatus();
}

void HostStream::Work() {
  while (true) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (!closed_ && tasks_.empty()) added_.wait(lock);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    if (task.work && status_.ok()) status_ = CatchExceptions(task.work);
    if (task.completion) task.completion->Complete(status_, clock_.Now());
  }
}

}  // namespace moestro::device
