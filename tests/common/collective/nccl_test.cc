#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "common/collective/nccl/nccl_communicator.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/host/host_device.h"

namespace moestro::collective {
namespace {

// No CUDA device is current: NCCL reports it, nothing hangs or dies.
TEST(Nccl, SaysWhyItCannotBeUsed) {
  const HeapRegion memory(1, 64);
  const std::unique_ptr<device::Device> host = device::NewHostDevice({});
  const absl::StatusOr<NcclId> id = NewNcclId();
  if (!id.ok()) {
    EXPECT_EQ(id.status().code(), absl::StatusCode::kUnavailable) << id.status();
    return;
  }
  const auto communicator = JoinNccl(*id, memory.region(), 0, *host);
  if (communicator.ok()) GTEST_SKIP() << "there is a CUDA device";
  EXPECT_EQ(communicator.status().code(), absl::StatusCode::kUnavailable) << communicator.status();
}

// A group of one: NCCL starts on this GPU, and every operation completes.
TEST(Nccl, OneRank) {
  const auto gpu = device::OpenCudaDevice({.memory_bytes = 1 << 20});
  if (!gpu.ok()) GTEST_SKIP() << gpu.status();
  const auto stream = (*gpu)->NewStream("exchange").value();
  const device::Memory memory = (*gpu)->Allocate(64, "blocks").value();
  const HeapRegion region(1, 64);
  const absl::StatusOr<NcclId> id = NewNcclId();
  ASSERT_TRUE(id.ok()) << id.status();
  const auto communicator = JoinNccl(*id, region.region(), 0, **gpu);
  ASSERT_TRUE(communicator.ok()) << communicator.status();
  const std::atomic<bool> stopped = false;
  const Call call{*stream, stopped};
  const std::array own{SendBlock{memory.data(), 64}};
  const std::array from{ReceiveBlock{memory.data(), 64}};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ((*communicator)->Barrier(call), absl::OkStatus());
    EXPECT_EQ((*communicator)->AllGather(call, own[0], from), absl::OkStatus());
    EXPECT_EQ((*communicator)->AllToAll(call, own, from), absl::OkStatus());
    EXPECT_EQ((*communicator)->Ring(call, own[0], from[0]), absl::OkStatus());
  }
  EXPECT_EQ((*communicator)->counters(Operation::kAllGather).calls, 2);
}

}  // namespace
}  // namespace moestro::collective
