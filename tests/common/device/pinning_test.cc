#include "common/device/pinning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <set>
#include <tuple>
#include <utility>

#include "common/device/host/host_device.h"
#include "tests/support/faulty_device.h"

namespace moestro::device {
namespace {

constexpr int64_t kSlice = Pinning::kSliceBytes;
const uint8_t* const kMemory = reinterpret_cast<const uint8_t*>(int64_t{1} << 40);  // nobody reads there

using Range = std::pair<int64_t, int64_t>;  // offset, bytes

// Keeps count of what is registered, and refuses to have more than `limit` bytes of it.
class PinningDevice final : public FaultyDevice {
 public:
  PinningDevice(Device& device, int64_t limit) : FaultyDevice(device), limit_(limit) {}

  absl::StatusOr<Registration> Register(const uint8_t* data, int64_t bytes, HostAccess access) override {
    EXPECT_EQ(access, HostAccess::kReadsAndWrites);
    int64_t registered = bytes;
    for (const Range& range : ranges_) registered += range.second;
    if (registered > limit_) return absl::ResourceExhaustedError("memlock");
    const Range range(data - kMemory, bytes);
    ranges_.insert(range);
    return Registration([this, range] { ranges_.erase(range); });
  }
  const std::set<Range>& ranges() const { return ranges_; }

 private:
  const int64_t limit_;
  std::set<Range> ranges_;
};

class PinningTest : public testing::Test {
 protected:
  // What is registered at the end, when `wanted` of 2.5 slices are to be.
  std::set<Range> Pinned(PinningDevice& device, int64_t wanted = 0) {
    std::promise<std::pair<int64_t, absl::Status>> done;
    const Pinning pinning(device, kMemory, kBytes, {.access = HostAccess::kReadsAndWrites, .limit_bytes = wanted},
                          [&](int64_t pinned, const absl::Status& status) {
                            done.set_value({pinned, status});
                          });
    std::tie(bytes_, status_) = done.get_future().get();
    return device.ranges();
  }

  static constexpr int64_t kBytes = 2 * kSlice + kSlice / 2;
  const std::unique_ptr<Device> host_ = NewHostDevice({});
  int64_t bytes_ = 0;
  absl::Status status_;
};

TEST_F(PinningTest, AllInSlicesUntilTheyGo) {
  PinningDevice device(*host_, kBytes);
  EXPECT_THAT(Pinned(device),
              testing::ElementsAre(Range(0, kSlice), Range(kSlice, kSlice), Range(2 * kSlice, kSlice / 2)));
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(bytes_, kBytes);
  EXPECT_TRUE(device.ranges().empty());
}

TEST_F(PinningTest, WhatIsRefusedStaysUnpinnedAndTheRestIsKept) {
  PinningDevice device(*host_, 2 * kSlice);
  EXPECT_THAT(Pinned(device), testing::ElementsAre(Range(0, kSlice), Range(kSlice, kSlice)));
  EXPECT_TRUE(absl::IsResourceExhausted(status_)) << status_;
  EXPECT_EQ(bytes_, 2 * kSlice);
  EXPECT_TRUE(device.ranges().empty());
}

TEST_F(PinningTest, NothingCanBePinned) {
  PinningDevice device(*host_, 0);
  EXPECT_TRUE(Pinned(device).empty());
  EXPECT_EQ(bytes_, 0);
}

TEST_F(PinningTest, NoMoreThanWanted) {
  PinningDevice device(*host_, kBytes);
  EXPECT_THAT(Pinned(device, kSlice + 4096), testing::ElementsAre(Range(0, kSlice), Range(kSlice, 4096)));
  EXPECT_EQ(bytes_, kSlice + 4096);
}

}  // namespace
}  // namespace moestro::device
