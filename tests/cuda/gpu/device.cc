#include "tests/cuda/device.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace moestro::cuda {
namespace {

// As the process was started: "off" keeps products of groups of warps from being taken.
const std::string kWgmma = [] {
  const char* const setting = std::getenv("MOESTRO_WGMMA");
  return setting != nullptr ? setting : "";
}();

// Nothing can be tested after a driver error.
void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

cudaDeviceProp Properties() {
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return properties;
}

void Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, const char* what) {
  Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, DeviceStream()), what);
  Check(cudaStreamSynchronize(DeviceStream()), what);
}

}  // namespace

std::string DeviceName() { return Properties().name; }
bool HasFp8Mma() {
  const cudaDeviceProp properties = Properties();
  return properties.major * 10 + properties.minor >= 89;
}

bool SetWarpGroups(bool on) {
  if (on && Properties().major != 9) return false;
  setenv("MOESTRO_WGMMA", on ? "on" : "off", 1);  // HasWgmma
  return true;
}
void ResetWarpGroups() { setenv("MOESTRO_WGMMA", kWgmma.c_str(), 1); }

Stream DeviceStream() {
  static const Stream stream = [] {
    cudaStream_t made = nullptr;
    Check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return made;
  }();
  return stream;
}

// The default stream does not wait for that one, so memory is written and read there, too.
void* AllocateDevice(int64_t bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, static_cast<size_t>(bytes > 0 ? bytes : 1)), "cudaMalloc");
  Check(cudaMemsetAsync(memory, 0xff, static_cast<size_t>(bytes), DeviceStream()), "cudaMemsetAsync");
  return memory;
}
void FreeDevice(void* memory) { Check(cudaFree(memory), "cudaFree"); }
void CopyToDevice(void* to, const void* from, int64_t bytes) {
  Copy(to, from, bytes, cudaMemcpyHostToDevice, "copy to the device");
}
void CopyFromDevice(void* to, const void* from, int64_t bytes) {
  Copy(to, from, bytes, cudaMemcpyDeviceToHost, "copy from the device");
}

void* AllocateHost(int64_t bytes) {
  void* memory = nullptr;
  Check(cudaMallocHost(&memory, static_cast<size_t>(bytes > 0 ? bytes : 1)), "cudaMallocHost");
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return memory;
}
void FreeHost(void* memory) { Check(cudaFreeHost(memory), "cudaFreeHost"); }

std::string Synchronize() {
  const cudaError_t error = cudaDeviceSynchronize();
  return error == cudaSuccess ? std::string() : cudaGetErrorString(error);
}

}  // namespace moestro::cuda
