// The part of the CUDA runtime that common/device/cuda uses, over the machine: include/cuda_runtime_api.h declares it.
// Streams are threads, so that work is done later than it is asked for, as on a GPU, and copies read their source when
// their turn comes, pageable memory too, as GPUs that share the host's page tables may. As in CUDA: a copy must lie
// inside of one registered piece or outside of all; a kernel that fails makes every later call fail. Stricter than
// CUDA: cudaFree waits for nothing. Registering is refused as drivers do: memory that may not be written as an invalid
// value, the read-only flag where the GPU does not support it; and registered memory takes page tables on the GPU.
#pragma once

#include <cstdint>
#include <functional>

struct CUstream_st;

namespace moestro::emulation {

inline constexpr int kLaunchFailure = 719;  // cudaErrorLaunchFailure

// What the GPU and its driver are like. Change it while nothing uses them.
struct GpuModel {
  int devices = 1;
  int count_error = 0;  // of cudaGetDeviceCount: a driver that is missing, say
  int major = 12;       // compute capability
  int minor = 0;
  int64_t memory_bytes = int64_t{8} << 30;
  int64_t registrable_bytes = int64_t{1} << 60;  // of host memory
  // Whether a read-only mapping can be registered as it is, with the flag that says so. Recent GPUs with memory of
  // their own cannot: cudaDevAttrHostRegisterReadOnlySupported is 0.
  bool registers_read_only = false;
  int64_t failing_launch = -1;  // counted from 0: it fails, and with it everything after

  // What has been done.
  int64_t launches = 0;
  int64_t pinned_copies = 0;
  int64_t pageable_copies = 0;
  int64_t registered_bytes = 0;  // now
  int64_t allocated_bytes = 0;   // now
};
GpuModel& Gpu();

// A new GPU, as if the process had just begun. REQUIRES: no stream exists.
void ResetGpu();

// Of a byte of host memory.
bool IsRegistered(const void* byte);
// Returns when it is.
void AwaitRegistered(const void* byte);

// Runs `run` when the stream gets there; false is a launch failure. Returns a cudaError_t.
int EnqueueLaunch(CUstream_st* stream, std::function<bool()> run);

}  // namespace moestro::emulation
