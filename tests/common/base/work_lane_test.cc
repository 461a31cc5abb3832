#include "common/base/work_lane.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <future>
#include <vector>

namespace moestro {
namespace {

absl::Status Here() { return absl::OkStatus(); }

TEST(WorkLaneTest, FirstComeFirstServed) {
  WorkLane lane;
  std::vector<int> order;  // of the lane's thread
  for (int i = 0; i < 20; ++i) lane.Post([&, i] { order.push_back(i); });
  EXPECT_TRUE(lane.Run([&] { return order.push_back(20), absl::OkStatus(); }, Here).ok());
  ASSERT_EQ(order.size(), 21u);
  for (int i = 0; i < 21; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(WorkLaneTest, WhoLeavesTheLineIsNotServed) {
  WorkLane lane;
  std::promise<void> gate;
  lane.Post([&] { gate.get_future().wait(); });
  bool ran = false;
  EXPECT_TRUE(absl::IsCancelled(
      lane.Run([&] { return ran = true, absl::OkStatus(); }, [] { return absl::CancelledError("gone"); })));
  gate.set_value();
  EXPECT_TRUE(lane.Run(Here, Here).ok());
  EXPECT_FALSE(ran);
}

TEST(WorkLaneTest, WorkThatHasBegunIsWaitedFor) {
  WorkLane lane;
  std::atomic<bool> begun = false;
  std::atomic<bool> may_end = false;
  std::atomic<bool> gone = false;
  const auto work = [&] {
    begun = true;
    while (!may_end) std::this_thread::yield();
    return absl::OkStatus();
  };
  const auto check = [&] { return gone ? absl::CancelledError("gone") : absl::OkStatus(); };
  auto run = std::async(std::launch::async, [&] { return lane.Run(work, check); });
  while (!begun) std::this_thread::yield();
  gone = true;
  may_end = true;
  EXPECT_TRUE(run.get().ok()) << "its caller's variables must live as long as the work";
}

TEST(WorkLaneTest, ReturnsTheErrorOfTheWork) {
  WorkLane lane;
  EXPECT_TRUE(absl::IsNotFound(lane.Run([] { return absl::NotFoundError("x"); }, Here)));
  const auto throws = []() -> absl::Status { throw std::bad_alloc(); };
  EXPECT_TRUE(absl::IsResourceExhausted(lane.Run(throws, Here)));
  EXPECT_TRUE(lane.Run(Here, Here).ok()) << "and the lane goes on";
}

TEST(WorkLaneTest, DropsWhatHasNotBegunAtItsEnd) {
  std::atomic<int> ran = 0;
  std::promise<void> begun;
  {
    WorkLane lane;
    lane.Post([&] {
      ++ran;
      begun.set_value();
    });
    begun.get_future().wait();
  }
  EXPECT_EQ(ran, 1);
}

TEST(WorkLaneTest, ABackgroundThreadStandsBack) {
  const int own = getpriority(PRIO_PROCESS, 0);
  WorkLane ordinary;
  WorkLane background(WorkLane::kBackground);
  int of_ordinary = -100;
  int of_background = -100;
  EXPECT_TRUE(ordinary.Run([&] { return of_ordinary = getpriority(PRIO_PROCESS, 0), absl::OkStatus(); }, Here).ok());
  EXPECT_TRUE(
      background.Run([&] { return of_background = getpriority(PRIO_PROCESS, 0), absl::OkStatus(); }, Here).ok());
  EXPECT_EQ(of_ordinary, own);
  EXPECT_EQ(of_background, std::min(19, own + WorkLane::kBackground));
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), own) << "nobody else does";
}

}  // namespace
}  // namespace moestro
