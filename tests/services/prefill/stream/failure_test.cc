// Whatever fails or dawdles, in whichever thread: a streamed run ends, says why, gives everything back, and the next
// one is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>

#include "tests/services/prefill/stream/stream_fixture.h"
#include "tests/support/test_kernels.h"

namespace moestro::prefill {
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

// Each operation of a run in turn.
TEST_F(FailureTest, EveryOperationMayFail) {
  const std::pair<const char*, int> operations[] = {
      {"allocate", 2},       {"stream", 3},     {"event object", 100}, {"copy", 23},         {"launch", 26},
      {"record", 90},        {"wait", 25},      {"event", 90},         {"synchronize", 6},   {"run: embed", 1},
      {"run: attention", 3}, {"run: dense", 1}, {"run: route", 2},     {"run: experts", 16}, {"run: shared expert", 2},
      {"run: head", 1}};
  for (const auto& [operation, at_least] : operations) {
    for (int nth = 1;; ++nth) {
      SCOPED_TRACE(testing::Message() << operation << " " << nth);
      Break(operation, nth);
      const Outcome outcome = Stream(kTokens, setting_);
      if (seen_ < nth) {
        EXPECT_TRUE(outcome.status.ok()) << outcome.status;
        EXPECT_GT(nth, at_least);
        break;
      }
      ASSERT_TRUE(absl::IsDataLoss(outcome.status)) << outcome.status;
      EXPECT_THAT(outcome.status.message(), HasSubstr("broken by the test"));
      EXPECT_TRUE(outcome.logits.empty());
    }
  }
  ExpectHealthy();
}

TEST_F(FailureTest, AnExceptionIsAFailure) {
  for (const char* operation : {"allocate", "stream", "copy", "launch", "record", "wait", "event", "synchronize",
                                "run: embed", "run: experts", "run: head"}) {
    device_.set_fault([operation](const std::string& name) -> absl::Status {
      if (name == operation) throw std::runtime_error("thrown by the test");
      return absl::OkStatus();
    });
    const Outcome outcome = Stream(kTokens, setting_);
    EXPECT_TRUE(absl::IsInternal(outcome.status)) << operation << ": " << outcome.status;
    EXPECT_THAT(outcome.status.message(), HasSubstr("thrown by the test")) << operation;
  }
  device_.set_fault([](const std::string&) -> absl::Status { throw std::bad_alloc(); });
  EXPECT_TRUE(absl::IsResourceExhausted(Stream(kTokens, setting_).status));
  ExpectHealthy();
}

// One operation of any kind fails while others dawdle: whatever the threads are doing then, the run ends with that
// failure, and nothing is left behind.
TEST_F(FailureTest, AFailureAmongDelays) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mutex mutex;
    std::mt19937 random(seed);
    const int fails = static_cast<int>(random() % 400);
    seen_ = 0;
    device_.set_fault([&](const std::string&) {
      unsigned delay = 0;
      {
        std::lock_guard lock(mutex);
        if (random() % 16 == 0) delay = random() % 1000;
      }
      if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
      return seen_++ == fails ? absl::DataLossError("broken by the test") : absl::OkStatus();
    });
    const Outcome outcome = Stream(kTokens, setting_);
    ASSERT_GT(seen_, fails) << "there are not so many";
    EXPECT_TRUE(absl::IsDataLoss(outcome.status)) << outcome.status;
    EXPECT_TRUE(outcome.logits.empty());
  }
  ExpectHealthy();
}

// Keys and values of layer 1 cannot be stored.
class Unstored final : public engine::PrefillCompute {
 public:
  explicit Unstored(engine::HostPrefill& compute) : compute_(compute) {}

  int64_t ActivationBytes(int64_t pass_rows) const override { return compute_.ActivationBytes(pass_rows); }
  absl::Status CheckForm(model::MlaForm form) const override { return compute_.CheckForm(form); }
  absl::Status Begin(const engine::PromptRun& run) override { return compute_.Begin(run); }
  absl::Status Launch(const engine::LayerStep& step, std::span<const engine::StagedModule> modules,
                      device::Stream& stream, const std::atomic<bool>& stopped) override {
    return compute_.Launch(step, modules, stream, stopped);
  }
  absl::Status Store(const engine::LayerStep& step, device::Stream&) override {
    return step.layer == 1 ? absl::DataLossError("no room for keys and values") : absl::OkStatus();
  }
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override {
    return compute_.Logits(on_logits);
  }
  void End() override { compute_.End(); }

 private:
  engine::HostPrefill& compute_;
};

TEST_F(FailureTest, TheUnloadersFailureEndsTheRun) {
  engine::HostPrefill compute(spec(), weights_, TestKernels(), pool_, setting_.tile_rows);
  Unstored unstored(compute);
  StreamPrefill prefill(device_, spec(), weights_, unstored, setting_.limits);
  const model::TestSequence sequence(spec(), kTokens);
  const kv::KvPages pages[] = {sequence.pages()};
  int64_t layers = 0;
  const absl::Status status = prefill.Run(Rows(Tokens(kTokens), 1), pages, setting_.form, model::NeverInterrupted,
                                          {.on_layer = [&](IndexRange, int64_t) { ++layers; }, .on_pass = {}},
                                          [](int64_t, std::span<const float>) { ADD_FAILURE(); });
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_LE(layers, 1);
  EXPECT_EQ(device_.memory_used(), 0);
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
  weights_ = model::BindWeights(*model_.segment).value();
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
  size_t steps = 0;
  const auto caller = std::this_thread::get_id();
  const StreamEvents events{.on_layer =
                                [&](IndexRange rows, int64_t layer) {
                                  EXPECT_EQ(std::this_thread::get_id(), caller);
                                  layers.emplace_back(rows.begin, layer);
                                },
                            .on_pass = [&](IndexRange rows) { passes.push_back(rows.end); },
                            .on_step = [&] { ++steps; }};
  Setting setting = setting_;
  engine::HostPrefill sized(spec(), weights_, TestKernels(), pool_, setting.tile_rows);
  setting.limits.device_bytes = (1 << 20) +
                                3 * SlotBytes(engine::ListModules(spec(), weights_, setting.form, 1 << 18)) +
                                sized.ActivationBytes(20);
  setting.limits.min_pass_rows = 10;
  EXPECT_TRUE(Stream(kTokens, setting, model::NeverInterrupted, events).status.ok());
  using P = std::pair<int64_t, int64_t>;
  EXPECT_THAT(layers, testing::ElementsAre(P(0, 0), P(0, 1), P(0, 2), P(20, 0), P(20, 1), P(20, 2)));
  EXPECT_THAT(passes, testing::ElementsAre(20, 40));
  EXPECT_GT(steps, layers.size());
}

}  // namespace
}  // namespace moestro::prefill
