// A device that computes beside the host: memory of its own with a limit, streams of work in order, events between
// them.
//
// The names and rules are CUDA's, so that an implementation for it only forwards: a stream is a cudaStream_t, an event
// a cudaEvent_t, copies are cudaMemcpyAsync. README.md compares the implementations.
//
// Errors. Calls return what is wrong with the call. What fails later, while a stream works, fails the stream: the rest
// of its work is skipped, events recorded on it complete with that error, and a stream that waits for such an event
// fails with it. So every event completes, whatever goes wrong, and whoever waits learns why.
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

// What a kernel does: what a device with a cost model charges, and what a measured time is compared with.
struct KernelCost {
  double fp8_flops = 0;        // of products of FP8 numbers
  double bf16_flops = 0;       // of products of BF16 numbers, to which FP8 weights may be expanded first
  double attention_flops = 0;  // of scores and sums of values
  // Sums of the products' inner dimensions, one for each launch: the last tiles of a launch leave processors idle for
  // a time that grows with it.
  double fp8_depth = 0;
  double bf16_depth = 0;
  double memory_bytes = 0;       // read and written in device memory by kernels that multiply
  double elementwise_bytes = 0;  // by kernels that do not
  int64_t kernels = 1;           // launches
};

// Work for a stream. `run` launches it on `native` (cudaStream_t; null where there is none) and returns errors of the
// launch. It is called once: on a device that computes on the host by the stream when its turn comes, and then returns
// when the work is done; on others by Stream::Launch at once; on a simulated device never. What it captures must live
// until the stream has done it.
struct Kernel {
  std::string_view name;  // a literal
  KernelCost cost;
  std::function<absl::Status(void* native)> run;
};

class Stream;

// A point in a stream's work. Used again and again: Record forgets what was.
class Event {
 public:
  virtual ~Event() = default;
  // Until the work before the last Record is done; the error of the stream if it failed. REQUIRES: recorded.
  virtual absl::Status Wait() = 0;
  // When that was, on the clock of Device::Now. REQUIRES: Wait has returned.
  virtual double Seconds() const = 0;
};

// Work in order. Only one thread at a time may call it. Destruction waits for the work.
class Stream {
 public:
  virtual ~Stream() = default;
  // Host memory stays until the copy is done. It should be registered: else the copy may block the caller, and be
  // slower.
  virtual absl::Status CopyToDevice(uint8_t* to, const uint8_t* from, int64_t bytes) = 0;
  virtual absl::Status CopyToHost(uint8_t* to, const uint8_t* from, int64_t bytes) = 0;
  virtual absl::Status Launch(Kernel kernel) = 0;
  virtual absl::Status Record(Event& event) = 0;
  // What comes after begins when the event, as last recorded, has completed. REQUIRES: recorded, on any stream of the
  // device: so a thread that does not record the event itself must learn on the host that it has been.
  virtual absl::Status WaitFor(Event& event) = 0;
  // Until all work is done; the stream's error if it failed.
  virtual absl::Status Synchronize() = 0;
};

// What copies do with registered host memory. kReads: memory that nobody writes any more, mapped read-only or not.
enum class HostAccess { kReads, kReadsAndWrites };

// The beginning of host memory that is registered, or not, as a whole.
struct HostPart {
  int64_t bytes = 0;
  bool registered = false;
};

class Device {  // thread-safe
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;  // "host", "sim: ...", "cuda: ..."
  virtual int64_t memory_bytes() const = 0;   // that may be allocated in all
  virtual int64_t memory_used() const = 0;
  // That may be allocated now: others may have taken some of the rest since the device was opened, or given some back.
  virtual int64_t memory_free() const = 0;

  // On a 4096-byte boundary, contents undefined. The address means nothing to the host unless the device is the host.
  // RESOURCE_EXHAUSTED says what is missing; `what` names the memory in that message.
  virtual absl::StatusOr<Memory> Allocate(int64_t bytes, const std::string& what) = 0;
  // Makes copies from and, with kReadsAndWrites, to [data, data + bytes) asynchronous and fast, until the result is
  // destroyed; `data` is on a page boundary. A read-only mapping (kReads) may be made writable while this runs, never
  // after it: SharedMemory::ReadOnly. RESOURCE_EXHAUSTED where the system refuses to pin more, PERMISSION_DENIED where
  // it does not pin such memory: copies work all the same.
  virtual absl::StatusOr<Registration> Register(const uint8_t* data, int64_t bytes, HostAccess access) = 0;
  // Of [data, data + bytes), at this moment. Where nothing needs registering, all is registered.
  virtual HostPart PartAt(const uint8_t* /*data*/, int64_t bytes) const { return {bytes, true}; }

  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream(std::string_view name) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> NewEvent() = 0;

  // Monotonic time. A simulated device has a time for every thread: the calling thread's.
  virtual double Now() const = 0;
  // The calling thread learns of something that happened at `seconds`: it is no earlier now. Threads that signal each
  // other outside the device pass the time on so; where time is real there is nothing to do.
  virtual void AdvanceTo(double /*seconds*/) {}
};

}  // namespace moestro::device
