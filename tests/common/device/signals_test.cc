#include "common/device/signals.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "common/device/sim/sim_device.h"

namespace moestro::device {
namespace {

constexpr int64_t kMost = 2000;
const auto kOnce = std::array<int64_t, 1>{1};

// Two threads that wait for each other at every count, and a third that waits for every hundredth.
TEST(RunSignalsTest, TimePassesWithEveryCount) {
  const auto device = NewSimDevice({});
  RunSignals signals(*device, std::array{kMost, kMost});
  std::thread other([&] {
    for (int64_t i = 0; i < kMost; ++i) {
      ASSERT_TRUE(signals.WaitFor(0, i).ok());
      ASSERT_EQ(device->Now(), static_cast<double>(2 * i + 1));
      device->AdvanceTo(static_cast<double>(2 * i + 2));
      signals.Add(1);
    }
  });
  std::thread rare([&] {
    for (int64_t i = 99; i < kMost; i += 100) {
      ASSERT_TRUE(signals.WaitFor(1, i).ok());
      ASSERT_EQ(device->Now(), static_cast<double>(2 * i + 2));
    }
  });
  for (int64_t i = 0; i < kMost; ++i) {
    device->AdvanceTo(static_cast<double>(2 * i + 1));
    signals.Add(0);
    ASSERT_TRUE(signals.WaitFor(1, i).ok());
    ASSERT_EQ(device->Now(), static_cast<double>(2 * i + 2));
  }
  other.join();
  rare.join();
  EXPECT_EQ(signals.count(0), kMost);
  EXPECT_EQ(signals.count(1), kMost);
}

TEST(RunSignalsTest, AFailureEndsEveryWaitAndTheFirstCounts) {
  const auto device = NewSimDevice({});
  RunSignals signals(*device, kOnce);
  EXPECT_TRUE(signals.status().ok());
  EXPECT_FALSE(signals.stopped());
  absl::Status seen;
  std::thread waiting([&] { seen = signals.WaitFor(0, 0); });
  signals.Fail(absl::DataLossError("first"));
  signals.Fail(absl::InternalError("second"));
  waiting.join();
  EXPECT_EQ(seen, absl::DataLossError("first"));
  EXPECT_TRUE(signals.stopped());
  EXPECT_EQ(signals.status(), absl::DataLossError("first"));
  signals.Add(0);
  EXPECT_EQ(signals.WaitFor(0, 0), absl::DataLossError("first"));  // although the count is there
}

TEST(RunSignalsTest, WhatThePollSaysIsTheRunsFailure) {
  const auto device = NewSimDevice({});
  RunSignals signals(*device, kOnce);
  const absl::Status seen = signals.WaitFor(0, 0, [] { return absl::CancelledError("by the user"); });
  EXPECT_EQ(seen, absl::CancelledError("by the user"));
  EXPECT_EQ(signals.status(), seen);
}

}  // namespace
}  // namespace moestro::device
