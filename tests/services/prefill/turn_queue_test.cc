#include "services/prefill/turn_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace moestro {
namespace {

absl::Status Never() { return absl::OkStatus(); }

TEST(TurnQueueTest, FirstComeFirstServed) {
  TurnQueue queue;
  std::optional<TurnQueue::Turn> first(*queue.Wait(8, Never));
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto turn = queue.Wait(8, Never);
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

TEST(TurnQueueTest, InterruptedWaiterLeavesTheLine) {
  TurnQueue queue;
  std::optional<TurnQueue::Turn> first(*queue.Wait(8, Never));
  const auto refused = queue.Wait(8, [] { return absl::CancelledError("gone"); });
  EXPECT_TRUE(absl::IsCancelled(refused.status()));
  EXPECT_EQ(queue.waiting(), 0u);
  first.reset();
  EXPECT_TRUE(queue.Wait(8, Never).ok());
}

TEST(TurnQueueTest, FullQueueRefuses) {
  TurnQueue queue;
  const TurnQueue::Turn first = *queue.Wait(0, Never);
  EXPECT_TRUE(absl::IsResourceExhausted(queue.Wait(0, Never).status()));
}

}  // namespace
}  // namespace moestro
