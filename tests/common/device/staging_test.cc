#include "common/device/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/device/host/host_device.h"
#include "tests/common/device/fake_clock.h"
#include "tests/support/faulty_device.h"

namespace moestro::device {
namespace {

constexpr int64_t kBuffer = 64 << 10;
constexpr StagingOptions kOptions{.buffers = 2, .buffer_bytes = kBuffer, .threads = 3, .shortest_bytes = 1024};

// The host, with memory from `registered_from` on counted as registered.
class RegisteringDevice final : public FaultyDevice {
 public:
  RegisteringDevice(Device& device, const uint8_t* registered_from)
      : FaultyDevice(device), registered_from_(registered_from) {}

  HostPart PartAt(const uint8_t* data, int64_t bytes) const override {
    if (data >= registered_from_) return {bytes, true};
    return {std::min<int64_t>(bytes, registered_from_ - data), false};
  }
  absl::StatusOr<Registration> Register(const uint8_t* data, int64_t bytes, HostAccess access) override {
    ++registrations_;
    return FaultyDevice::Register(data, bytes, access);
  }
  void set_registered_from(const uint8_t* from) { registered_from_ = from; }
  int registrations() const { return registrations_; }

 private:
  const uint8_t* registered_from_;
  int registrations_ = 0;
};

class StagedStreamTest : public testing::Test {
 protected:
  StagedStreamTest() : from_(kBytes) {
    for (int64_t i = 0; i < kBytes; ++i) from_[static_cast<size_t>(i)] = static_cast<uint8_t>(i * 31 >> 3);
  }
  // Copies all of it in one call, and returns the data that arrived.
  std::vector<uint8_t> Copied(Device& device, StagedStream& stream) {
    const Memory memory = device.Allocate(kBytes, "a copy").value();
    std::fill_n(memory.data(), kBytes, uint8_t{0});
    const absl::Status copied = stream.CopyToDevice(memory.data(), from_.data(), kBytes);
    EXPECT_TRUE(copied.ok()) << copied;
    EXPECT_TRUE(stream.Synchronize().ok());
    return {memory.data(), memory.data() + kBytes};
  }

  static constexpr int64_t kBytes = 5 * kBuffer + 4567;  // more than the ring holds
  const FakeClock clock_;
  const std::unique_ptr<Device> host_ = NewHostDevice({.clock = &clock_});
  std::vector<uint8_t> from_;
};

TEST_F(StagedStreamTest, WhatIsNotRegisteredGoesThroughTheRing) {
  RegisteringDevice device(*host_, from_.data() + kBytes);
  const auto stream = StagedStream::Create(device, "load", kOptions).value();
  EXPECT_EQ(device.registrations(), 0) << "nothing needs it yet";
  EXPECT_EQ(Copied(device, *stream), from_);
  EXPECT_EQ(Copied(device, *stream), from_);
  EXPECT_EQ(device.registrations(), kOptions.buffers) << "and never more";
  EXPECT_EQ(stream->staged_bytes(), 2 * kBytes);
  EXPECT_EQ(stream->direct_bytes(), 0);
  EXPECT_EQ(stream->pageable_bytes(), 0);
}

TEST_F(StagedStreamTest, WhatIsRegisteredMeanwhileIsCopiedAsItLies) {
  RegisteringDevice device(*host_, from_.data() + kBytes);
  const auto stream = StagedStream::Create(device, "load", kOptions).value();
  constexpr int64_t kUnregistered = kBuffer + 100;
  device.set_registered_from(from_.data() + kUnregistered);
  EXPECT_EQ(Copied(device, *stream), from_);
  EXPECT_EQ(stream->staged_bytes(), kUnregistered);
  EXPECT_EQ(stream->direct_bytes(), kBytes - kUnregistered);
  device.set_registered_from(from_.data());
  EXPECT_EQ(Copied(device, *stream), from_);
  EXPECT_EQ(stream->staged_bytes(), kUnregistered);
}

TEST_F(StagedStreamTest, ShortCopiesAreLeftToTheDevice) {
  RegisteringDevice device(*host_, from_.data() + kBytes);
  const auto stream = StagedStream::Create(device, "load", kOptions).value();
  const Memory memory = device.Allocate(kBytes, "a copy").value();
  ASSERT_TRUE(stream->CopyToDevice(memory.data(), from_.data(), kOptions.shortest_bytes - 1).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(device.registrations(), 0);
  EXPECT_EQ(stream->direct_bytes(), kOptions.shortest_bytes - 1);
}

// The device may still be busy with other work: staged memory need not live until it is copied.
TEST_F(StagedStreamTest, StagedMemoryMayChangeAtOnce) {
  RegisteringDevice device(*host_, from_.data() + kBytes);
  const auto stream = StagedStream::Create(device, "load", kOptions).value();
  const Memory memory = device.Allocate(kBuffer, "a copy").value();
  const std::vector<uint8_t> expected(from_.begin(), from_.begin() + kBuffer);
  ASSERT_TRUE(stream->CopyToDevice(memory.data(), from_.data(), kBuffer).ok());
  std::ranges::fill(from_, uint8_t{0xee});
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory.data()));
}

TEST_F(StagedStreamTest, WithoutPinnedBuffersTheDeviceCopiesAndTheyAreTriedAgainLater) {
  RegisteringDevice device(*host_, from_.data() + kBytes);
  bool refuses = true;
  device.set_fault([&](const std::string& operation) {
    return refuses && operation == "register" ? absl::ResourceExhaustedError("no memory") : absl::OkStatus();
  });
  const auto stream = StagedStream::Create(device, "load", kOptions).value();
  EXPECT_EQ(Copied(device, *stream), from_);
  EXPECT_EQ(Copied(device, *stream), from_);
  EXPECT_EQ(device.registrations(), 1) << "not at every copy";
  EXPECT_EQ(stream->pageable_bytes(), 2 * kBytes);
  refuses = false;
  clock_.SleepUntil(clock_.Now() + 60);
  EXPECT_EQ(Copied(device, *stream), from_);
  EXPECT_EQ(stream->staged_bytes(), kBytes);
  EXPECT_EQ(stream->pageable_bytes(), 2 * kBytes);
}

// A failed stream returns its error when a buffer is needed again, instead of filling it.
TEST_F(StagedStreamTest, AFailureOfTheStreamIsTold) {
  RegisteringDevice device(*host_, from_.data() + kBytes);
  const auto stream = StagedStream::Create(device, "load", kOptions).value();
  const Memory memory = device.Allocate(kBytes, "a copy").value();
  const Kernel fails{.name = "fails", .cost = {}, .run = [](void*) { return absl::DataLossError("lost"); }};
  ASSERT_TRUE(stream->Launch(fails).ok());
  EXPECT_TRUE(absl::IsDataLoss(stream->CopyToDevice(memory.data(), from_.data(), kBytes)));
  EXPECT_TRUE(absl::IsDataLoss(stream->Synchronize()));
}

}  // namespace
}  // namespace moestro::device
