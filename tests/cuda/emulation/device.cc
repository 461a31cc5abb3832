#include "tests/cuda/device.h"

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "common/base/check.h"
#include "common/base/math.h"
#include "tests/cuda/emulation/global_memory.h"
#include "tests/cuda/emulation/machine.h"
#include "tests/cuda/emulation/runtime.h"

namespace moestro::cuda {

std::string DeviceName() { return "emulation"; }
bool HasFp8Mma() { return true; }
bool SetWarpGroups(bool on) {
  const emulation::GpuModel other;
  emulation::Gpu().major = on ? 9 : other.major;
  emulation::Gpu().multiprocessors = on ? 4 : other.multiprocessors;  // so that blocks compute several tiles
  return true;
}
void ResetWarpGroups() { SetWarpGroups(false); }

Stream DeviceStream() { return nullptr; }

void* AllocateDevice(int64_t bytes) {
  constexpr int64_t kAlignment = 256;  // alignment of cudaMalloc
  // One byte more than requested, so that no two buffers can touch.
  void* memory = std::aligned_alloc(kAlignment, static_cast<size_t>(RoundUp(bytes + 1, kAlignment)));
  MOE_CHECK(memory != nullptr);
  std::lock_guard turn(emulation::Turn());
  std::memset(memory, 0xff, static_cast<size_t>(bytes));
  emulation::GlobalMemory::Get().Add(memory, bytes);
  return memory;
}

void FreeDevice(void* memory) {
  std::lock_guard turn(emulation::Turn());
  emulation::GlobalMemory::Get().Remove(memory);
  std::free(memory);
}

void CopyToDevice(void* to, const void* from, int64_t bytes) {
  std::lock_guard turn(emulation::Turn());
  std::memcpy(to, from, static_cast<size_t>(bytes));
  if (bytes > 0) emulation::GlobalMemory::Get().Fill(to, bytes);
}
void CopyFromDevice(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }

void* AllocateHost(int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  // One byte more than requested, as above.
  void* memory = std::aligned_alloc(kAlignment, static_cast<size_t>(RoundUp(bytes + 1, kAlignment)));
  MOE_CHECK(memory != nullptr);
  std::memset(memory, 0, static_cast<size_t>(bytes));
  std::lock_guard turn(emulation::Turn());
  emulation::GlobalMemory::Get().AddHost(memory, bytes, /*writable=*/true, /*changes=*/true);
  return memory;
}

void FreeHost(void* memory) {
  std::lock_guard turn(emulation::Turn());
  emulation::GlobalMemory::Get().RemoveHost(memory);
  std::free(memory);
}

std::string Synchronize() { return emulation::TakeFinding(); }

}  // namespace moestro::cuda
