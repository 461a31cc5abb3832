#include "services/prefill/turn_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace moestro::prefill {
namespace {

absl::Status NeverLeaves(bool) { return absl::OkStatus(); }

TEST(TurnQueueTest, FirstComeFirstServed) {
  TurnQueue queue;
  std::optional<TurnQueue::Turn> first(*queue.Wait(8, NeverLeaves));
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto turn = queue.Wait(8, NeverLeaves);
      ASSERT_TRUE(turn.ok());
      order.push_back(i);  // guarded by the turn itself
    });
    while (queue.waiting() < static_cast<size_t>(i) + 1) std::this_thread::yield();
  }
  EXPECT_TRUE(order.empty());
  first.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(queue.waiting(), 0u);
}

TEST(TurnQueueTest, TryTakesATurnOnlyWhileNobodyHasIt) {
  TurnQueue queue;
  {
    const std::optional<TurnQueue::Turn> tried = queue.Try();
    EXPECT_TRUE(tried.has_value());
    EXPECT_FALSE(queue.Try().has_value());
  }
  const auto turn = queue.Wait(8, NeverLeaves);
  ASSERT_TRUE(turn.ok());
  EXPECT_FALSE(queue.Try().has_value());
}

TEST(TurnQueueTest, InterruptedWaiterLeavesTheLine) {
  TurnQueue queue;
  std::optional<TurnQueue::Turn> first(*queue.Wait(8, NeverLeaves));
  const auto refused = queue.Wait(8, [](bool) { return absl::CancelledError("gone"); });
  EXPECT_TRUE(absl::IsCancelled(refused.status()));
  EXPECT_EQ(queue.waiting(), 0u);
  first.reset();
  EXPECT_TRUE(queue.Wait(8, NeverLeaves).ok());
}

// Who waits is told whether the line moves, not whether somebody is in front.
TEST(TurnQueueTest, ALineMovesWhenWorkGetsFurther) {
  TurnQueue queue;
  const TurnQueue::Turn first = *queue.Wait(8, NeverLeaves);
  std::atomic<int> looks = 0;
  bool moved = false;
  std::thread worker([&] {
    while (looks < 2) std::this_thread::yield();
    queue.Advance();
  });
  const auto look = [&](bool moves) {
    const bool stands_again = moved && !moves;
    if (++looks <= 2) {
      EXPECT_FALSE(moves);
    }
    moved = moved || moves;
    return stands_again ? absl::CancelledError("seen enough") : absl::OkStatus();
  };
  EXPECT_FALSE(queue.Wait(8, look).ok());
  EXPECT_TRUE(moved);
  worker.join();
}

TEST(TurnQueueTest, ALineMovesWhenTheTurnIsPassedOn) {
  TurnQueue queue;
  std::optional<TurnQueue::Turn> first(*queue.Wait(8, NeverLeaves));
  std::atomic<bool> moved = false;
  std::thread second([&] {
    const auto turn = queue.Wait(8, NeverLeaves);
    while (!moved) std::this_thread::yield();
  });
  while (queue.waiting() < 1) std::this_thread::yield();
  std::thread third([&] {
    const auto look = [&](bool moves) {
      moved = moves;
      return moves ? absl::CancelledError("seen enough") : absl::OkStatus();
    };
    EXPECT_FALSE(queue.Wait(8, look).ok());
  });
  while (queue.waiting() < 2) std::this_thread::yield();
  first.reset();
  third.join();
  second.join();
}

TEST(TurnQueueTest, FullQueueRefuses) {
  TurnQueue queue;
  const TurnQueue::Turn first = *queue.Wait(0, NeverLeaves);
  EXPECT_TRUE(absl::IsResourceExhausted(queue.Wait(0, NeverLeaves).status()));
}

}  // namespace
}  // namespace moestro::prefill
