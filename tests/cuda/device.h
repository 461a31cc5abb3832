// The device under test: the emulated one (emulation/device.cc) or a GPU (gpu/device.cc), as linked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

// "emulation", or the GPU's name.
std::string DeviceName();

// Whether it has the FP8 mma (compute capability 8.9).
bool HasFp8Mma();

// Has kernels take the products of groups of warps, which compute capability 9.0 has, or those of warps, until
// ResetWarpGroups. False: the device has only the others.
bool SetWarpGroups(bool on);
// Kernels take what they do by themselves: on the emulated device the products of warps.
void ResetWarpGroups();

// Where kernels are launched. A GPU has a stream for it that is not the default one, because kernels of that one never
// start early (launch.cuh), as the roles' do. On the emulated device it is the default one: a launch returns when the
// kernel has ended.
Stream DeviceStream();

// Memory aligned to 256 bytes at its start: the emulated device reports an access past `bytes`. Every byte is 0xff: NaN
// as F32 and BF16.
void* AllocateDevice(int64_t bytes);
void FreeDevice(void* memory);
void CopyToDevice(void* to, const void* from, int64_t bytes);
void CopyFromDevice(void* to, const void* from, int64_t bytes);

// Memory of the host that kernels read and write at its address; every byte is 0. Threads of the host write it, too:
// the emulated device reports loads but LoadFromHost (ptx.cuh).
void* AllocateHost(int64_t bytes);
void FreeHost(void* memory);

// Waits for all kernels. Returns the errors since the last call, or nothing.
std::string Synchronize();

// An array on the device. Not copyable.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t size) : size_(size), data_(static_cast<T*>(AllocateDevice(size * kBytes))) {}
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(static_cast<int64_t>(values.size())) {
    CopyToDevice(data_, values.data(), size_ * kBytes);
  }
  ~DeviceArray() { FreeDevice(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() const { return data_; }
  int64_t size() const { return size_; }
  std::vector<T> Download() const {
    std::vector<T> values(static_cast<size_t>(size_));
    CopyFromDevice(values.data(), data_, size_ * kBytes);
    return values;
  }

 private:
  static constexpr int64_t kBytes = sizeof(T);
  int64_t size_;
  T* data_;
};

// An array of AllocateHost. Not copyable.
template <typename T>
class HostArray {
 public:
  explicit HostArray(int64_t size)
      : numbers_(static_cast<T*>(AllocateHost(size * sizeof(T))), static_cast<size_t>(size)) {}
  explicit HostArray(const std::vector<T>& values) : HostArray(static_cast<int64_t>(values.size())) {
    std::ranges::copy(values, numbers_.begin());
  }
  ~HostArray() { FreeHost(numbers_.data()); }
  HostArray(const HostArray&) = delete;
  HostArray& operator=(const HostArray&) = delete;

  T* get() const { return numbers_.data(); }
  std::vector<T> Values() const { return {numbers_.begin(), numbers_.end()}; }

 private:
  std::span<T> numbers_;
};

}  // namespace moestro::cuda
