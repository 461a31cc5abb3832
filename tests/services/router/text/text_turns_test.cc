#include "services/router/text/text_turns.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace moestro::router {
namespace {

absl::Status Connected() { return absl::OkStatus(); }

// Whoever has to wait asks its check.
absl::Status Gone() { return absl::CancelledError("gone"); }

TEST(TextTurnsTest, AsManyAsThereAre) {
  TextTurns turns(2);
  std::optional<TextTurns::Turn> first = *turns.Take(0, Gone);
  const TextTurns::Turn second = *turns.Take(0, Gone);
  EXPECT_TRUE(absl::IsCancelled(turns.Take(0, Gone).status()));
  first.reset();
  EXPECT_TRUE(turns.Take(0, Gone).ok());
}

TEST(TextTurnsTest, WhoLeavesTheLineHoldsUpNobody) {
  TextTurns turns(1);
  std::optional<TextTurns::Turn> held = *turns.Take(0, Connected);
  std::atomic<bool> here = true;
  std::atomic<int> looks = 0;
  std::thread leaves([&] {
    const auto check = [&] { return ++looks, here ? absl::OkStatus() : absl::CancelledError("gone"); };
    EXPECT_TRUE(absl::IsCancelled(turns.Take(0, check).status()));
  });
  while (looks == 0) std::this_thread::yield();
  here = false;
  leaves.join();
  held.reset();
  EXPECT_TRUE(turns.Take(0, Gone).ok());
}

TEST(TextTurnsTest, FirstComeFirstServedAndNeverTooMany) {
  constexpr int kThreads = 8;
  TextTurns turns(1);
  std::optional<TextTurns::Turn> held = *turns.Take(0, Connected);
  std::mutex mutex;
  std::vector<int> order;
  std::atomic<int> inside = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    std::atomic<bool> waits = false;
    threads.emplace_back([&, i, &in_line = waits] {
      bool told = false;
      const auto check = [&] {
        if (!told) in_line = told = true;
        return absl::OkStatus();
      };
      const TextTurns::Turn turn = *turns.Take(0, check);
      EXPECT_EQ(++inside, 1);
      {
        const std::lock_guard lock(mutex);
        order.push_back(i);
      }
      --inside;
    });
    while (!waits) std::this_thread::yield();
  }
  held.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order.size(), size_t{kThreads});
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(TextTurnsTest, SmallRequestsDoNotWaitBehindLargeOnes) {
  constexpr size_t kLarge = TextTurns::kMostSmallBytes + 1;
  TextTurns turns(1);
  const TextTurns::Turn large = *turns.Take(kLarge, Connected);
  EXPECT_TRUE(absl::IsCancelled(turns.Take(kLarge, Gone).status()));
  std::optional<TextTurns::Turn> small = *turns.Take(TextTurns::kMostSmallBytes, Gone);
  EXPECT_TRUE(absl::IsCancelled(turns.Take(1, Gone).status()));
  small.reset();
  EXPECT_TRUE(turns.Take(1, Gone).ok());
}

TEST(TextTurnsTest, WorkOnALargeRequestIsNotRealTime) {
  TextTurns turns(1);
  std::thread([&] {
    const sched_param first{.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_RR, &first) != 0) GTEST_SKIP() << "needs CAP_SYS_NICE or RLIMIT_RTPRIO";
    {
      const TextTurns::Turn small = *turns.Take(1, Gone);
      EXPECT_EQ(sched_getscheduler(0), SCHED_RR);
    }
    {
      const TextTurns::Turn large = *turns.Take(TextTurns::kMostSmallBytes + 1, Gone);
      EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
    }
    EXPECT_EQ(sched_getscheduler(0), SCHED_RR);
    sched_param now{};
    sched_getparam(0, &now);
    EXPECT_EQ(now.sched_priority, 1);
  }).join();
}

TEST(TextTurnsTest, AMachineHasOneAtLeast) { EXPECT_GE(TextTurns::OfMachine(), 1); }

}  // namespace
}  // namespace moestro::router
