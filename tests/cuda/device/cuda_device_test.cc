// The device of common/device/cuda on the model of the CUDA runtime.
#include "common/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <future>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/device/cuda/cuda_error.h"
#include "common/device/cuda/registered_ranges.h"
#include "common/device/host/host_device.h"
#include "common/device/pinning.h"
#include "common/device/staging.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/modules.h"
#include "common/platform/smaps.h"
#include "tests/cuda/emulation/runtime.h"
#include "tests/support/aligned_memory.h"

namespace moestro::device {
namespace {

using testing::HasSubstr;

constexpr int64_t kBytes = 4096;

class CudaDeviceTest : public testing::Test {
 protected:
  CudaDeviceTest() { emulation::ResetGpu(); }
  ~CudaDeviceTest() override {
    EXPECT_EQ(emulation::Gpu().allocated_bytes, 0);
    EXPECT_EQ(emulation::Gpu().registered_bytes, 0);
    emulation::ResetGpu();
  }

  static std::unique_ptr<Device> Open() { return OpenCudaDevice({.memory_bytes = 1 << 20}).value(); }
  static Kernel Add(float* x, float* sum) {
    return {.name = "add", .cost = {}, .run = [x, sum](void* native) {
              const cuda::LaunchResult result = cuda::LaunchAdd(x, 1, sum, static_cast<cuda::Stream>(native));
              return result.ok() ? absl::OkStatus() : absl::InternalError("not launched");
            }};
  }
};

TEST_F(CudaDeviceTest, SaysWhatIsMissing) {
  emulation::Gpu().count_error = cudaErrorInsufficientDriver;
  absl::Status status = OpenCudaDevice({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << "it may be loaded a moment later";
  EXPECT_THAT(status.message(), HasSubstr("cudaErrorInsufficientDriver"));
  EXPECT_THAT(status.message(), HasSubstr("the NVIDIA driver is missing"));

  emulation::Gpu().count_error = 0;
  emulation::Gpu().devices = 0;
  status = OpenCudaDevice({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("CUDA_VISIBLE_DEVICES"));

  emulation::Gpu().devices = 1;
  status = OpenCudaDevice({.ordinal = 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("cuda:1: there are 1 GPUs"));

  emulation::Gpu().major = 7;
  status = OpenCudaDevice({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("compute capability 7.0): 8.0 or later is needed"));

  emulation::Gpu().major = 8;
  status = OpenCudaDevice({.memory_bytes = int64_t{8} << 30}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("--device-memory"));
}

TEST(CudaStatusTest, NamesTheRemedy) {
  const struct {
    cudaError_t error;
    absl::StatusCode code;
    const char* remedy;
  } kErrors[] = {
      {cudaErrorSystemNotReady, absl::StatusCode::kUnavailable, "systemctl status nvidia-fabricmanager"},
      {cudaErrorSystemDriverMismatch, absl::StatusCode::kUnavailable, "restart the machine"},
      {cudaErrorDevicesUnavailable, absl::StatusCode::kUnavailable, "nvidia-smi -c DEFAULT"},
      {cudaErrorUnsupportedPtxVersion, absl::StatusCode::kUnimplemented, "CMAKE_CUDA_ARCHITECTURES"},
      {cudaErrorIllegalInstruction, absl::StatusCode::kInternal, "MOESTRO_WGMMA=off"},
      {cudaErrorLaunchTimeout, absl::StatusCode::kInternal, "use another GPU"},
      {cudaErrorNvlinkUncorrectable, absl::StatusCode::kInternal, "nvidia-smi nvlink -e"},
  };
  for (const auto& [error, code, remedy] : kErrors) {
    const absl::Status status = CudaStatus(error, "a call");
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(status.message(), HasSubstr(remedy));
  }
}

TEST(CudaStatusTest, SaysWhenTheGpuIsLost) {
  for (const cudaError_t error : {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorIllegalInstruction,
                                  cudaErrorLaunchTimeout, cudaErrorNvlinkUncorrectable, cudaErrorContained}) {
    EXPECT_THAT(CudaStatus(error, "a call").message(), HasSubstr("the GPU is lost to this process")) << error;
  }
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorSystemNotReady}) {
    EXPECT_THAT(CudaStatus(error, "a call").message(), testing::Not(HasSubstr("the GPU is lost"))) << error;
  }
}

TEST_F(CudaDeviceTest, AllMemoryButWhatTheDriverNeeds) {
  const auto device = OpenCudaDevice({}).value();
  EXPECT_EQ(device->memory_bytes(), emulation::Gpu().memory_bytes - (int64_t{512} << 20));
}

TEST_F(CudaDeviceTest, WhatIsFreeIsWhatOthersLeave) {
  const int64_t driver = int64_t{512} << 20;
  const auto device = OpenCudaDevice({.memory_bytes = 1000}).value();
  const Memory memory = device->Allocate(100, "a").value();
  EXPECT_EQ(device->memory_free(), 900);
  emulation::Gpu().memory_bytes = driver + 100 + 300;
  EXPECT_EQ(device->memory_free(), 300);
  emulation::Gpu().memory_bytes = driver;
  EXPECT_EQ(device->memory_free(), 0);
}

TEST_F(CudaDeviceTest, MemoryIsBoundedAlignedAndComesBack) {
  const auto device = Open();
  const Memory small = device->Allocate(10, "a").value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data()) % 4096, 0u);
  const absl::Status status = device->Allocate(1 << 20, "the ring").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("the ring"));
  EXPECT_EQ(device->memory_used(), 10);
  { const Memory more = device->Allocate((1 << 20) - 10, "the ring").value(); }
  EXPECT_EQ(device->memory_used(), 10);

  emulation::Gpu().memory_bytes = 100;  // other processes have taken it since
  const absl::Status taken = device->Allocate(1000, "the ring").status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(taken.message(), HasSubstr("the ring: 1000 bytes of device memory: cudaErrorMemoryAllocation"));
  EXPECT_EQ(device->memory_used(), 10);
}

TEST_F(CudaDeviceTest, CopiesKernelsAndEventsInOrder) {
  const auto device = Open();
  const Memory memory = device->Allocate(kBytes, "numbers").value();
  auto* const numbers = reinterpret_cast<float*>(memory.data());
  const auto load = device->NewStream("load").value(), compute = device->NewStream("compute").value();
  const auto loaded = device->NewEvent().value(), computed = device->NewEvent().value();
  const double begin = device->Now();
  const std::vector<float> ones(2, 1.0f);
  std::vector<float> got(2);
  ASSERT_TRUE(load->CopyToDevice(memory.data(), reinterpret_cast<const uint8_t*>(ones.data()), 8).ok());
  ASSERT_TRUE(load->Record(*loaded).ok());
  ASSERT_TRUE(compute->WaitFor(*loaded).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(compute->Launch(Add(numbers, numbers + 1)).ok());
  ASSERT_TRUE(compute->Record(*computed).ok());
  ASSERT_TRUE(compute->CopyToHost(reinterpret_cast<uint8_t*>(got.data()), memory.data(), 8).ok());
  ASSERT_TRUE(computed->Wait().ok());
  ASSERT_TRUE(compute->Synchronize().ok());
  EXPECT_EQ(got, (std::vector<float>{1, 4}));
  constexpr double kClocks = 0.001;  // between the clocks of events and host
  EXPECT_GE(loaded->Seconds(), begin - kClocks);
  EXPECT_GE(computed->Seconds(), loaded->Seconds());
  EXPECT_LE(computed->Seconds(), device->Now() + kClocks);
}

TEST_F(CudaDeviceTest, CopiesFromAGpuThatItReaches) {
  emulation::Gpu().devices = 2;
  const auto first = Open(), second = OpenCudaDevice({.ordinal = 1, .memory_bytes = 1 << 20}).value();
  for (int i = 0; i < 2; ++i) {  // the second time it is enabled
    EXPECT_EQ(first->ReachPeer(*second), absl::OkStatus());
    EXPECT_EQ(first->ReachPeer(*first), absl::OkStatus()) << "ranks that share a GPU";
  }
  const Memory source = second->Allocate(kBytes, "sent").value(), target = first->Allocate(kBytes, "received").value();
  std::vector<uint8_t> sent(kBytes), received(kBytes);
  std::iota(sent.begin(), sent.end(), uint8_t{0});
  const auto write = second->NewStream("write").value(), read = first->NewStream("read").value();
  ASSERT_TRUE(write->CopyToDevice(source.data(), sent.data(), kBytes).ok());
  ASSERT_TRUE(write->Synchronize().ok());
  const int64_t copies = emulation::Gpu().pinned_copies + emulation::Gpu().pageable_copies;
  ASSERT_EQ(read->CopyFromPeer(target.data(), source.data(), kBytes), absl::OkStatus());
  EXPECT_EQ(emulation::Gpu().pinned_copies + emulation::Gpu().pageable_copies, copies) << "none through the host";
  ASSERT_TRUE(read->CopyToHost(received.data(), target.data(), kBytes).ok());
  ASSERT_TRUE(read->Synchronize().ok());
  EXPECT_EQ(received, sent);
  EXPECT_FALSE(write->CopyFromPeer(source.data(), target.data(), kBytes).ok()) << "in this direction nobody asked";
}

TEST_F(CudaDeviceTest, GpusThatDoNotReachEachOtherSaySo) {
  emulation::Gpu().devices = 2;
  emulation::Gpu().reaches_peers = false;
  const auto first = Open(), second = OpenCudaDevice({.ordinal = 1, .memory_bytes = 1 << 20}).value();
  const absl::Status status = first->ReachPeer(*second);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(),
              HasSubstr("cuda:0 (model, compute capability 12.0) does not reach the memory of cuda:1"));
  EXPECT_THAT(status.message(), HasSubstr("nvidia-smi topo -p2p r"));
  EXPECT_FALSE(first->ReachPeer(*NewHostDevice({})).ok());
}

// A kernel's fault shows when it runs: everything after it fails with the reason.
// How many of two launches of the kernel on a stream may start early.
int64_t EarlyLaunches(Device& device, cuda::LaunchResult (*launch)(float* x, cuda::Stream stream)) {
  const Memory memory = device.Allocate(4, "a number").value();
  auto* const number = reinterpret_cast<float*>(memory.data());
  const auto stream = device.NewStream("kernels").value();
  const float one = 1;
  EXPECT_EQ(stream->CopyToDevice(memory.data(), reinterpret_cast<const uint8_t*>(&one), 4), absl::OkStatus());
  const int64_t before = emulation::Gpu().early_launches;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(stream->Launch({.name = "kernel",
                              .cost = {},
                              .run =
                                  [&](void* native) {
                                    return launch(number, static_cast<cuda::Stream>(native)).ok()
                                               ? absl::OkStatus()
                                               : absl::InternalError("not launched");
                                  }}),
              absl::OkStatus());
  }
  EXPECT_EQ(stream->Synchronize(), absl::OkStatus());
  return emulation::Gpu().early_launches - before;
}
cuda::LaunchResult Double(float* x, cuda::Stream stream) { return cuda::LaunchAdd(x, 1, x, stream); }

TEST_F(CudaDeviceTest, KernelsStartEarlyIfTheirCodeWaits) {
  const auto device = Open();
  EXPECT_EQ(EarlyLaunches(*device, Double), 2);
  emulation::Gpu().code = 89;  // a build for RTX 40 on a later GPU
  EXPECT_EQ(EarlyLaunches(*device, [](float* x, cuda::Stream stream) { return cuda::LaunchClamp(1, 1, x, stream); }),
            0);
}

TEST_F(CudaDeviceTest, KernelsDoNotStartEarlyWhereThatIsOff) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that has the variable from its start
  setenv("MOESTRO_PDL", "off", 1);
  EXPECT_EXIT(std::_Exit(static_cast<int>(EarlyLaunches(*Open(), Double))), testing::ExitedWithCode(0), "");
  unsetenv("MOESTRO_PDL");
}

TEST_F(CudaDeviceTest, AllSourcesOfKernelsAreLoaded) {
  const auto device = Open();
  ASSERT_TRUE(cuda::LoadModules().ok());
  constexpr size_t kProbe = 1;  // of the tests
  EXPECT_EQ(emulation::Gpu().known_kernels.size(), MOESTRO_KERNEL_SOURCES + kProbe);
}

TEST_F(CudaDeviceTest, AKernelThatFailsFailsWhatComesAfter) {
  const auto device = Open();
  const Memory memory = device->Allocate(8, "numbers").value();
  auto* const numbers = reinterpret_cast<float*>(memory.data());
  const auto stream = device->NewStream("compute").value();
  const auto event = device->NewEvent().value();
  const float zeros[2] = {};
  ASSERT_TRUE(stream->CopyToDevice(memory.data(), reinterpret_cast<const uint8_t*>(zeros), 8).ok());
  emulation::Gpu().failing_launch = 0;
  (void)stream->Launch(Add(numbers, numbers + 1));
  (void)stream->Record(*event);
  const absl::Status status = event->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("cudaErrorLaunchFailure"));
  EXPECT_THAT(status.message(), HasSubstr("until it is restarted"));
  EXPECT_FALSE(stream->Synchronize().ok());
  EXPECT_FALSE(device->Allocate(8, "more").ok());
}

// A kernel that leaves its memory causes such a fault.
TEST_F(CudaDeviceTest, AnAccessOutOfBoundsIsAFailure) {
  const auto device = Open();
  const Memory memory = device->Allocate(4, "a number").value();
  auto* const number = reinterpret_cast<float*>(memory.data());
  const auto stream = device->NewStream("compute").value();
  (void)stream->Launch(Add(number, number + 1));
  EXPECT_FALSE(stream->Synchronize().ok());
}

// Memory mapped as roles map the weights: shared, read-only, with a size only; nobody reads it.
class ReadOnlyMapping {
 public:
  explicit ReadOnlyMapping(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        data_(mmap(nullptr, bytes_, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~ReadOnlyMapping() { munmap(data_, bytes_); }
  const uint8_t* data() const { return static_cast<const uint8_t*>(data_); }
  // The kernel's current protection of all of its pieces.
  std::set<std::string> Permissions() const {
    const auto begin = reinterpret_cast<uintptr_t>(data_);
    std::set<std::string> permissions;
    const std::vector<MemoryMapping> mappings = ReadMappings(0).value();
    for (const MemoryMapping& mapping : mappings) {
      if (mapping.begin < begin + bytes_ && begin < mapping.end) permissions.insert(mapping.permissions);
    }
    return permissions;
  }

 private:
  const size_t bytes_;
  void* const data_;
};

// GPUs that register read-only mappings directly, and GPUs that refuse them.
class ReadOnlyMappingTest : public CudaDeviceTest, public testing::WithParamInterface<bool> {
 protected:
  ReadOnlyMappingTest() { emulation::Gpu().registers_read_only = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Gpus, ReadOnlyMappingTest, testing::Bool());

TEST_P(ReadOnlyMappingTest, IsRegisteredAndReadOnlyAgain) {
  const auto device = Open();
  const ReadOnlyMapping weights(4 * kBytes);
  const Memory memory = device->Allocate(4 * kBytes, "copy").value();
  const auto stream = device->NewStream("load").value();
  const Registration registration = device->Register(weights.data() + kBytes, 2 * kBytes, HostAccess::kReads).value();
  EXPECT_THAT(weights.Permissions(), testing::ElementsAre("r--s"));
  ASSERT_TRUE(stream->CopyToDevice(memory.data(), weights.data() + kBytes, 2 * kBytes).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(emulation::Gpu().pinned_copies, 1);
  EXPECT_EQ(device->Register(weights.data(), kBytes, HostAccess::kReadsAndWrites).status().code(),
            absl::StatusCode::kPermissionDenied)
      << "nobody has promised that it is not written";
}

TEST_P(ReadOnlyMappingTest, IsReadOnlyAgainWhereItIsRefused) {
  const auto device = Open();
  const ReadOnlyMapping weights(kBytes);
  emulation::Gpu().registrable_bytes = 0;
  const absl::Status refused = device->Register(weights.data(), kBytes, HostAccess::kReads).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("cudaErrorMemoryAllocation"));
  EXPECT_THAT(refused.message(), HasSubstr("8 bytes per 4096 on the GPU"));
  EXPECT_THAT(weights.Permissions(), testing::ElementsAre("r--s"));
}

// For example another user's segment, which is read-only.
TEST_P(ReadOnlyMappingTest, MayBeReadOnlyForGood) {
  const auto device = Open();
  const int file = open("/proc/self/exe", O_RDONLY);
  void* const mapped = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  close(file);
  const auto registered = device->Register(static_cast<const uint8_t*>(mapped), kBytes, HostAccess::kReads);
  if (GetParam()) {
    EXPECT_TRUE(registered.ok()) << registered.status();
  } else {
    EXPECT_EQ(registered.status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(registered.status().message(), HasSubstr("this mapping is read-only"));
  }
  munmap(mapped, kBytes);
}

// As the driver does if it reads the host's page tables; otherwise it would write.
TEST_F(CudaDeviceTest, CopiesDoNotWriteWhatIsRegisteredForReading) {
  emulation::Gpu().registers_read_only = true;
  const auto device = Open();
  const AlignedMemory host(kBytes);
  const Memory memory = device->Allocate(kBytes, "copy").value();
  const auto stream = device->NewStream("load").value();
  for (const HostAccess access : {HostAccess::kReads, HostAccess::kReadsAndWrites}) {
    const Registration registration = device->Register(host.data(), kBytes, access).value();
    EXPECT_TRUE(stream->CopyToDevice(memory.data(), host.data(), kBytes).ok());
    EXPECT_EQ(stream->CopyToHost(host.data(), memory.data(), kBytes).ok(), access == HostAccess::kReadsAndWrites);
    EXPECT_TRUE(stream->Synchronize().ok());
  }
}

TEST_F(CudaDeviceTest, KernelsReadWhatIsRegistered) {
  const AlignedMemory host(3 * kBytes);
  auto* const numbers = reinterpret_cast<float*>(host.data());
  numbers[0] = numbers[kBytes / sizeof(float)] = 3;
  for (const bool has_addresses : {true, false}) {
    emulation::Gpu().reads_host_addresses = has_addresses;
    const auto device = Open();
    const Registration first = device->Register(host.data(), kBytes, HostAccess::kReads).value();
    const Registration second = device->Register(host.data() + kBytes, kBytes, HostAccess::kReadsAndWrites).value();
    EXPECT_EQ(device->KernelsRead(host.data(), 2 * kBytes), has_addresses);
    EXPECT_FALSE(device->KernelsRead(host.data(), 2 * kBytes + 1));
    if (!has_addresses) continue;
    const float zero = 0;
    float sum = 0;
    const Memory memory = device->Allocate(sizeof(float), "sum").value();
    const auto stream = device->NewStream("compute").value();
    ASSERT_TRUE(stream->CopyToDevice(memory.data(), reinterpret_cast<const uint8_t*>(&zero), sizeof(float)).ok());
    for (const int64_t at : {int64_t{0}, kBytes}) {
      ASSERT_TRUE(
          stream->Launch(Add(reinterpret_cast<float*>(host.data() + at), reinterpret_cast<float*>(memory.data())))
              .ok());
    }
    ASSERT_TRUE(stream->CopyToHost(reinterpret_cast<uint8_t*>(&sum), memory.data(), sizeof(float)).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(sum, 6);
  }
}

TEST_F(CudaDeviceTest, KernelsWriteWhatIsRegisteredForIt) {
  const AlignedMemory host(kBytes);
  auto* const number = reinterpret_cast<float*>(host.data());
  *number = 3;
  const auto device = Open();
  const Registration registration = device->Register(host.data(), kBytes, HostAccess::kReadsAndWrites).value();
  const auto stream = device->NewStream("compute").value();
  ASSERT_TRUE(stream->Launch(Add(number, number)).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(*number, 6);
}

TEST_F(CudaDeviceTest, KernelsTouchNothingElseOfTheHosts) {
  const AlignedMemory host(2 * kBytes);
  auto* const inside = reinterpret_cast<float*>(host.data());
  auto* const outside = reinterpret_cast<float*>(host.data() + kBytes);
  for (const auto& [from, to] : {std::pair(outside, inside), std::pair(inside, outside), std::pair(inside, inside)}) {
    {
      emulation::Gpu().registers_read_only = to == inside;  // and does so with what copies only read
      const auto device = Open();
      const Registration registration = device->Register(host.data(), kBytes, HostAccess::kReads).value();
      const auto stream = device->NewStream("compute").value();
      ASSERT_TRUE(stream->Launch(Add(from, to)).ok());
      EXPECT_FALSE(stream->Synchronize().ok());
    }
    emulation::ResetGpu();
  }
}

// Page tables of memory to be registered are left to the driver, so that a prompt does not take their space.
TEST_F(CudaDeviceTest, LeavesRoomForPageTables) {
  constexpr int64_t kRegistered = int64_t{1} << 30, kTables = kRegistered / 512;
  const int64_t all = OpenCudaDevice({}).value()->memory_bytes();
  const auto device = OpenCudaDevice({.registered_bytes = kRegistered}).value();
  EXPECT_EQ(device->memory_bytes(), all - kTables);
  const ReadOnlyMapping weights(kRegistered);
  const Registration half = device->Register(weights.data(), kRegistered / 2, HostAccess::kReads).value();
  EXPECT_EQ(device->memory_free(), all - kTables) << "half of them are there, room for the others is left";
  EXPECT_THAT(OpenCudaDevice({.memory_bytes = all, .registered_bytes = 2 * kRegistered}).status().message(),
              HasSubstr("--device-memory"));
}

// A staging stream: in the model, the driver would copy pageable memory.
TEST_F(CudaDeviceTest, WhatIsNotRegisteredIsStaged) {
  const auto device = OpenCudaDevice({}).value();
  constexpr int64_t kCopied = 3 * kBytes + 7;
  const AlignedMemory host(RoundUp(kCopied, kBytes));
  std::iota(host.data(), host.data() + kCopied, uint8_t{0});
  const Memory memory = device->Allocate(kCopied, "copy").value();
  const auto stream =
      StagedStream::Create(*device, "load", {.buffers = 2, .buffer_bytes = kBytes, .threads = 2, .shortest_bytes = 1})
          .value();
  // The second page is registered.
  const Registration second = device->Register(host.data() + kBytes, kBytes, HostAccess::kReads).value();
  ASSERT_TRUE(stream->CopyToDevice(memory.data(), host.data(), kCopied).ok());
  std::vector<uint8_t> back(kCopied);
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(emulation::Gpu().pageable_copies, 0);
  ASSERT_TRUE(stream->CopyToHost(back.data(), memory.data(), kCopied).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_TRUE(std::equal(back.begin(), back.end(), host.data()));
  EXPECT_EQ(stream->staged_bytes(), kCopied - kBytes);
  EXPECT_EQ(stream->direct_bytes(), kBytes);
}

TEST_F(CudaDeviceTest, CopiesAcrossRegisteredSlices) {
  const auto device = Open();
  const AlignedMemory host(4 * kBytes);
  std::iota(host.data(), host.data() + host.size(), uint8_t{0});
  const Memory memory = device->Allocate(4 * kBytes, "copy").value();
  // The second and third page are registered separately, the first and last are not.
  Registration second = device->Register(host.data() + kBytes, kBytes, HostAccess::kReadsAndWrites).value();
  const Registration third = device->Register(host.data() + 2 * kBytes, kBytes, HostAccess::kReadsAndWrites).value();
  const auto stream = device->NewStream("load").value();
  const AlignedMemory back(4 * kBytes);
  const auto check = [&](int64_t begin, int64_t bytes, int64_t pinned, int64_t pageable) {
    SCOPED_TRACE(testing::Message() << bytes << " bytes from " << begin);
    const int64_t pinned_before = emulation::Gpu().pinned_copies, pageable_before = emulation::Gpu().pageable_copies;
    ASSERT_TRUE(stream->CopyToDevice(memory.data(), host.data() + begin, bytes).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(emulation::Gpu().pinned_copies - pinned_before, pinned);
    EXPECT_EQ(emulation::Gpu().pageable_copies - pageable_before, pageable);
    ASSERT_TRUE(stream->CopyToHost(back.data(), memory.data(), bytes).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_TRUE(std::equal(back.data(), back.data() + bytes, host.data() + begin));
  };
  check(0, 4 * kBytes, 2, 2);
  check(kBytes + 5, 100, 1, 0);
  check(kBytes - 1, 2, 1, 1);
  check(3 * kBytes - 1, 1, 1, 0);
  check(3 * kBytes, kBytes, 0, 1);
  second = Registration();
  check(0, 4 * kBytes, 1, 2);
}

// Registering takes long: only copies of the same memory wait for it.
TEST(RegisteredRangesTest, OtherCopiesGoOnWhileAPieceIsRegistered) {
  const auto* const memory = reinterpret_cast<const uint8_t*>(uintptr_t{1} << 40);
  RegisteredRanges ranges;
  const auto parts = [&](int64_t begin, int64_t bytes) {
    std::vector<int64_t> sizes;
    EXPECT_TRUE(ranges
                    .ForParts(memory + begin, bytes,
                              [&](int64_t, int64_t part) {
                                sizes.push_back(part);
                                return absl::OkStatus();
                              })
                    .ok());
    return sizes;
  };
  std::promise<void> begun, finish;
  std::thread registering([&] {
    EXPECT_TRUE(ranges
                    .Add(memory, kBytes, HostAccess::kReads,
                         [&] {
                           begun.set_value();
                           finish.get_future().wait();
                           return absl::OkStatus();
                         })
                    .ok());
  });
  begun.get_future().wait();
  EXPECT_THAT(parts(kBytes, 10), testing::ElementsAre(10));
  std::future<std::vector<int64_t>> across = std::async(std::launch::async, [&] { return parts(kBytes - 5, 15); });
  finish.set_value();
  EXPECT_THAT(across.get(), testing::ElementsAre(5, 10)) << "only once it is known what is registered";
  registering.join();
  ranges.Remove(memory, [&] { EXPECT_THAT(parts(kBytes, 10), testing::ElementsAre(10)); });
  EXPECT_THAT(parts(kBytes - 5, 15), testing::ElementsAre(15));
  EXPECT_FALSE(ranges.Add(memory, kBytes, HostAccess::kReads, [] { return absl::InternalError("refused"); }).ok());
  EXPECT_THAT(parts(kBytes - 5, 15), testing::ElementsAre(15));
}

TEST_F(CudaDeviceTest, DevicesOfOneNameAreOfOneKind) {
  emulation::Gpu().devices = 2;
  for (const bool alike : {true, false}) {
    emulation::Gpu().alike = alike;
    const std::unique_ptr<Device> devices[] = {Open(), OpenCudaDevice({.ordinal = 1, .memory_bytes = 1 << 20}).value()};
    EXPECT_NE(devices[0]->name(), devices[1]->name());
    EXPECT_EQ(devices[0]->kind() == devices[1]->kind(), alike);
  }
}

// Memory registered by one device is registered for all, until none needs it any more; CUDA registers a page only once.
TEST_F(CudaDeviceTest, DevicesShareWhatIsRegistered) {
  emulation::Gpu().devices = 2;
  const std::unique_ptr<Device> devices[] = {Open(), OpenCudaDevice({.ordinal = 1, .memory_bytes = 1 << 20}).value()};
  const AlignedMemory host(2 * kBytes);  // the first page is registered
  const auto expect_copies = [&](int64_t pinned) {
    for (const auto& device : devices) {
      const int64_t before = emulation::Gpu().pinned_copies;
      const Memory memory = device->Allocate(2 * kBytes, "copy").value();
      const auto stream = device->NewStream("load").value();
      ASSERT_TRUE(stream->CopyToDevice(memory.data(), host.data(), 2 * kBytes).ok());
      ASSERT_TRUE(stream->Synchronize().ok());
      EXPECT_EQ(emulation::Gpu().pinned_copies - before, pinned);
    }
  };
  Registration first = devices[0]->Register(host.data(), kBytes, HostAccess::kReads).value();
  expect_copies(1);
  Registration second = devices[1]->Register(host.data(), kBytes, HostAccess::kReads).value();
  EXPECT_EQ(emulation::Gpu().registered_bytes, kBytes);
  first = Registration();
  expect_copies(1);
  EXPECT_FALSE(devices[0]->Register(host.data(), kBytes, HostAccess::kReadsAndWrites).ok()) << "it is read-only";
  second = Registration();
  EXPECT_EQ(emulation::Gpu().registered_bytes, 0);
  expect_copies(0);
}

TEST_P(ReadOnlyMappingTest, PinningStopsWhereTheSystemRefuses) {
  const auto device = Open();
  constexpr int64_t kSlice = Pinning::kSliceBytes;
  const ReadOnlyMapping weights(4 * kSlice);
  const auto pin = [&](int64_t bytes, int64_t limit) {
    std::promise<std::pair<int64_t, absl::Status>> told;
    const Pinning pinning(*device, weights.data(), bytes, {.limit_bytes = limit},
                          [&](int64_t pinned, const absl::Status& status) {
                            told.set_value({pinned, status});
                          });
    auto result = told.get_future().get();
    EXPECT_EQ(emulation::Gpu().registered_bytes, result.first);
    EXPECT_THAT(weights.Permissions(), testing::ElementsAre("r--s"));
    return result;
  };
  EXPECT_EQ(pin(2 * kSlice + 5, 0), std::pair(2 * kSlice + 5, absl::OkStatus()));
  EXPECT_EQ(emulation::Gpu().registered_bytes, 0);
  EXPECT_EQ(pin(2 * kSlice + 5, 100), std::pair(int64_t{100}, absl::OkStatus()));
  emulation::Gpu().registrable_bytes = 2 * kSlice;
  const auto [pinned, status] = pin(4 * kSlice, 0);
  EXPECT_EQ(pinned, 2 * kSlice);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(emulation::Gpu().registered_bytes, 0);
}

}  // namespace
}  // namespace moestro::device
