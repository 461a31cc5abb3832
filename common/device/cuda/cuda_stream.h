// Implements the device interface with cudaStream_t and cudaEvent_t.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "common/device/cuda/registered_ranges.h"
#include "common/device/device.h"

namespace moestro::device {

// A point on the device's time line with a known host time: the origin for measuring events. CUDA reports differences
// as float milliseconds, which stay exact to a microsecond for a few seconds only. So the base is renewed from time to
// time.
struct CudaTimeBase {
  cudaEvent_t event = nullptr;
  double seconds = 0;  // on the clock of Device::Now

  CudaTimeBase() = default;
  CudaTimeBase(const CudaTimeBase&) = delete;
  CudaTimeBase& operator=(const CudaTimeBase&) = delete;
  ~CudaTimeBase();
};

class CudaEvent final : public Event {
 public:
  // Takes ownership of the event.
  CudaEvent(int ordinal, cudaEvent_t event, std::shared_ptr<const CudaTimeBase> base)
      : ordinal_(ordinal), event_(event), base_(std::move(base)) {}
  ~CudaEvent() override { cudaEventDestroy(event_); }

  absl::Status Wait() override;
  double Seconds() const override;
  cudaEvent_t native() const { return event_; }

 private:
  const int ordinal_;
  const cudaEvent_t event_;
  const std::shared_ptr<const CudaTimeBase> base_;
};

class CudaStream final : public Stream {
 public:
  // Takes ownership of the stream. `registered` must outlive it.
  CudaStream(int ordinal, cudaStream_t stream, const RegisteredRanges& registered)
      : ordinal_(ordinal), stream_(stream), registered_(registered) {}
  ~CudaStream() override;

  absl::Status CopyToDevice(uint8_t* to, const uint8_t* from, int64_t bytes) override;
  absl::Status CopyToHost(uint8_t* to, const uint8_t* from, int64_t bytes) override;
  absl::Status CopyFromPeer(uint8_t* to, const uint8_t* from, int64_t bytes) override;
  absl::Status Launch(Kernel kernel) override;
  absl::Status Record(Event& event) override;
  absl::Status WaitFor(Event& event) override;
  absl::Status Synchronize() override;

 private:
  const int ordinal_;
  const cudaStream_t stream_;
  const RegisteredRanges& registered_;
};

}  // namespace moestro::device
