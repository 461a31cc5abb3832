// The part of the CUDA runtime that common/device/cuda uses, on top of the machine; include/cuda_runtime_api.h declares
// it. Streams are threads, so work happens later than the call, as on a GPU. Copies read their source when their turn
// comes, even pageable memory, as on GPUs that share the host's page tables. As in CUDA, a copy must be inside one
// registered piece or outside all, and a failed kernel makes every later call fail. Stricter than CUDA: cudaFree waits
// for nothing, and copies between GPUs need peer access. Registering is refused as drivers do: memory that is not
// writable as an invalid value, the read-only flag if the GPU does not support it. Registered memory takes page tables
// on the GPU. Kernels may read it.
#pragma once

#include <cstdint>
#include <functional>
#include <set>

struct CUstream_st;

namespace moestro::emulation {

inline constexpr int kLaunchFailure = 719;  // cudaErrorLaunchFailure

// Properties of the GPU and its driver. Change them only while nothing uses them.
struct GpuModel {
  int devices = 1;
  bool alike = true;  // false: each has another name
  int multiprocessors = 132;
  int count_error = 0;  // result of cudaGetDeviceCount, for example a missing driver
  int major = 12;       // compute capability
  int minor = 0;
  int code = 0;  // compute capability that kernels are compiled for, as 89; 0: the GPU's own
  int64_t memory_bytes = int64_t{8} << 30;
  int64_t registrable_bytes = int64_t{1} << 60;  // of host memory
  // Whether a read-only mapping can be registered directly, with the corresponding flag. Recent GPUs with separate
  // memory cannot: cudaDevAttrHostRegisterReadOnlySupported is 0.
  bool registers_read_only = false;
  // Whether kernels read registered memory at its host address.
  bool reads_host_addresses = true;
  bool reaches_peers = true;    // GPUs reach each other's memory
  bool delivers_peers = true;   // and find there what is there
  int64_t failing_launch = -1;  // counted from 0: this launch and everything after it fail

  // Counters.
  std::set<const void*> known_kernels;  // whose attributes were asked for
  int64_t launches = 0;
  int64_t early_launches = 0;  // that may start before the kernel before them has ended
  int64_t pinned_copies = 0;
  int64_t pageable_copies = 0;
  int64_t device_copies = 0;     // from device memory to device memory
  int64_t registered_bytes = 0;  // now
  int64_t allocated_bytes = 0;   // now
};
GpuModel& Gpu();

// A new GPU, as at the start of a process. REQUIRES: no stream exists.
void ResetGpu();

// Whether a byte of host memory is registered.
bool IsRegistered(const void* byte);
// Waits until it is.
void AwaitRegistered(const void* byte);

// Runs `run` when the stream reaches it; false is a launch failure. `early`: a GPU may start it before. Returns a
// cudaError_t.
int EnqueueLaunch(CUstream_st* stream, bool early, std::function<bool()> run);

}  // namespace moestro::emulation
