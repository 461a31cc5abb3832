#include "common/device/pinning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/device/host/host_device.h"
#include "tests/common/device/fake_clock.h"
#include "tests/support/faulty_device.h"

namespace moestro::device {
namespace {

constexpr int64_t kSlice = Pinning::kSliceBytes;
const uint8_t* const kMemory = reinterpret_cast<const uint8_t*>(int64_t{1} << 40);  // nobody reads there

using Range = std::pair<int64_t, int64_t>;  // offset, bytes

// Tracks what is registered, and refuses more than `limit` bytes.
class PinningDevice final : public FaultyDevice {
 public:
  PinningDevice(Device& device, int64_t limit) : FaultyDevice(device), limit_(limit) {}

  absl::StatusOr<Registration> Register(const uint8_t* data, int64_t bytes, HostAccess access) override {
    EXPECT_EQ(access, HostAccess::kReadsAndWrites);
    int64_t registered = bytes;
    for (const Range& range : ranges_) registered += range.second;
    const bool refused = registered > limit_;
    ++tries_;  // whoever sees it may change the limit
    if (refused) return absl::ResourceExhaustedError("memlock");
    const Range range(data - kMemory, bytes);
    ranges_.insert(range);
    return Registration([this, range] { ranges_.erase(range); });
  }
  const std::set<Range>& ranges() const { return ranges_; }
  void set_limit(int64_t limit) { limit_ = limit; }
  int64_t tries() const { return tries_; }

 private:
  std::atomic<int64_t> limit_;
  std::atomic<int64_t> tries_ = 0;
  std::set<Range> ranges_;
};

class PinningTest : public testing::Test {
 protected:
  // The final registration if `wanted` of 2.5 slices are to be registered.
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

// Memory for a slice may become free later. Each further refusal of it doubles the time to the next try.
TEST_F(PinningTest, WhatIsRefusedIsTriedAgain) {
  const FakeClock clock;
  const auto host = NewHostDevice({.clock = &clock});
  PinningDevice device(*host, kSlice);
  std::vector<std::pair<int64_t, absl::StatusCode>> told;
  std::promise<void> refused, done;
  {
    Pinning pinning(device, kMemory, kBytes, {.access = HostAccess::kReadsAndWrites},
                    [&](int64_t pinned, const absl::Status& status) {
                      told.emplace_back(pinned, status.code());
                      (status.ok() ? done : refused).set_value();
                    });
    refused.get_future().wait();
    // Lets time pass until this many tries have happened, and returns the duration.
    const auto seconds_to = [&](int64_t tries) {
      const double begin = clock.Now();
      while (device.tries() < tries) {
        clock.SleepUntil(clock.Now() + Pinning::kFirstRetrySeconds / 8);
        pinning.Retry();
        std::this_thread::yield();
      }
      return clock.Now() - begin;
    };
    for (int i = 0; i < 100; ++i) pinning.Retry();
    EXPECT_EQ(device.tries(), 2) << "not at once";
    EXPECT_GE(seconds_to(3), Pinning::kFirstRetrySeconds);
    EXPECT_GT(seconds_to(4), Pinning::kFirstRetrySeconds) << "it is twice as long";
    device.set_limit(kBytes);
    EXPECT_GT(seconds_to(5), 2 * Pinning::kFirstRetrySeconds);
    done.get_future().wait();
    EXPECT_EQ(device.ranges().size(), 3u);
    pinning.Retry();  // nothing is left to do
  }
  EXPECT_THAT(told, testing::ElementsAre(std::pair(kSlice, absl::StatusCode::kResourceExhausted),
                                         std::pair(kBytes, absl::StatusCode::kOk)))
      << "the same refusal is told once";
  EXPECT_TRUE(device.ranges().empty());
}

TEST_F(PinningTest, EndsWhileItWaitsToTryAgain) {
  PinningDevice device(*host_, 0);
  std::promise<void> refused;
  const Pinning pinning(device, kMemory, kBytes, {.access = HostAccess::kReadsAndWrites},
                        [&](int64_t, const absl::Status&) { refused.set_value(); });
  refused.get_future().wait();
}

}  // namespace
}  // namespace moestro::device
