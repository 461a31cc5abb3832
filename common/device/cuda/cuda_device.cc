#include "common/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/base/steady_seconds.h"
#include "common/device/cuda/cuda_error.h"
#include "common/device/cuda/cuda_stream.h"
#include "common/device/cuda/registered_ranges.h"

namespace moestro::device {
namespace {

constexpr int kOldestMajor = 8;  // compute capability: mma on BF16, cp.async

// Free memory left to the driver, which loads kernels at first use and keeps their stacks. On a GPU with a display,
// other programs need some too.
constexpr int64_t kDriverBytes = int64_t{512} << 20;

// The GPU's page tables for registered host memory: 8 bytes per 4096.
int64_t PageTableBytes(int64_t registered_bytes) { return CeilDiv(std::max<int64_t>(registered_bytes, 0), 512); }

// Maximum age of the time base: until then, differences to it are exact to a few microseconds.
constexpr double kBaseSeconds = 30;

// Memory of the current GPU.
struct Room {
  int64_t usable = 0;  // free, less what the driver needs
  int64_t total = 0;
};
// `unregistered`: host memory yet to be registered.
absl::StatusOr<Room> RoomNow(int64_t unregistered) {
  size_t free = 0, total = 0;
  MOE_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "reading a GPU's memory size"));
  const int64_t usable = static_cast<int64_t>(free) - kDriverBytes - PageTableBytes(unregistered);
  return Room{std::max<int64_t>(usable, 0), static_cast<int64_t>(total)};
}

// Registers memory that copies only read. GPUs that use the host's page tables register a read-only mapping directly.
// Others refuse it, so it is made writable during registration; the registration stays.
cudaError_t RegisterForReading(void* memory, size_t bytes, bool reads_only, absl::Status* denied) {
  const unsigned flag = reads_only ? cudaHostRegisterReadOnly : cudaHostRegisterDefault;
  const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable | flag);
  if (error != cudaErrorInvalidValue && error != cudaErrorNotSupported) return error;
  cudaGetLastError();
  if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) != 0) {
    *denied = absl::ErrnoToStatus(errno, "GPUs register only writable memory, and this mapping is read-only");
    return error;
  }
  const cudaError_t again = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
  MOE_CHECK(mprotect(memory, bytes, PROT_READ) == 0);
  return again;
}

// The remedy.
const char* RegisterRemedy(cudaError_t error) {
  if (error == cudaErrorMemoryAllocation) {
    return "registered memory needs page tables, 8 bytes per 4096 on the GPU and 16 on the host: check what else has "
           "memory there, --device-pin-bytes, and ulimit -l";
  }
  return "this driver does not register such memory";
}

std::string NameOf(int ordinal, const std::string& kind) { return absl::StrFormat("cuda:%d (%s)", ordinal, kind); }

class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, std::string kind, int64_t memory_bytes, int64_t registered_bytes, bool registers_read_only,
             bool reads_host_addresses)
      : ordinal_(ordinal),
        kind_(std::move(kind)),
        name_(NameOf(ordinal, kind_)),
        budget_(memory_bytes),
        registered_bytes_(registered_bytes),
        registers_read_only_(registers_read_only),
        reads_host_addresses_(reads_host_addresses) {}

  std::string_view name() const override { return name_; }
  std::string_view kind() const override { return kind_; }
  int64_t memory_bytes() const override { return budget_.limit(); }
  int64_t memory_used() const override { return budget_.used(); }
  int64_t memory_free() const override {
    cudaSetDevice(ordinal_);
    const absl::StatusOr<Room> room = RoomNow(registered_bytes_ - registered_.bytes());
    return room.ok() ? std::min(budget_.free(), room->usable) : budget_.free();  // Allocate reports the error
  }

  absl::StatusOr<Memory> Allocate(int64_t bytes, const std::string& what) override {
    MOE_RETURN_IF_ERROR(Bind());
    MOE_RETURN_IF_ERROR(budget_.Take(bytes, what));
    void* data = nullptr;
    cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (error == cudaSuccess && Aligned(data) != data) {  // CUDA guarantees only multiples of 256
      cudaFree(data);
      error = cudaMalloc(&data, static_cast<size_t>(bytes + kAlignment));
    }
    if (error != cudaSuccess) {
      cudaGetLastError();
      budget_.Give(bytes);
      return CudaStatus(error, absl::StrFormat("%s: %d bytes of device memory", what, bytes));
    }
    return Memory(Aligned(data), bytes, Release([this, data, bytes] {
                    cudaSetDevice(ordinal_);
                    cudaFree(data);
                    budget_.Give(bytes);
                  }));
  }

  absl::StatusOr<Registration> Register(const uint8_t* data, int64_t bytes, HostAccess access) override {
    MOE_RETURN_IF_ERROR(Bind());
    void* const memory = const_cast<uint8_t*>(data);
    const auto size = static_cast<size_t>(bytes);
    MOE_RETURN_IF_ERROR(registered_.Add(data, bytes, access, [&]() -> absl::Status {
      absl::Status denied;
      const cudaError_t error = access == HostAccess::kReads
                                    ? RegisterForReading(memory, size, registers_read_only_, &denied)
                                    : cudaHostRegister(memory, size, cudaHostRegisterPortable);
      if (error == cudaSuccess) return absl::OkStatus();
      cudaGetLastError();
      const std::string refused = absl::StrFormat("registering %d bytes for copies: %s (%s)", bytes,
                                                  cudaGetErrorName(error), cudaGetErrorString(error));
      if (!denied.ok()) return absl::PermissionDeniedError(absl::StrCat(refused, "; ", denied.message()));
      const std::string message = absl::StrCat(refused, "; ", RegisterRemedy(error));
      return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(message)
                                                : absl::PermissionDeniedError(message);
    }));
    return Registration([this, data, memory] {
      registered_.Remove(data, [&] {
        cudaSetDevice(ordinal_);
        cudaHostUnregister(memory);
      });
    });
  }

  HostPart PartAt(const uint8_t* data, int64_t bytes) const override { return registered_.PartAt(data, bytes); }

  bool KernelsRead(const uint8_t* data, int64_t bytes) const override {
    if (!reads_host_addresses_) return false;
    for (int64_t offset = 0; offset < bytes;) {
      const HostPart part = registered_.PartAt(data + offset, bytes - offset);
      if (!part.registered) return false;
      offset += part.bytes;
    }
    return true;
  }

  absl::Status ReachPeer(const Device& peer) override {
    const auto* const gpu = dynamic_cast<const CudaDevice*>(&peer);
    if (gpu == nullptr) return Device::ReachPeer(peer);
    if (gpu->ordinal_ == ordinal_) return absl::OkStatus();  // its own memory
    MOE_RETURN_IF_ERROR(Bind());
    int reaches = 0;
    MOE_RETURN_IF_ERROR(CudaStatus(cudaDeviceCanAccessPeer(&reaches, ordinal_, gpu->ordinal_), "looking for peers"));
    if (reaches == 0) {
      return absl::UnavailableError(
          absl::StrCat(Device::ReachPeer(peer).message(), ": see nvidia-smi topo -p2p r for what the machine allows"));
    }
    const cudaError_t error = cudaDeviceEnablePeerAccess(gpu->ordinal_, 0);
    if (error == cudaSuccess) return absl::OkStatus();
    cudaGetLastError();
    if (error == cudaErrorPeerAccessAlreadyEnabled) return absl::OkStatus();
    return absl::UnavailableError(CudaStatus(error, std::string(Device::ReachPeer(peer).message())).message());
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream(std::string_view name) override {
    MOE_RETURN_IF_ERROR(Bind());
    cudaStream_t stream = nullptr;
    MOE_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                   absl::StrFormat("creating stream %s", name)));
    return std::make_unique<CudaStream>(ordinal_, stream, registered_);
  }

  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    MOE_RETURN_IF_ERROR(Bind());
    MOE_ASSIGN_OR_RETURN(std::shared_ptr<const CudaTimeBase> base, TimeBase());
    cudaEvent_t event = nullptr;
    // A waiting thread sleeps: the cores are busy decoding.
    MOE_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, cudaEventBlockingSync), "creating an event"));
    return std::make_unique<CudaEvent>(ordinal_, event, std::move(base));
  }

  double Now() const override { return SteadySeconds(); }

 private:
  static constexpr int64_t kAlignment = 4096;

  static uint8_t* Aligned(void* data) {
    return reinterpret_cast<uint8_t*>(RoundUp(static_cast<int64_t>(reinterpret_cast<uintptr_t>(data)), kAlignment));
  }

  absl::Status Bind() const { return CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"); }

  absl::StatusOr<std::shared_ptr<const CudaTimeBase>> TimeBase() {
    MutexLock lock(mutex_);
    if (base_ != nullptr && SteadySeconds() - base_->seconds < kBaseSeconds) return base_;
    cudaStream_t stream = nullptr;  // a stream without other work
    MOE_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream"));
    // The event is between two host times. On a busy machine, a thread may be delayed for long between them.
    constexpr int kTries = 8;
    std::shared_ptr<CudaTimeBase> tightest;
    double least = std::numeric_limits<double>::infinity();
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < kTries && error == cudaSuccess; ++i) {
      auto base = std::make_shared<CudaTimeBase>();
      error = cudaEventCreateWithFlags(&base->event, cudaEventDefault);
      const double before = SteadySeconds();
      if (error == cudaSuccess) error = cudaEventRecord(base->event, stream);
      if (error == cudaSuccess) error = cudaEventSynchronize(base->event);
      const double after = SteadySeconds();
      if (after - before >= least) continue;
      least = after - before;
      base->seconds = before + least / 2;
      tightest = std::move(base);
    }
    cudaStreamDestroy(stream);
    MOE_RETURN_IF_ERROR(CudaStatus(error, "recording an event"));
    base_ = std::move(tightest);
    return base_;
  }

  const int ordinal_;
  const std::string kind_;
  const std::string name_;
  MemoryBudget budget_;
  const int64_t registered_bytes_;  // of host memory, when all is registered
  const bool registers_read_only_;  // without making them writable
  const bool reads_host_addresses_;
  RegisteredRanges& registered_ = RegisteredRanges::Get();
  Mutex mutex_;
  std::shared_ptr<const CudaTimeBase> base_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<cudaDeviceProp> PropertiesOf(int ordinal) {
  int count = 0;
  MOE_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceCount(&count), "looking for GPUs"));
  if (ordinal < 0 || ordinal >= count) {
    return absl::NotFoundError(
        absl::StrFormat("cuda:%d: there are %d GPUs, counted from 0; see nvidia-smi -L", ordinal, count));
  }
  MOE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal), "cudaSetDevice"));
  cudaDeviceProp gpu;
  MOE_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&gpu, ordinal), "looking at a GPU"));
  return gpu;
}

}  // namespace

absl::StatusOr<bool> CudaMultipliesFp8(int ordinal) {
  MOE_ASSIGN_OR_RETURN(const cudaDeviceProp gpu, PropertiesOf(ordinal));
  return (gpu.major == 8 && gpu.minor == 9) || gpu.major >= 12;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options) {
  MOE_ASSIGN_OR_RETURN(const cudaDeviceProp gpu, PropertiesOf(options.ordinal));
  const std::string kind = absl::StrFormat("%s, compute capability %d.%d", gpu.name, gpu.major, gpu.minor);
  const std::string name = NameOf(options.ordinal, kind);
  if (gpu.major < kOldestMajor) {
    return absl::UnimplementedError(absl::StrFormat("%s: %d.0 or later is needed", name, kOldestMajor));
  }
  MOE_ASSIGN_OR_RETURN(const Room room, RoomNow(options.registered_bytes - RegisteredRanges::Get().bytes()));
  if (options.memory_bytes > room.usable) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: %d bytes of device memory wanted (--device-memory), %d of %d are free", name,
                        options.memory_bytes, room.usable, room.total));
  }
  int reads_only = 0, host_addresses = 0;
  cudaDeviceGetAttribute(&host_addresses, cudaDevAttrCanUseHostPointerForRegisteredMem, options.ordinal);
  cudaDeviceGetAttribute(&reads_only, cudaDevAttrHostRegisterReadOnlySupported, options.ordinal);
  return std::make_unique<CudaDevice>(options.ordinal, kind,
                                      options.memory_bytes > 0 ? options.memory_bytes : room.usable,
                                      options.registered_bytes, reads_only != 0, host_addresses != 0);
}

}  // namespace moestro::device
