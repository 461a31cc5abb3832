#include "tests/cuda/emulation/runtime.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/math.h"
#include "tests/cuda/emulation/global_memory.h"
#include "tests/cuda/emulation/machine.h"

namespace {

// One cudaEventRecord.
struct Completion {
  std::mutex mutex;
  std::condition_variable done;
  bool is_done = false;
  std::chrono::steady_clock::time_point when;

  void Complete() {
    std::lock_guard lock(mutex);
    is_done = true;
    when = std::chrono::steady_clock::now();
    done.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex);
    done.wait(lock, [this] { return is_done; });
  }
};

}  // namespace

struct CUevent_st {
  std::mutex mutex;
  std::shared_ptr<Completion> last;  // guarded by mutex

  std::shared_ptr<Completion> Last() {
    std::lock_guard lock(mutex);
    return last;
  }
};

struct CUstream_st {
  explicit CUstream_st(int its_device) : device(its_device), thread([this] { Work(); }) {}
  ~CUstream_st() {
    Add(nullptr);
    thread.join();
  }

  // Null ends the thread.
  void Add(std::function<void()> task) {
    std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    added.notify_one();
  }
  void Work() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex);
        added.wait(lock, [this] { return !tasks.empty(); });
        task = std::move(tasks.front());
        tasks.pop_front();
      }
      if (!task) return;
      task();
    }
  }
  void Wait() {
    const auto completion = std::make_shared<Completion>();
    Add([completion] { completion->Complete(); });
    completion->Wait();
  }

  const int device;
  std::mutex mutex;
  std::condition_variable added;
  std::deque<std::function<void()>> tasks;  // guarded by mutex
  std::thread thread;
};

namespace moestro::emulation {
namespace {

std::atomic<int> sticky_error = 0;  // after a failed kernel
struct Registered {
  uintptr_t end = 0;
  bool read_only = false;
};
std::map<uintptr_t, Registered> registered;  // by beginning; protected by Turn()
struct Allocated {
  size_t bytes = 0;
  int device = 0;
};
std::map<const void*, Allocated> allocated;  // by beginning; protected by Turn()
std::set<std::pair<int, int>> peers;         // (device, one that it reaches); protected by Turn()
thread_local int current_device = 0;
std::condition_variable_any registered_more;  // waits with Turn()

cudaError_t Sticky() { return static_cast<cudaError_t>(sticky_error.load()); }

enum class HostMemory { kPageable, kRegistered, kReadOnly, kStraddling };
HostMemory KindOf(const void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t end = begin + bytes;
  for (const auto& [from, range] : registered) {
    if (begin >= from && end <= range.end) return range.read_only ? HostMemory::kReadOnly : HostMemory::kRegistered;
    if (begin < range.end && from < end) return HostMemory::kStraddling;
  }
  return HostMemory::kPageable;
}

// Whether a page of the memory is registered. Registration works on pages, and each page may be registered only once.
bool SharesAPage(const void* memory, size_t bytes) {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / kPage * kPage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory) + bytes;
  return std::ranges::any_of(
      registered, [&](const auto& range) { return begin < range.second.end && range.first / kPage * kPage < end; });
}

// Whether all of it is mapped and writable.
bool IsWritable(const void* memory, size_t bytes) {
  std::ifstream maps("/proc/self/maps");
  auto at = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t end = at + bytes;
  for (std::string line; at < end && std::getline(maps, line);) {
    uintptr_t from = 0, to = 0;
    char read = 0, write = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %c%c", &from, &to, &read, &write) != 4 || to <= at) continue;
    if (from > at || write != 'w') return false;
    at = to;
  }
  return at >= end;
}

// Free memory of the GPU, less the page tables of registered memory. REQUIRES Turn().
size_t FreeBytes() {
  const int64_t taken = Gpu().allocated_bytes + moestro::CeilDiv(Gpu().registered_bytes, 512);
  return static_cast<size_t>(std::max<int64_t>(Gpu().memory_bytes - taken, 0));
}

// The host's part of a copy to the device, done when the stream reaches it.
void Write(void* to, const void* from, size_t bytes) {
  std::lock_guard turn(Turn());
  if (Sticky() != cudaSuccess) return;
  std::memcpy(to, from, bytes);
  GlobalMemory::Get().Fill(to, static_cast<int64_t>(bytes));
}
void Read(void* to, const void* from, size_t bytes) {
  std::lock_guard turn(Turn());
  if (Sticky() == cudaSuccess) std::memcpy(to, from, bytes);
}
// The device whose memory this is; -1: none's. REQUIRES Turn().
int DeviceOf(const void* memory, size_t bytes) {
  auto next = allocated.upper_bound(memory);
  if (next == allocated.begin()) return -1;
  const auto& [begin, buffer] = *--next;
  const auto offset = static_cast<size_t>(static_cast<const uint8_t*>(memory) - static_cast<const uint8_t*>(begin));
  return offset + bytes <= buffer.bytes ? buffer.device : -1;
}
// Memory that is gone when its turn comes is a fault, as a kernel's.
void CopyBetween(void* to, const void* from, size_t bytes) {
  std::lock_guard turn(Turn());
  if (Sticky() != cudaSuccess) return;
  if (DeviceOf(from, bytes) < 0 || DeviceOf(to, bytes) < 0) {
    sticky_error = cudaErrorIllegalAddress;
    return;
  }
  Gpu().delivers_peers ? std::memcpy(to, from, bytes) : std::memset(to, 0xff, bytes);
  GlobalMemory::Get().Fill(to, static_cast<int64_t>(bytes));
}

}  // namespace

GpuModel& Gpu() {
  static GpuModel gpu;
  return gpu;
}

void ResetGpu() {
  std::lock_guard turn(Turn());
  TakeFinding();
  sticky_error = 0;
  const int64_t allocated_bytes = Gpu().allocated_bytes, registered_bytes = Gpu().registered_bytes;
  Gpu() = GpuModel();
  Gpu().registered_bytes = registered_bytes;
  Gpu().allocated_bytes = allocated_bytes;
  peers.clear();
}

bool IsRegistered(const void* byte) {
  std::lock_guard turn(Turn());
  return KindOf(byte, 1) != HostMemory::kPageable;
}

void AwaitRegistered(const void* byte) {
  std::unique_lock turn(Turn());
  registered_more.wait(turn, [&] { return KindOf(byte, 1) != HostMemory::kPageable; });
}

int EnqueueLaunch(CUstream_st* stream, bool early, std::function<bool()> run) {
  if (Sticky() != cudaSuccess) return Sticky();
  stream->Add([early, run = std::move(run)] {
    std::lock_guard turn(Turn());
    if (Sticky() != cudaSuccess) return;
    if (early) ++Gpu().early_launches;
    if (Gpu().launches++ == Gpu().failing_launch || !run()) sticky_error = cudaErrorLaunchFailure;
  });
  return cudaSuccess;
}

}  // namespace moestro::emulation

using namespace moestro::emulation;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorPeerAccessUnsupported:
      return "cudaErrorPeerAccessUnsupported";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t) { return "of the model"; }
cudaError_t cudaGetLastError() { return Sticky(); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = Gpu().count_error == 0 ? Gpu().devices : 0;
  if (Gpu().count_error != 0) return static_cast<cudaError_t>(Gpu().count_error);
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;  // its devices are all alike
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device >= Gpu().devices) return cudaErrorInvalidDevice;
  current_device = device;
  return Sticky();
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {.name = "model", .major = Gpu().major, .minor = Gpu().minor};
  if (!Gpu().alike) std::snprintf(properties->name, sizeof(properties->name), "model %d", device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = Gpu().multiprocessors;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = Gpu().major;
      break;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      *value = Gpu().reads_host_addresses ? 1 : 0;
      break;
    case cudaDevAttrHostRegisterReadOnlySupported:
      *value = Gpu().registers_read_only ? 1 : 0;
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  std::lock_guard turn(Turn());
  if (Sticky() != cudaSuccess) return Sticky();
  Gpu().known_kernels.insert(kernel);
  attributes->ptxVersion = Gpu().code > 0 ? Gpu().code : 10 * Gpu().major + Gpu().minor;
  return Sticky();
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = Gpu().reaches_peers && device != peer ? 1 : 0;
  return Sticky();
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  std::lock_guard turn(Turn());
  if (!Gpu().reaches_peers || peer == current_device) return cudaErrorPeerAccessUnsupported;
  return peers.insert({current_device, peer}).second ? Sticky() : cudaErrorPeerAccessAlreadyEnabled;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  std::lock_guard turn(Turn());
  *total = static_cast<size_t>(Gpu().memory_bytes);
  *free = FreeBytes();
  return Sticky();
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  std::lock_guard turn(Turn());
  if (Sticky() != cudaSuccess) return Sticky();
  if (bytes > FreeBytes()) return cudaErrorMemoryAllocation;
  constexpr int64_t kAlignment = 4096;
  // One byte more than requested, so that no two buffers can touch.
  *memory = std::aligned_alloc(kAlignment,
                               static_cast<size_t>(moestro::RoundUp(static_cast<int64_t>(bytes) + 1, kAlignment)));
  MOE_CHECK(*memory != nullptr);
  std::memset(*memory, 0xff, bytes);
  GlobalMemory::Get().Add(*memory, static_cast<int64_t>(bytes));
  allocated[*memory] = {bytes, current_device};
  Gpu().allocated_bytes += static_cast<int64_t>(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::lock_guard turn(Turn());
  Gpu().allocated_bytes -= static_cast<int64_t>(allocated.at(memory).bytes);
  allocated.erase(memory);
  GlobalMemory::Get().Remove(memory);
  std::free(memory);
  return Sticky();
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags) {
  std::lock_guard turn(Turn());
  if (Sticky() != cudaSuccess) return Sticky();
  const bool read_only = (flags & cudaHostRegisterReadOnly) != 0;
  if (read_only && !Gpu().registers_read_only) return cudaErrorNotSupported;
  if (SharesAPage(memory, bytes)) return cudaErrorHostMemoryAlreadyRegistered;
  if (!read_only && !IsWritable(memory, bytes)) return cudaErrorInvalidValue;
  if (static_cast<int64_t>(bytes) > Gpu().registrable_bytes - Gpu().registered_bytes) return cudaErrorMemoryAllocation;
  if (bytes / 512 > FreeBytes()) return cudaErrorMemoryAllocation;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  registered[begin] = {begin + bytes, read_only};
  if (Gpu().reads_host_addresses) GlobalMemory::Get().AddHost(memory, static_cast<int64_t>(bytes), !read_only);
  Gpu().registered_bytes += static_cast<int64_t>(bytes);
  registered_more.notify_all();
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  std::lock_guard turn(Turn());
  const auto range = registered.find(reinterpret_cast<uintptr_t>(memory));
  if (range == registered.end()) return cudaErrorInvalidValue;
  Gpu().registered_bytes -= static_cast<int64_t>(range->second.end - range->first);
  GlobalMemory::Get().RemoveHost(memory);
  registered.erase(range);
  return Sticky();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st(current_device);
  return Sticky();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return Sticky();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream->Wait();
  return Sticky();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const std::shared_ptr<Completion> last = event->Last()) stream->Add([last] { last->Wait(); });
  return Sticky();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (Sticky() != cudaSuccess) return Sticky();
  if (bytes == 0) return cudaSuccess;
  if (kind == cudaMemcpyDeviceToDevice) {
    std::lock_guard turn(Turn());
    const int source = DeviceOf(from, bytes), target = DeviceOf(to, bytes);
    if (source < 0 || target != stream->device) return cudaErrorInvalidValue;
    if (source != target && !peers.contains({target, source})) return cudaErrorPeerAccessUnsupported;
    ++Gpu().device_copies;
    stream->Add([=] { CopyBetween(to, from, bytes); });
    return Sticky();
  }
  const bool to_device = kind == cudaMemcpyHostToDevice;
  HostMemory host;
  {
    std::lock_guard turn(Turn());
    host = KindOf(to_device ? from : to, bytes);
    if (host == HostMemory::kStraddling) return cudaErrorInvalidValue;
    if (host == HostMemory::kReadOnly) {
      if (!to_device) return cudaErrorInvalidValue;
      host = HostMemory::kRegistered;
    }
    ++(host == HostMemory::kRegistered ? Gpu().pinned_copies : Gpu().pageable_copies);
  }
  stream->Add([=] { to_device ? Write(to, from, bytes) : Read(to, from, bytes); });
  if (host == HostMemory::kPageable && !to_device) stream->Wait();
  return Sticky();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return Sticky();
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return Sticky();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto completion = std::make_shared<Completion>();
  {
    std::lock_guard lock(event->mutex);
    event->last = completion;
  }
  stream->Add([completion] { completion->Complete(); });
  return Sticky();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const std::shared_ptr<Completion> last = event->Last()) last->Wait();
  return Sticky();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::shared_ptr<Completion> first = begin->Last(), last = end->Last();
  if (first == nullptr || last == nullptr) return cudaErrorInvalidValue;
  std::scoped_lock lock(first->mutex, last->mutex);
  *milliseconds = std::chrono::duration<float, std::milli>(last->when - first->when).count();
  return Sticky();
}
