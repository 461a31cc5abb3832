#include "services/router/text/text_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace moestro::router {
namespace {

absl::Status Here() { return absl::OkStatus(); }

// Whoever has to wait asks its check.
absl::Status Gone() { return absl::CancelledError("gone"); }

TEST(TextTurnsTest, AsManyAsThereAre) {
  TextTurns turns(2);
  std::optional<TextTurns::Turn> first = *turns.Take(Gone);
  const TextTurns::Turn second = *turns.Take(Gone);
  EXPECT_TRUE(absl::IsCancelled(turns.Take(Gone).status()));
  first.reset();
  EXPECT_TRUE(turns.Take(Gone).ok());
}

TEST(TextTurnsTest, WhoLeavesTheLineHoldsUpNobody) {
  TextTurns turns(1);
  std::optional<TextTurns::Turn> held = *turns.Take(Here);
  std::atomic<bool> here = true;
  std::atomic<int> looks = 0;
  std::thread leaves([&] {
    const auto check = [&] { return ++looks, here ? absl::OkStatus() : absl::CancelledError("gone"); };
    EXPECT_TRUE(absl::IsCancelled(turns.Take(check).status()));
  });
  while (looks == 0) std::this_thread::yield();
  here = false;
  leaves.join();
  held.reset();
  EXPECT_TRUE(turns.Take(Gone).ok());
}

TEST(TextTurnsTest, FirstComeFirstServedAndNeverTooMany) {
  constexpr int kThreads = 8;
  TextTurns turns(1);
  std::optional<TextTurns::Turn> held = *turns.Take(Here);
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
      const TextTurns::Turn turn = *turns.Take(check);
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

TEST(TextTurnsTest, AMachineHasOneAtLeast) { EXPECT_GE(TextTurns::OfMachine(), 1); }

}  // namespace
}  // namespace moestro::router
