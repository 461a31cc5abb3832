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

// A prompt of n tokens takes n ms in chunks, n / 2 ms in place and 1 s streamed; chunked beside decode twice as long.
struct PredictedPolicy {
  PredictedPolicy() {
    const auto cost = [](PromptWay way, uint32_t decoding, double seconds_of_1000) {
      return PromptCost{
          .way = way, .decoding = decoding, .points = {{1, seconds_of_1000 / 1000}, {100000, seconds_of_1000 * 100}}};
    };
    policy.SetCosts(Role::kDecode, {cost(PromptWay::kChunked, 0, 1), cost(PromptWay::kChunked, 1, 2)});
    policy.SetCosts(Role::kPrefill,
                    {cost(PromptWay::kInPlace, 0, 0.5), {.way = PromptWay::kStreamed, .points = {{100000, 1.0}}}});
  }
  PathPolicy::Decision Choose(uint32_t new_tokens) { return policy.Choose(new_tokens, true); }
  testing::FakeRequestClock clock;
  PathPolicy policy{{.predicted = true}, clock};
};

TEST(PathPolicyTest, PredictsFromWhatTheRolesSay) {
  PredictedPolicy p;
  EXPECT_EQ(p.Choose(1000).choice.way, PromptWay::kInPlace);
  EXPECT_EQ(p.Choose(5000).choice.way, PromptWay::kStreamed);
  EXPECT_EQ(p.Choose(12).choice.way, PromptWay::kChunked) << "6 ms are worth no change";
  p.policy.SetCosts(Role::kPrefill, {});  // it restarts
  EXPECT_EQ(p.Choose(1000).choice.path, PrefillPath::kChunked);
  EXPECT_EQ(p.Choose(5000).choice.way, std::nullopt);
  EXPECT_EQ(p.Choose(5000).choice.path, PrefillPath::kSplit);
}

TEST(PathPolicyTest, APromptWaitsForThoseAheadInPrefill) {
  PredictedPolicy p;
  std::optional<PathPolicy::Decision> first(p.Choose(5000));  // 1 s
  EXPECT_EQ(first->choice.path, PrefillPath::kWholeMachine);
  // 0.4 s in chunks; in place 1 + 0.2 s.
  EXPECT_EQ(p.Choose(400).choice.path, PrefillPath::kChunked);
  // 1 s in chunks, 1 + 0.5 s in place.
  EXPECT_EQ(p.Choose(1000).choice.path, PrefillPath::kChunked);
  p.clock.SleepFor(std::chrono::milliseconds(900));
  EXPECT_EQ(p.Choose(1000).choice.path, PrefillPath::kSplit) << "0.1 s are left of it";
  std::optional<PathPolicy::Decision> second(p.Choose(5000));
  p.clock.SleepFor(std::chrono::milliseconds(900));  // the first takes longer than was predicted
  EXPECT_EQ(p.Choose(1000).choice.path, PrefillPath::kChunked) << "the second has not begun";
  second.reset();  // it gives up: the first one's time goes on
  EXPECT_EQ(p.Choose(1000).choice.path, PrefillPath::kSplit);
  first->work.BeginDecode();
  EXPECT_EQ(p.Choose(1000).choice.path, PrefillPath::kSplit);
}

TEST(PathPolicyTest, PromptsThatDecodeComputesShareItsSteps) {
  PredictedPolicy p;
  p.policy.SetCosts(Role::kPrefill, {{.way = PromptWay::kInPlace, .points = {{100000, 0.3}}}});
  EXPECT_EQ(p.Choose(100).choice.path, PrefillPath::kChunked);  // 0.1 s, 0.3 s in prefill
  std::optional<PathPolicy::Decision> other(p.Choose(99));
  // Beside one sequence 0.2 s, and with as many tokens of the other prompt 0.4 s.
  EXPECT_EQ(p.Choose(100).choice.path, PrefillPath::kSplit);
  (void)other->work.NoteFirstToken(true);
  EXPECT_EQ(p.Choose(100).choice.path, PrefillPath::kChunked);
}

TEST(PathPolicyTest, WhatPromptsTookCorrectsThePrediction) {
  PredictedPolicy p;
  PathPolicy::Decision decision = p.Choose(5000);
  p.clock.SleepFor(seconds(2));
  EXPECT_DOUBLE_EQ(*decision.work.NoteFirstToken(true), 2);
  EXPECT_EQ(decision.work.NoteFirstToken(true), std::nullopt) << "there is one first token";
  EXPECT_GT(p.policy.correction(PromptWay::kStreamed), 1.1);
  EXPECT_EQ(p.policy.correction(PromptWay::kInPlace), 1);
  const double before = p.policy.correction(PromptWay::kChunked);
  PathPolicy::Decision resumed = p.Choose(10);
  p.clock.SleepFor(seconds(2));
  EXPECT_EQ(resumed.work.NoteFirstToken(/*counts=*/false), std::nullopt);
  EXPECT_EQ(p.policy.correction(PromptWay::kChunked), before);
}

TEST(PathPolicyTest, AllPlacesTakenAreAWaitOfTheChunkedWay) {
  PredictedPolicy p;
  p.policy.SetPlaces(2);
  p.policy.SetCosts(Role::kPrefill, {{.way = PromptWay::kInPlace, .points = {{100000, 1.0}}}});
  std::optional<PathPolicy::Decision> first(p.Choose(100)), second(p.Choose(100));
  for (auto* decision : {&first, &second}) {
    (*decision)->work.NotePlace(0);
    (void)(*decision)->work.NoteFirstToken(false);
  }
  p.clock.SleepFor(seconds(30));
  const PathPolicy::Decision third = p.Choose(100);
  EXPECT_EQ(third.choice.way, PromptWay::kInPlace) << "1 s; in chunks 0.2 s after some 30 s for a place";
  EXPECT_NE(third.choice.load.find("for a place 30 s of chunked"), std::string::npos) << third.choice.load;
  EXPECT_EQ(third.choice.reason.find("30"), std::string::npos) << "tells of others: " << third.choice.reason;
  first.reset();
  EXPECT_EQ(p.Choose(100).choice.way, PromptWay::kChunked);
}

TEST(PathPolicyTest, TheWaitForAPlaceIsNoErrorOfThePrediction) {
  PredictedPolicy p;
  p.policy.SetPlaces(1);
  p.policy.SetCosts(Role::kPrefill, {{.way = PromptWay::kInPlace, .points = {{100000, 1e5}}}});
  std::optional<PathPolicy::Decision> first(p.Choose(100));
  first->work.NotePlace(0);
  (void)first->work.NoteFirstToken(false);
  p.clock.SleepFor(seconds(5));
  PathPolicy::Decision second = p.Choose(1000);  // some 5 s for the place, and 1 s
  ASSERT_EQ(second.choice.way, PromptWay::kChunked);
  p.clock.SleepFor(seconds(90));
  first.reset();
  second.work.NotePlace(90);
  p.clock.SleepFor(std::chrono::milliseconds(1200));
  EXPECT_NEAR(*second.work.NoteFirstToken(true), 1.2, 1e-9);
  EXPECT_LT(p.policy.correction(PromptWay::kChunked), 1.1);
}

TEST(PathPolicyTest, ThePapersPolicyPredictsNothing) {
  testing::FakeRequestClock clock;
  PathPolicy policy({}, clock);
  policy.SetCosts(Role::kDecode, {{.way = PromptWay::kChunked, .points = {{100000, 50.0}}}});
  policy.SetCosts(Role::kPrefill, {{.way = PromptWay::kInPlace, .points = {{100000, 1.0}}}});
  PathPolicy::Decision decision = policy.Choose(1000, true);
  EXPECT_EQ(decision.choice.path, PrefillPath::kChunked);
  EXPECT_EQ(decision.work.NoteFirstToken(true), std::nullopt);
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
