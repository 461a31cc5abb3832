// A device that computes beside the host: its own limited memory, in-order streams, and events between streams.
//
// Names and rules are CUDA's, so a CUDA implementation only forwards: a stream is a cudaStream_t, an event a
// cudaEvent_t, copies are cudaMemcpyAsync. README.md compares the implementations.
//
// Errors. A call returns its own errors. A later error fails the stream: the rest of its work is skipped, its events
// complete with that error, and streams that wait for these events fail too. So every event completes in any case, and
// every waiting thread learns the reason.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device/memory.h"

namespace moestro::device {

// A kernel's work: charged by a device with a cost model, and compared with measured times.
struct KernelCost {
  double fp8_flops = 0;        // products of FP8 values
  double bf16_flops = 0;       // products of BF16 values; FP8 weights may be expanded to BF16 first
  double attention_flops = 0;  // scores and value sums
  // Sum of the products' inner dimensions, one per launch. A launch's last tiles leave processors idle for a time that
  // grows with the inner dimension.
  double fp8_depth = 0;
  double bf16_depth = 0;
  double memory_bytes = 0;       // device memory traffic of kernels with products
  double elementwise_bytes = 0;  // of kernels without products
  int64_t kernels = 1;           // launches
  double host_bytes = 0;         // of host memory that kernels themselves read and write, over the bus
  int64_t bus_trips = 0;         // times that a kernel waits for the bus and back: for what it reads or has written
};

// Work for a stream. `run` launches it on `native` (cudaStream_t; null where there is none) and returns the launch's
// errors. It is called at most once. A device that computes on the host calls it on the stream's thread in order, and
// it returns when the work is done. Other devices call it at once in Stream::Launch; a simulated device never calls it.
// Its captures must live until the stream has done it.
struct Kernel {
  std::string_view name;  // a literal
  KernelCost cost;
  std::function<absl::Status(void* native)> run;
};

class Stream;

// A point in a stream's work. Reusable: Record replaces the previous point.
class Event {
 public:
  virtual ~Event() = default;
  // Waits until the work before the last Record is done; returns the stream's error if it failed. REQUIRES: recorded.
  virtual absl::Status Wait() = 0;
  // The time at which it completed, on the clock of Device::Now. REQUIRES: Wait has returned.
  virtual double Seconds() const = 0;
};

// Work in order. One thread at a time may call it. The destructor waits for the work.
class Stream {
 public:
  virtual ~Stream() = default;
  // The host memory must stay until the copy is done. It should be registered: otherwise the copy may block the caller,
  // and is slower.
  virtual absl::Status CopyToDevice(uint8_t* to, const uint8_t* from, int64_t bytes) = 0;
  virtual absl::Status CopyToHost(uint8_t* to, const uint8_t* from, int64_t bytes) = 0;
  // From memory of another device that the stream's device reaches (Device::ReachPeer), and that stays until the copy
  // is done.
  virtual absl::Status CopyFromPeer(uint8_t* /*to*/, const uint8_t* /*from*/, int64_t /*bytes*/) {
    return absl::UnimplementedError("this device copies from no other");
  }
  virtual absl::Status Launch(Kernel kernel) = 0;
  virtual absl::Status Record(Event& event) = 0;
  // Later work begins when the event, as last recorded, has completed. REQUIRES: recorded, on any stream of the device.
  // So a thread that does not record the event itself must learn on the host that it was recorded.
  virtual absl::Status WaitFor(Event& event) = 0;
  // Waits until all work is done; returns the stream's error if it failed.
  virtual absl::Status Synchronize() = 0;
};

// How copies access registered host memory. kReads: nobody writes the memory any more, mapped read-only or not.
enum class HostAccess { kReads, kReadsAndWrites };

// The leading part of host memory that is uniformly registered or uniformly unregistered.
struct HostPart {
  int64_t bytes = 0;
  bool registered = false;
};

class Device {  // thread-safe
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;  // "host", "sim: ...", "cuda: ..."
  // What the name says of the hardware: devices of a kind compute equally fast.
  virtual std::string_view kind() const { return name(); }
  virtual int64_t memory_bytes() const = 0;  // limit of all allocations together
  virtual int64_t memory_used() const = 0;
  // Bytes that can be allocated now. Other processes may have taken or freed memory since the device was opened.
  virtual int64_t memory_free() const = 0;

  // Memory on a 4096-byte boundary with undefined contents. The host must not use the address unless the device is the
  // host. RESOURCE_EXHAUSTED says what is missing; `what` names the memory in that message.
  virtual absl::StatusOr<Memory> Allocate(int64_t bytes, const std::string& what) = 0;
  // Makes copies from and, with kReadsAndWrites, to [data, data + bytes) asynchronous and fast until the result is
  // destroyed. `data` is page-aligned. A read-only mapping (kReads) may become writable during this call, never after
  // it: SharedMemory::ReadOnly. RESOURCE_EXHAUSTED if the system refuses to pin more, PERMISSION_DENIED if it does not
  // pin such memory: copies work in both cases.
  virtual absl::StatusOr<Registration> Register(const uint8_t* data, int64_t bytes, HostAccess access) = 0;
  // The state of [data, data + bytes) at this moment. A device that needs no registration reports all as registered.
  virtual HostPart PartAt(const uint8_t* /*data*/, int64_t bytes) const { return {bytes, true}; }
  // Whether kernels can read [data, data + bytes) of host memory at this address, as long as it stays registered, and
  // write it if it is registered with kReadsAndWrites.
  virtual bool KernelsRead(const uint8_t* /*data*/, int64_t /*bytes*/) const { return true; }

  // Lets streams of this device copy from the peer's memory without the host's. UNAVAILABLE says why they cannot.
  virtual absl::Status ReachPeer(const Device& peer) {
    return absl::UnavailableError(std::string(name()) + " does not reach the memory of " + std::string(peer.name()));
  }

  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream(std::string_view name) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> NewEvent() = 0;

  // Monotonic time. A simulated device keeps one time per thread and returns the calling thread's.
  virtual double Now() const = 0;
  // Advances the calling thread's time to at least `seconds`, the time of an event it learned of. Threads that signal
  // each other outside the device pass on the time in this way. Does nothing where time is real.
  virtual void AdvanceTo(double /*seconds*/) {}
};

}  // namespace moestro::device
