// Whatever fails or dawdles, in whichever thread: a streamed run ends, says why, gives everything back, and the next
// one is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "tests/services/prefill/stream/stream_fixture.h"

namespace moestro {
namespace {

using testing::HasSubstr;

class FailureTest : public StreamTest {
 protected:
  const Setting setting_{.limits = {.dense_bytes = 1 << 20, .ring_slots = 3}};
  static constexpr int64_t kTokens = 40;

  // The `nth` operation of that name fails.
  void Break(const std::string& operation, int nth) {
    device_.set_fault([this, operation, nth](const std::string& name) {
      if (name != operation || ++seen_ != nth) return absl::OkStatus();
      return absl::DataLossError("broken by the test");
    });
    seen_ = 0;
  }
  void ExpectHealthy() {
    device_.set_fault([](const std::string&) { return absl::OkStatus(); });
    ExpectSameBits(kTokens, setting_);
  }

  std::atomic<int> seen_ = 0;
};

TEST_F(FailureTest, EveryOperationMayFail) {
  const std::pair<const char*, int> faults[] = {
      {"allocate", 1},   {"allocate", 2},       {"stream", 1},       {"stream", 3},
      {"copy", 1},       {"copy", 9},           {"copy", 27},        {"launch", 1},
      {"launch", 5},     {"launch", 14},        {"record", 1},       {"record", 4},
      {"record", 25},    {"wait", 1},           {"wait", 7},         {"event", 1},
      {"event", 20},     {"synchronize", 1},    {"synchronize", 3},  {"synchronize", 4},
      {"run: embed", 1}, {"run: attention", 2}, {"run: experts", 1}, {"run: experts", 9},
      {"run: route", 2}, {"run: dense", 1},     {"run: head", 1},    {"run: shared expert", 1}};
  for (const auto& [operation, nth] : faults) {
    SCOPED_TRACE(testing::Message() << operation << " " << nth);
    Break(operation, nth);
    const Outcome outcome = Stream(kTokens, setting_);
    ASSERT_GE(seen_, nth) << "there are not so many";
    EXPECT_TRUE(absl::IsDataLoss(outcome.status)) << outcome.status;
    EXPECT_THAT(outcome.status.message(), HasSubstr("broken by the test"));
    EXPECT_TRUE(outcome.logits.empty());
  }
  ExpectHealthy();
}

TEST_F(FailureTest, AKernelsErrorNamesTheStep) {
  Break("run: route", 2);
  const Outcome outcome = Stream(kTokens, setting_);
  EXPECT_THAT(outcome.status.message(), HasSubstr("route: "));
}

TEST_F(FailureTest, DelaysAnywhereChangeNothing) {
  for (const int seed : {1, 2, 3, 4}) {
    std::mutex mutex;
    std::mt19937 random(seed);
    device_.set_fault([&](const std::string&) {
      int delay = 0;
      {
        std::lock_guard lock(mutex);
        if (random() % 8 == 0) delay = static_cast<int>(random() % 1500);
      }
      if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
      return absl::OkStatus();
    });
    ExpectSameBits(kTokens, setting_);
  }
  ExpectHealthy();
}

TEST_F(FailureTest, InterruptedBetweenModules) {
  for (const int after : {0, 1, 7, 20}) {
    std::atomic<int> asked = 0;
    const Outcome outcome = Stream(kTokens, setting_, [&] {
      return ++asked > after ? absl::CancelledError("the client went away") : absl::OkStatus();
    });
    EXPECT_TRUE(absl::IsCancelled(outcome.status)) << outcome.status;
    EXPECT_THAT(outcome.status.message(), HasSubstr("client"));
  }
  ExpectHealthy();
}

// A stuck copy does not keep a client's cancellation from being noticed.
TEST_F(FailureTest, InterruptedWhileTheModelWaitsForWeights) {
  std::atomic<bool> release = false;
  device_.set_fault([&](const std::string& name) {
    while (name == "copy" && !release) std::this_thread::yield();
    return absl::OkStatus();
  });
  int asked = 0;
  const Outcome outcome = Stream(kTokens, setting_, [&] {
    if (++asked < 5) return absl::OkStatus();
    release = true;
    return absl::DeadlineExceededError("too late");
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome.status)) << outcome.status;
  ExpectHealthy();
}

TEST_F(FailureTest, NanScoresNameTheLayer) {
  // The first token's embedding is NaN: so are all router scores of its row.
  model_ = MakeSyntheticSegment({.spec = SmallSpec(), .nan_token = Tokens(1)[0]});
  weights_ = BindWeights(*model_.segment).value();
  const Outcome outcome = Stream(kTokens, setting_);
  EXPECT_TRUE(absl::IsInternal(outcome.status)) << outcome.status;
  EXPECT_THAT(outcome.status.message(), HasSubstr("layer 1: router score of expert 0 is NaN"));
}

TEST_F(FailureTest, RefusesWhatDoesNotFit) {
  Setting setting = setting_;
  setting.limits.device_bytes = (1 << 20) + (1 << 16);
  Outcome outcome = Stream(kTokens, setting);
  EXPECT_TRUE(absl::IsResourceExhausted(outcome.status)) << outcome.status;
  EXPECT_THAT(outcome.status.message(), HasSubstr("--device-memory"));
  setting = setting_;
  setting.limits.dense_bytes = LargestDense(setting.form) - 4096;
  outcome = Stream(kTokens, setting);
  EXPECT_TRUE(absl::IsResourceExhausted(outcome.status)) << outcome.status;
  EXPECT_THAT(outcome.status.message(), HasSubstr("layer 0"));
}

TEST_F(FailureTest, ProgressComesInOrderFromTheCaller) {
  std::vector<std::pair<int64_t, int64_t>> layers;
  std::vector<int64_t> passes;
  const auto caller = std::this_thread::get_id();
  const StreamEvents events{.on_layer =
                                [&](IndexRange rows, int64_t layer) {
                                  EXPECT_EQ(std::this_thread::get_id(), caller);
                                  layers.emplace_back(rows.begin, layer);
                                },
                            .on_pass = [&](IndexRange rows) { passes.push_back(rows.end); }};
  Setting setting = setting_;
  HostCompute sized(spec(), weights_, *AvailableKernels().back(), pool_, setting.tile_rows);
  setting.limits.device_bytes =
      (1 << 20) + 3 * SlotBytes(ListModules(spec(), weights_, setting.form, 1 << 18)) + sized.ActivationBytes(20);
  setting.limits.min_pass_rows = 10;
  EXPECT_TRUE(Stream(kTokens, setting, NeverInterrupted, events).status.ok());
  using P = std::pair<int64_t, int64_t>;
  EXPECT_THAT(layers, testing::ElementsAre(P(0, 0), P(0, 1), P(0, 2), P(20, 0), P(20, 1), P(20, 2)));
  EXPECT_THAT(passes, testing::ElementsAre(20, 40));
}

}  // namespace
}  // namespace moestro
