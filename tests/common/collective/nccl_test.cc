#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/collective/nccl/nccl_communicator.h"
#include "common/device/host/host_device.h"

namespace moestro::collective {
namespace {

// No CUDA device is current: NCCL says so, nothing hangs or dies.
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

}  // namespace
}  // namespace moestro::collective
