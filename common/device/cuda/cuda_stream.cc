#include "common/device/cuda/cuda_stream.h"

#include <string>

#include "common/base/status.h"
#include "common/device/cuda/cuda_error.h"

namespace moestro::device {

CudaTimeBase::~CudaTimeBase() {
  if (event != nullptr) cudaEventDestroy(event);
}

absl::Status CudaEvent::Wait() {
  MOE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
  return CudaStatus(cudaEventSynchronize(event_), "waiting for an event");
}

double CudaEvent::Seconds() const {
  float milliseconds = 0;
  // Fails only if Wait has failed; then nobody reads the time.
  if (cudaEventElapsedTime(&milliseconds, base_->event, event_) != cudaSuccess) return base_->seconds;
  return base_->seconds + double{milliseconds} / 1000;
}

CudaStream::~CudaStream() {
  cudaSetDevice(ordinal_);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

absl::Status CudaStream::CopyToDevice(uint8_t* to, const uint8_t* from, int64_t bytes) {
  MOE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
  return registered_.ForParts(from, bytes, [&](int64_t offset, int64_t part) {
    return CudaStatus(
        cudaMemcpyAsync(to + offset, from + offset, static_cast<size_t>(part), cudaMemcpyHostToDevice, stream_),
        "copy to the device");
  });
}

absl::Status CudaStream::CopyToHost(uint8_t* to, const uint8_t* from, int64_t bytes) {
  MOE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
  return registered_.ForParts(to, bytes, [&](int64_t offset, int64_t part) {
    return CudaStatus(
        cudaMemcpyAsync(to + offset, from + offset, static_cast<size_t>(part), cudaMemcpyDeviceToHost, stream_),
        "copy to the host");
  });
}

// Unified addresses tell the devices. Peers that have been enabled are copied from directly.
absl::Status CudaStream::CopyFromPeer(uint8_t* to, const uint8_t* from, int64_t bytes) {
  MOE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
  return CudaStatus(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_),
                    "copy from another GPU");
}

absl::Status CudaStream::Launch(Kernel kernel) {
  MOE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
  const absl::Status status = kernel.run(stream_);
  if (status.ok()) return status;
  const cudaError_t error = cudaGetLastError();  // also clears the error, unless the GPU is lost
  return error == cudaSuccess ? Annotate(status, std::string(kernel.name)) : CudaStatus(error, kernel.name);
}

absl::Status CudaStream::Record(Event& event) {
  MOE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
  return CudaStatus(cudaEventRecord(static_cast<CudaEvent&>(event).native(), stream_), "recording an event");
}

absl::Status CudaStream::WaitFor(Event& event) {
  MOE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
  return CudaStatus(cudaStreamWaitEvent(stream_, static_cast<CudaEvent&>(event).native(), 0),
                    "letting a stream wait for an event");
}

absl::Status CudaStream::Synchronize() {
  MOE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
  return CudaStatus(cudaStreamSynchronize(stream_), "waiting for a stream");
}

}  // namespace moestro::device
