#include "services/router/admission/choose_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr PathSettings kDefaults;
constexpr PathSettings kUnified{.unified = true};

NodeLoad IdleFor(RequestClock::Duration duration) { return {.decoding = 0, .prefilling = 0, .decode_idle = duration}; }

PrefillPath PathOf(const NodeLoad& load, uint32_t new_tokens, bool prefill_up = true,
                   const PathSettings& settings = kDefaults) {
  return ChoosePath(settings, load, new_tokens, prefill_up).path;
}

std::string ReasonOf(const NodeLoad& load, uint32_t new_tokens, bool prefill_up = true,
                     const PathSettings& settings = kDefaults) {
  return ChoosePath(settings, load, new_tokens, prefill_up).reason;
}

TEST(ChoosePathTest, DefaultsAreThePapers) {
  EXPECT_EQ(kDefaults.chunked_below_tokens, 2048u);
  EXPECT_EQ(kDefaults.decode_idle_window, seconds(300));
  EXPECT_FALSE(kDefaults.unified);
}

TEST(ChoosePathTest, ShortBelowTheLimitWhateverElseHappens) {
  for (const NodeLoad& load :
       {NodeLoad{}, NodeLoad{.decoding = 3}, NodeLoad{.prefilling = 2}, IdleFor(seconds(1)), IdleFor(seconds(900))}) {
    for (const bool prefill_up : {true, false}) {
      EXPECT_EQ(PathOf(load, 1, prefill_up), PrefillPath::kChunked);
      EXPECT_EQ(PathOf(load, 2047, prefill_up), PrefillPath::kChunked);
      EXPECT_EQ(ReasonOf(load, 2047, prefill_up), "2047 new tokens < 2048");
    }
    EXPECT_NE(PathOf(load, 2048), PrefillPath::kChunked);
    EXPECT_NE(PathOf(load, 2049), PrefillPath::kChunked);
  }
  EXPECT_FALSE(IsForPrefill(kDefaults, 2047));
  EXPECT_TRUE(IsForPrefill(kDefaults, 2048));
  EXPECT_TRUE(IsForPrefill(kDefaults, 2049));
}

TEST(ChoosePathTest, LongBesideDecodeIsSplit) {
  const NodeLoad busy{.decoding = 2, .prefilling = 1, .decode_idle = seconds(900)};
  EXPECT_EQ(PathOf(busy, 2048), PrefillPath::kSplit);
  EXPECT_EQ(ReasonOf(busy, 2048), "2048 new tokens >= 2048, decode is in use");
}

TEST(ChoosePathTest, TheWindowAfterDecode) {
  const RequestClock::Duration within[] = {seconds(0), seconds(12), seconds(300) - milliseconds(1)};
  for (const RequestClock::Duration idle : within) {
    EXPECT_EQ(PathOf(IdleFor(idle), 5000), PrefillPath::kSplit);
  }
  EXPECT_EQ(PathOf(IdleFor(seconds(300)), 5000), PrefillPath::kWholeMachine);
  EXPECT_EQ(PathOf(IdleFor(seconds(300) + milliseconds(1)), 5000), PrefillPath::kWholeMachine);
  EXPECT_EQ(ReasonOf(IdleFor(seconds(12)), 5000), "5000 new tokens >= 2048, decode is in use");
  EXPECT_EQ(ReasonOf(IdleFor(seconds(412)), 5000), "5000 new tokens >= 2048, decode is idle");
}

TEST(ChoosePathTest, DecodeThatNeverHadWorkIsIdle) {
  EXPECT_EQ(PathOf({}, 2048), PrefillPath::kWholeMachine);
  EXPECT_EQ(ReasonOf({}, 2048), "2048 new tokens >= 2048, decode is idle");
}

TEST(ChoosePathTest, WhoWaitsBehindAPromptWillRunBesideItsDecode) {
  for (const NodeLoad& load : {NodeLoad{.prefilling = 1}, NodeLoad{.prefilling = 1, .decode_idle = seconds(900)}}) {
    EXPECT_EQ(PathOf(load, 5000), PrefillPath::kSplit);
    EXPECT_EQ(ReasonOf(load, 5000), "5000 new tokens >= 2048, decode is in use");
  }
}

TEST(ChoosePathTest, TheClientLearnsNeitherHowManyOthersThereAreNorWhen) {
  const NodeLoad one{.decoding = 1, .prefilling = 0, .decode_idle = std::nullopt};
  for (const NodeLoad& load : {NodeLoad{.decoding = 7}, NodeLoad{.prefilling = 3}, IdleFor(seconds(0)),
                               IdleFor(seconds(299)), NodeLoad{.decoding = 2, .prefilling = 4}}) {
    EXPECT_EQ(ReasonOf(load, 5000), ReasonOf(one, 5000));
  }
  EXPECT_EQ(ReasonOf(IdleFor(seconds(900)), 5000), ReasonOf({}, 5000));
}

TEST(ChoosePathTest, TheOperatorLearnsBoth) {
  const auto load_of = [](const NodeLoad& load) { return ChoosePath(kDefaults, load, 5000, true).load; };
  EXPECT_EQ(load_of({.decoding = 2, .prefilling = 1, .decode_idle = seconds(900)}), "decoding: 2, in prefill: 1");
  EXPECT_EQ(load_of({.prefilling = 1}), "decoding: 0, in prefill: 1, decode has had no work yet");
  EXPECT_EQ(load_of(IdleFor(seconds(12))), "decoding: 0, in prefill: 0, decode had work 12 s ago");
}

TEST(ChoosePathTest, WithoutPrefillLongPromptsGoToDecode) {
  for (const NodeLoad& load : {NodeLoad{}, NodeLoad{.decoding = 1}, IdleFor(seconds(900))}) {
    EXPECT_EQ(PathOf(load, 2048, /*prefill_up=*/false), PrefillPath::kChunked);
    EXPECT_EQ(ReasonOf(load, 2048, /*prefill_up=*/false), "2048 new tokens >= 2048, but prefill is down");
  }
}

TEST(ChoosePathTest, UnifiedIsAlwaysChunked) {
  for (const uint32_t new_tokens : {1u, 2047u, 2048u, 100000u}) {
    for (const NodeLoad& load : {NodeLoad{}, NodeLoad{.decoding = 1}, IdleFor(seconds(900))}) {
      EXPECT_EQ(PathOf(load, new_tokens, true, kUnified), PrefillPath::kChunked);
      EXPECT_EQ(PathOf(load, new_tokens, false, kUnified), PrefillPath::kChunked);
    }
    EXPECT_FALSE(IsForPrefill(kUnified, new_tokens));
  }
  EXPECT_EQ(ReasonOf({}, 3000, true, kUnified), "3000 new tokens, unified mode");
}

TEST(ChoosePathTest, EveryNumberIsASetting) {
  const PathSettings settings{.chunked_below_tokens = 10, .decode_idle_window = seconds(5)};
  EXPECT_EQ(PathOf({}, 9, true, settings), PrefillPath::kChunked);
  EXPECT_EQ(PathOf(IdleFor(seconds(4)), 10, true, settings), PrefillPath::kSplit);
  EXPECT_EQ(PathOf(IdleFor(seconds(5)), 10, true, settings), PrefillPath::kWholeMachine);
  EXPECT_EQ(ReasonOf({}, 9, true, settings), "9 new tokens < 10");
  const PathSettings none{.chunked_below_tokens = 0, .decode_idle_window = seconds(0)};
  EXPECT_EQ(PathOf(IdleFor(seconds(0)), 1, true, none), PrefillPath::kWholeMachine);
  EXPECT_EQ(PathOf({.decoding = 1}, 1, true, none), PrefillPath::kSplit);
}

constexpr PathSettings kPredicted{.predicted = true};

PathForecast Forecast(std::optional<double> chunked, std::optional<double> in_place,
                      std::optional<double> streamed = std::nullopt) {
  return {.seconds = {chunked, in_place, streamed}, .for_client = {chunked, in_place, streamed}};
}

PathChoice Predicted(uint32_t new_tokens, const PathForecast& forecast, const NodeLoad& load = {},
                     bool prefill_up = true) {
  return ChoosePath(kPredicted, load, new_tokens, prefill_up, forecast);
}

TEST(ChoosePathTest, PredictedIsTheSoonestOnBothSidesOfTheBreakEven) {
  for (const uint32_t new_tokens : {100u, 2047u, 2048u, 30000u}) {
    EXPECT_EQ(Predicted(new_tokens, Forecast(1, 2)).path, PrefillPath::kChunked) << new_tokens;
    const PathChoice in_place = Predicted(new_tokens, Forecast(2, 1));
    EXPECT_EQ(in_place.path, PrefillPath::kWholeMachine) << new_tokens;
    EXPECT_EQ(in_place.way, PromptWay::kInPlace);
    const PathChoice streamed = Predicted(new_tokens, Forecast(4, 2, 1), {.decoding = 1});
    EXPECT_EQ(streamed.path, PrefillPath::kSplit) << new_tokens;
    EXPECT_EQ(streamed.way, PromptWay::kStreamed);
    EXPECT_EQ(Predicted(new_tokens, Forecast(4, 1, 2)).way, PromptWay::kInPlace);
    EXPECT_EQ(Predicted(new_tokens, Forecast(4, std::nullopt, 2)).way, PromptWay::kStreamed);
  }
}

// Whatever the paper's rule gives must be clearly slower.
TEST(ChoosePathTest, ASmallDifferenceChangesNothing) {
  EXPECT_EQ(Predicted(2047, Forecast(1.09, 1)).path, PrefillPath::kChunked);
  EXPECT_EQ(Predicted(2047, Forecast(1.11, 1)).path, PrefillPath::kWholeMachine);
  EXPECT_EQ(Predicted(2048, Forecast(1, 1.09)).path, PrefillPath::kWholeMachine);
  EXPECT_EQ(Predicted(2048, Forecast(1, 1.11)).path, PrefillPath::kChunked);
  EXPECT_EQ(Predicted(20, Forecast(0.012, 0.003)).path, PrefillPath::kChunked) << "9 ms";
  EXPECT_EQ(Predicted(20, Forecast(0.014, 0.003)).path, PrefillPath::kWholeMachine);
  for (double in_place = 0.5; in_place < 2; in_place *= 1.01) {
    for (const uint32_t new_tokens : {2047u, 2048u}) {
      const PathChoice choice = Predicted(new_tokens, Forecast(1, in_place));
      const double chosen = choice.path == PrefillPath::kChunked ? 1 : in_place;
      EXPECT_LE(chosen, kPredictedMargin * std::min(1.0, in_place));
    }
  }
}

TEST(ChoosePathTest, WithoutAPredictionThePapersRule) {
  const PathForecast none;
  for (const PathForecast& forecast : {none, Forecast(9, std::nullopt), Forecast(std::nullopt, 1, 1)}) {
    EXPECT_EQ(Predicted(2047, forecast).path, PrefillPath::kChunked);
    EXPECT_EQ(Predicted(2048, forecast).path, PrefillPath::kWholeMachine);
    EXPECT_EQ(Predicted(2048, forecast).way, std::nullopt);
    EXPECT_EQ(Predicted(2048, forecast).reason, "2048 new tokens >= 2048, decode is idle");
  }
  EXPECT_EQ(Predicted(5000, Forecast(2, 1), {}, /*prefill_up=*/false).path, PrefillPath::kChunked);
  EXPECT_EQ(Predicted(50, Forecast(2, 1), {}, /*prefill_up=*/false).reason, "50 new tokens < 2048");
  const PathSettings unified{.unified = true, .predicted = true};
  EXPECT_EQ(ChoosePath(unified, {}, 5000, true, Forecast(2, 1)).path, PrefillPath::kChunked);
  EXPECT_EQ(ChoosePath(kDefaults, {}, 5000, true, Forecast(1, 2)).way, std::nullopt) << "the paper's policy";
}

TEST(ChoosePathTest, WhatTheClientAsksForGoesFirst) {
  const PathSettings unified{.unified = true};
  for (const PathSettings& settings : {kDefaults, kPredicted, unified}) {
    for (const uint32_t new_tokens : {1u, 100000u}) {
      const auto ask = [&](PromptWay way, const NodeLoad& load = {}) {
        return ChoosePath(settings, load, new_tokens, true, Forecast(1, 2, 3), way);
      };
      EXPECT_EQ(ask(PromptWay::kChunked).path, PrefillPath::kChunked);
      for (const PromptWay way : {PromptWay::kInPlace, PromptWay::kStreamed}) {
        EXPECT_EQ(ask(way).path, PrefillPath::kWholeMachine);
        EXPECT_EQ(ask(way, {.decoding = 1}).path, PrefillPath::kSplit);
        EXPECT_EQ(ask(way).way, way);
      }
    }
  }
  EXPECT_EQ(ChoosePath(kDefaults, {}, 7, true, {}, PromptWay::kStreamed).reason, "7 new tokens, streamed as asked");
}

TEST(ChoosePathTest, APredictionIsSaidOfThePromptByItself) {
  PathForecast forecast = Forecast(2, 5, 4);
  forecast.for_client = {0.41234, 0.9, 0.5};
  const PathChoice choice = Predicted(812, forecast, {.decoding = 3});
  EXPECT_EQ(choice.reason, "812 new tokens: chunked 0.41 s, in prefill 0.5 s (streamed), decode is in use");
  EXPECT_EQ(choice.load, "decoding: 3, in prefill: 0, predicted: chunked 2 s, in_place 5 s, streamed 4 s");
  PathForecast busier = forecast;
  busier.seconds = {20, 50, 40};
  EXPECT_EQ(Predicted(812, busier, {.decoding = 6, .prefilling = 3}).reason, choice.reason);
}

TEST(ChoosePathTest, UnifiedModeNeedsNoPrefill) {
  EXPECT_THAT(NeededRoles(kUnified), ElementsAre(Role::kDecode));
  EXPECT_THAT(NeededRoles(kDefaults), ElementsAre(Role::kPrefill, Role::kDecode));
}

}  // namespace
}  // namespace moestro::router
