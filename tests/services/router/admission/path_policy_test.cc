#include "services/router/admission/path_policy.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/services/router/fake_node.h"

namespace moestro::router {
namespace {

using std::chrono::seconds;

constexpr uint32_t kShort = 100;
constexpr uint32_t kLong = 5000;

struct Policy {
  testing::FakeRequestClock clock;
  PathPolicy policy{PathSettings(), clock};
  PrefillPath Choose(uint32_t new_tokens) { return policy.Choose(new_tokens, /*prefill_up=*/true).choice.path; }
};

TEST(PathPolicyTest, ShortPromptsAreDecodeWorkAtOnce) {
  Policy p;
  {
    const PathPolicy::Decision running = p.policy.Choose(kShort, true);
    EXPECT_EQ(running.choice.path, PrefillPath::kChunked);
    EXPECT_FALSE(p.policy.DecodeIsIdle());
    EXPECT_EQ(p.Choose(kLong), PrefillPath::kSplit);
  }
  EXPECT_EQ(p.Choose(kLong), PrefillPath::kSplit);  // just ended
}

TEST(PathPolicyTest, TheWindowBeginsWhenTheLastOneEnds) {
  Policy p;
  std::optional<PathPolicy::Decision> first(p.policy.Choose(kShort, true));
  std::optional<PathPolicy::Decision> second(p.policy.Choose(kShort, true));
  first.reset();
  p.clock.SleepFor(seconds(1000));
  EXPECT_EQ(p.Choose(kLong), PrefillPath::kSplit);  // the second still runs
  second.reset();
  p.clock.SleepFor(seconds(299));
  EXPECT_EQ(p.Choose(kLong), PrefillPath::kSplit);
  p.clock.SleepFor(seconds(1));
  EXPECT_TRUE(p.policy.DecodeIsIdle());
  EXPECT_EQ(p.Choose(kLong), PrefillPath::kWholeMachine);
}

TEST(PathPolicyTest, OfTwoLongPromptsOnlyTheFirstHasTheMachine) {
  Policy p;
  std::optional<PathPolicy::Decision> first(p.policy.Choose(kLong, true));
  std::optional<PathPolicy::Decision> second(p.policy.Choose(kLong, true));
  EXPECT_EQ(first->choice.path, PrefillPath::kWholeMachine);
  EXPECT_EQ(second->choice.path, PrefillPath::kSplit);
  first->work.BeginDecode();
  EXPECT_EQ(p.Choose(kLong), PrefillPath::kSplit);
  second.reset();  // never came to decode
  first.reset();
  p.clock.SleepFor(seconds(299));
  EXPECT_EQ(p.Choose(kLong), PrefillPath::kSplit);
  p.clock.SleepFor(seconds(1));
  EXPECT_EQ(p.Choose(kLong), PrefillPath::kWholeMachine);
}

TEST(PathPolicyTest, PrefillAloneLeavesDecodeIdle) {
  Policy p;
  EXPECT_EQ(p.Choose(kLong), PrefillPath::kWholeMachine);
  EXPECT_EQ(p.Choose(kLong), PrefillPath::kWholeMachine);
}

TEST(PathPolicyTest, MovedWorkCountsOnce) {
  Policy p;
  {
    PathPolicy::Decision decision = p.policy.Choose(kShort, true);
    const PathPolicy::Work moved = std::move(decision.work);
    EXPECT_FALSE(p.policy.DecodeIsIdle());
  }
  p.clock.SleepFor(seconds(300));
  EXPECT_TRUE(p.policy.DecodeIsIdle());
}

TEST(PathPolicyTest, ThreadsLeaveNothingBehind) {
  SteadyClock clock;
  PathPolicy policy({.decode_idle_window = seconds(0)}, clock);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&policy, i] {
      for (int j = 0; j < 1000; ++j) {
        PathPolicy::Decision decision = policy.Choose((i + j) % 2 == 0 ? kShort : kLong, true);
        if (decision.choice.path != PrefillPath::kChunked) decision.work.BeginDecode();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(policy.DecodeIsIdle());
}

}  // namespace
}  // namespace moestro::router
