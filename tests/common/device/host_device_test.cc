#include "common/device/host/host_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/common/device/fake_clock.h"

namespace moestro::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Kernel Call(std::function<absl::Status()> run) {
  return {.name = "call", .cost = {}, .run = [run = std::move(run)](void*) { return run(); }};
}

class HostDeviceTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = NewHostDevice({.memory_bytes = 1 << 20});
  std::unique_ptr<Stream> NewStream() { return device_->NewStream("test").value(); }
  std::unique_ptr<Event> NewEvent() { return device_->NewEvent().value(); }
};

TEST_F(HostDeviceTest, MemoryIsBoundedAndComesBack) {
  auto first = device_->Allocate(1 << 19, "first");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first->data()) % 4096, 0u);
  EXPECT_EQ(device_->memory_used(), 1 << 19);
  const auto refused = device_->Allocate((1 << 19) + 1, "expert ring");
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(refused.status().message(), HasSubstr("expert ring: 524289 bytes of device memory wanted, 524288 of"));
  first = Memory();
  EXPECT_EQ(device_->memory_used(), 0);
  EXPECT_TRUE(device_->Allocate(1 << 20, "all").ok());
}

TEST_F(HostDeviceTest, CopiesBothWaysInOrder) {
  std::vector<uint8_t> from(1000);
  std::iota(from.begin(), from.end(), 0);
  std::vector<uint8_t> to(1000);
  const Memory memory = *device_->Allocate(1000, "test");
  const auto stream = NewStream();
  ASSERT_TRUE(stream->CopyToDevice(memory.data(), from.data(), 1000).ok());
  ASSERT_TRUE(stream
                  ->Launch(Call([&] {
                    memory.data()[0] = 42;
                    return absl::OkStatus();
                  }))
                  .ok());
  ASSERT_TRUE(stream->CopyToHost(to.data(), memory.data(), 1000).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  from[0] = 42;
  EXPECT_EQ(to, from);
}

TEST_F(HostDeviceTest, StreamsWaitForEachOthersEvents) {
  const auto loads = NewStream();
  const auto computes = NewStream();
  const auto loaded = NewEvent();
  std::atomic<bool> go = false;
  std::vector<int> order;  // the streams write it in turn
  ASSERT_TRUE(loads
                  ->Launch(Call([&] {
                    while (!go) std::this_thread::yield();
                    order.push_back(1);
                    return absl::OkStatus();
                  }))
                  .ok());
  ASSERT_TRUE(loads->Record(*loaded).ok());
  ASSERT_TRUE(computes->WaitFor(*loaded).ok());
  ASSERT_TRUE(computes
                  ->Launch(Call([&] {
                    order.push_back(2);
                    return absl::OkStatus();
                  }))
                  .ok());
  go = true;
  ASSERT_TRUE(computes->Synchronize().ok());
  EXPECT_THAT(order, ElementsAre(1, 2));
  EXPECT_TRUE(loaded->Wait().ok());
  EXPECT_LE(loaded->Seconds(), device_->Now());
}

TEST_F(HostDeviceTest, AWaitMeansTheLastRecordBeforeIt) {
  const auto a = NewStream();
  const auto b = NewStream();
  const auto event = NewEvent();
  ASSERT_TRUE(a->Record(*event).ok());
  ASSERT_TRUE(b->WaitFor(*event).ok());
  std::atomic<bool> go = false;
  ASSERT_TRUE(a->Launch(Call([&] {
                 while (!go) std::this_thread::yield();
                 return absl::OkStatus();
               })).ok());
  ASSERT_TRUE(a->Record(*event).ok());
  EXPECT_TRUE(b->Synchronize().ok());  // would hang if it waited for the second one
  go = true;
  EXPECT_TRUE(event->Wait().ok());
}

TEST_F(HostDeviceTest, AFailureSkipsTheRestAndReachesWhoeverWaits) {
  const auto a = NewStream();
  const auto b = NewStream();
  const auto event = NewEvent();
  ASSERT_TRUE(a->Launch(Call([] { return absl::InternalError("broken"); })).ok());
  bool ran = false;
  ASSERT_TRUE(a->Launch(Call([&] {
                 ran = true;
                 return absl::OkStatus();
               })).ok());
  ASSERT_TRUE(a->Record(*event).ok());
  ASSERT_TRUE(b->WaitFor(*event).ok());
  for (const absl::Status& status : {event->Wait(), a->Synchronize(), b->Synchronize()}) {
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("call: broken"));
  }
  EXPECT_FALSE(ran);
}

TEST(HostDevice, CopiesShareTheBandwidthOfTheirDirection) {
  const FakeClock clock;
  const auto device = NewHostDevice({.memory_bytes = 1 << 20, .copy_bytes_per_second = 1000, .clock = &clock});
  const Memory memory = *device->Allocate(4000, "test");
  std::vector<uint8_t> host(4000);
  const auto a = device->NewStream("a").value();
  const auto b = device->NewStream("b").value();
  ASSERT_TRUE(a->CopyToDevice(memory.data(), host.data(), 2000).ok());
  ASSERT_TRUE(b->CopyToDevice(memory.data() + 2000, host.data() + 2000, 1000).ok());
  ASSERT_TRUE(a->Synchronize().ok());
  ASSERT_TRUE(b->Synchronize().ok());
  EXPECT_NEAR(clock.Now(), 103, 0.01);
}

}  // namespace
}  // namespace moestro::device
