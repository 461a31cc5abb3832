// A device that forwards everything to another one, and fails or delays the operations that a test selects.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/device/device.h"

namespace moestro::device {

// Called before every operation with its name: "copy", "copy from peer", "reach peer", "launch", "record", "wait" (of a
// stream), "event" (a thread's wait), "synchronize", "allocate", "register", "stream", "event object", and "run:
// <kernel>" when the stream reaches the kernel. If not OK, the operation fails with that status and does nothing. It
// may sleep. Many threads call it.
using Fault = std::function<absl::Status(const std::string& operation)>;

namespace internal {

class FaultyEvent final : public Event {
 public:
  FaultyEvent(std::unique_ptr<Event> event, const Fault& fault) : event_(std::move(event)), fault_(fault) {}
  absl::Status Wait() override {
    if (absl::Status status = fault_("event"); !status.ok()) return status;
    return event_->Wait();
  }
  double Seconds() const override { return event_->Seconds(); }
  Event& event() { return *event_; }

 private:
  std::unique_ptr<Event> event_;
  const Fault& fault_;
};

class FaultyStream final : public Stream {
 public:
  FaultyStream(std::unique_ptr<Stream> stream, const Fault& fault) : stream_(std::move(stream)), fault_(fault) {}

  absl::Status CopyToDevice(uint8_t* to, const uint8_t* from, int64_t bytes) override {
    if (absl::Status status = fault_("copy"); !status.ok()) return status;
    return stream_->CopyToDevice(to, from, bytes);
  }
  absl::Status CopyToHost(uint8_t* to, const uint8_t* from, int64_t bytes) override {
    if (absl::Status status = fault_("copy"); !status.ok()) return status;
    return stream_->CopyToHost(to, from, bytes);
  }
  absl::Status CopyFromPeer(uint8_t* to, const uint8_t* from, int64_t bytes) override {
    if (absl::Status status = fault_("copy from peer"); !status.ok()) return status;
    return stream_->CopyFromPeer(to, from, bytes);
  }
  absl::Status Launch(Kernel kernel) override {
    if (absl::Status status = fault_("launch"); !status.ok()) return status;
    return stream_->Launch({kernel.name, kernel.cost, [this, kernel](void* native) {
                              absl::Status status = fault_("run: " + std::string(kernel.name));
                              return status.ok() ? kernel.run(native) : status;
                            }});
  }
  absl::Status Record(Event& event) override {
    if (absl::Status status = fault_("record"); !status.ok()) return status;
    return stream_->Record(static_cast<FaultyEvent&>(event).event());
  }
  absl::Status WaitFor(Event& event) override {
    if (absl::Status status = fault_("wait"); !status.ok()) return status;
    return stream_->WaitFor(static_cast<FaultyEvent&>(event).event());
  }
  absl::Status Synchronize() override {
    if (absl::Status status = fault_("synchronize"); !status.ok()) {
      (void)stream_->Synchronize();
      return status;
    }
    return stream_->Synchronize();
  }

 private:
  std::unique_ptr<Stream> stream_;
  const Fault& fault_;
};

}  // namespace internal

class FaultyDevice : public Device {
 public:
  explicit FaultyDevice(Device& device) : device_(device) {}
  // Call only while no stream of this device is working.
  void set_fault(Fault fault) { fault_ = std::move(fault); }

  std::string_view name() const override { return device_.name(); }
  int64_t memory_bytes() const override { return device_.memory_bytes(); }
  int64_t memory_used() const override { return device_.memory_used(); }
  int64_t memory_free() const override { return device_.memory_free(); }
  absl::StatusOr<Memory> Allocate(int64_t bytes, const std::string& what) override {
    if (absl::Status status = fault_("allocate"); !status.ok()) return status;
    return device_.Allocate(bytes, what);
  }
  absl::StatusOr<Registration> Register(const uint8_t* data, int64_t bytes, HostAccess access) override {
    if (absl::Status status = fault_("register"); !status.ok()) return status;
    return device_.Register(data, bytes, access);
  }
  HostPart PartAt(const uint8_t* data, int64_t bytes) const override { return device_.PartAt(data, bytes); }
  bool KernelsRead(const uint8_t* data, int64_t bytes) const override { return device_.KernelsRead(data, bytes); }
  absl::Status ReachPeer(const Device& peer) override {
    if (absl::Status status = fault_("reach peer"); !status.ok()) return status;
    return device_.ReachPeer(peer);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(std::string_view stream_name) override {
    if (absl::Status status = fault_("stream"); !status.ok()) return status;
    auto stream = device_.NewStream(stream_name);
    if (!stream.ok()) return stream.status();
    return std::make_unique<internal::FaultyStream>(*std::move(stream), fault_);
  }
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    if (absl::Status status = fault_("event object"); !status.ok()) return status;
    auto event = device_.NewEvent();
    if (!event.ok()) return event.status();
    return std::make_unique<internal::FaultyEvent>(*std::move(event), fault_);
  }
  double Now() const override { return device_.Now(); }
  void AdvanceTo(double seconds) override { device_.AdvanceTo(seconds); }

 private:
  Device& device_;
  Fault fault_ = [](const std::string&) { return absl::OkStatus(); };
};

}  // namespace moestro::device
