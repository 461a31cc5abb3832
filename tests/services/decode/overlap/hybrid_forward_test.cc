// Steps on a device beside the CPU: the engine's bits, whatever the cut and however the threads are scheduled.
#include "services/decode/overlap/hybrid_forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>

#include "common/device/host/host_device.h"
#include "tests/common/model/engine_harness.h"
#include "tests/services/decode/overlap/overlap_fixture.h"
#include "tests/services/decode/step_fixture.h"
#include "tests/support/faulty_device.h"
#include "tests/support/test_kernels.h"
#include "tests/support/typed_models.h"

namespace moestro::decode {

using model::EngineRow;

namespace {

using testing::HasSubstr;

class HybridForwardTest : public StepTest {
 protected:
  using StepTest::StepTest;
  const std::unique_ptr<device::Device> device_ = device::NewHostDevice({});
};

TEST_F(HybridForwardTest, HasTheEnginesBitsForEveryBatchAndCut) {
  size_t cut = 0;
  HostHybrid hybrid(*device_, *model_.segment, pool_, kMaxRows, [&](const model::CheckedBatch&) { return cut; });
  for (int64_t batch = 1; batch <= kMaxBatch; ++batch) {
    for (cut = 1; cut <= static_cast<size_t>(batch); ++cut) {
      ExpectTheEnginesBits(hybrid.forward(), Step(batch), testing::PrintToString(std::pair(batch, cut)));
    }
  }
  EXPECT_EQ(hybrid.forward().overlapped_steps(), 7 * 8 / 2);
}

// Computes nothing. What it hands over is there when it is asked for the nth time in a layer; 0: never.
class LateCompute final : public engine::DecodeCompute, public engine::RoutedExperts {
 public:
  explicit LateCompute(int64_t asked) : asked_(asked) {}
  absl::Status CheckForm(model::MlaForm) const override { return absl::OkStatus(); }
  void Begin(int, int64_t, const model::CheckedBatch&) override {}
  absl::Status Embed(int, device::Stream&) override { return absl::OkStatus(); }
  absl::Status Attend(int, int64_t, device::Stream&) override {
    left_ = asked_;
    return absl::OkStatus();
  }
  absl::Status Shared(int, int64_t, device::Stream&) override { return absl::OkStatus(); }
  absl::Status Combine(int, int64_t, device::Stream&) override { return absl::OkStatus(); }
  engine::ExpertIo expert_io(int) const override { return {}; }
  bool ReadSums(int, const float*, int64_t) override { return true; }
  bool HandsOver(int, const engine::ExpertIo&, int64_t) override { return true; }
  bool IsHandedOver(int) override { return --left_ == 0; }
  absl::Status Logits(std::span<const EngineRow>, device::Stream&,
                      absl::FunctionRef<void(int64_t, std::span<const float>)>) override {
    return absl::OkStatus();
  }
  absl::Status Run(int64_t, int64_t, const engine::ExpertIo&) override {
    ++layers;
    return absl::OkStatus();
  }

  int64_t layers = 0;

 private:
  const int64_t asked_;
  int64_t left_ = 0;
};

TEST_F(HybridForwardTest, SpinsUntilChoicesAreHandedOverButNotForEver) {
  const auto run = [&](int64_t asked, double spin_seconds) {
    LateCompute compute(asked);
    const auto forward =
        HybridForward::Create(spec(), *device_, compute, compute, {.max_rows = kMaxRows, .split = OneMicroBatch})
            .value();
    forward->shared().spin_seconds = spin_seconds;
    model::Logits logits;
    const absl::Status status = Run(*forward, Step(1), &logits);
    return std::pair(status, compute.layers);
  };
  constexpr double kForEver = std::numeric_limits<double>::infinity();
  const int64_t moe_layers = spec().num_moe_layers();
  EXPECT_EQ(run(1000, kForEver), std::pair(absl::OkStatus(), moe_layers));
  EXPECT_EQ(run(2, 0), std::pair(absl::OkStatus(), moe_layers)) << "there when the device is done";
  const auto [never, layers] = run(0, 0);
  EXPECT_EQ(never.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(never.message(), HasSubstr("has not handed over choices"));
  EXPECT_EQ(layers, 0);
}

class MixedHybridForwardTest : public HybridForwardTest {
 protected:
  MixedHybridForwardTest() : HybridForwardTest(SmallMixedSpec()) {}
};

TEST_F(MixedHybridForwardTest, HasTheEnginesBitsWithDenseLayersBetweenOthers) {
  size_t cut = 1;
  HostHybrid hybrid(*device_, *model_.segment, pool_, kMaxRows, [&](const model::CheckedBatch&) { return cut; });
  for (const int64_t batch : {1, 3}) ExpectTheEnginesBits(hybrid.forward(), Step(batch, 5), "mixed");
}

class GatedHybridForwardTest : public HybridForwardTest {
 protected:
  GatedHybridForwardTest() : HybridForwardTest(SmallGatedSpec()) {}
};

TEST_F(GatedHybridForwardTest, HasTheEnginesBitsWithASharedExpertBehindAGate) {
  size_t cut = 1;
  HostHybrid hybrid(*device_, *model_.segment, pool_, kMaxRows, [&](const model::CheckedBatch&) { return cut; });
  for (const int64_t batch : {1, 3}) ExpectTheEnginesBits(hybrid.forward(), Step(batch, 5), "gated");
}
class GroupedFormsTest : public HybridForwardTest, public ::testing::WithParamInterface<GroupedForm> {
 protected:
  GroupedFormsTest() : HybridForwardTest(GetParam().spec) {}
};

TEST_P(GroupedFormsTest, HaveTheEnginesBits) {
  HostHybrid hybrid(*device_, *model_.segment, pool_, kMaxRows, [](const model::CheckedBatch&) { return 2; });
  ExpectTheEnginesBits(hybrid.forward(), Step(3), GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(Attention, GroupedFormsTest, ::testing::ValuesIn(GroupedForms()),
                         [](const auto& form) { return form.param.name; });

class TypedHybridForwardTest : public TypedRunTest, public HybridForwardTest {
 protected:
  TypedHybridForwardTest() : HybridForwardTest(GetParam().options) {}
};

TEST_P(TypedHybridForwardTest, HasTheEnginesBits) {
  size_t cut = 0;
  HostHybrid hybrid(*device_, *model_.segment, pool_, kMaxRows, [&](const model::CheckedBatch&) { return cut; });
  for (const auto& [batch, first, chunk] : {std::tuple(1, 1, 1), std::tuple(4, 2, 1), std::tuple(3, 2, 20)}) {
    cut = first;
    ExpectTheEnginesBits(hybrid.forward(), Step(batch, chunk), GetParam().name);
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, TypedHybridForwardTest, ::testing::ValuesIn(TypedRuns()),
                         [](const auto& model) { return model.param.name; });

class GroupedHybridForwardTest : public HybridForwardTest {
 protected:
  GroupedHybridForwardTest() : HybridForwardTest(SmallGroupedSpec()) {}
};

TEST_F(GroupedHybridForwardTest, HasTheEnginesBitsForEveryBatchAndCut) {
  size_t cut = 0;
  HostHybrid hybrid(*device_, *model_.segment, pool_, kMaxRows, [&](const model::CheckedBatch&) { return cut; });
  for (int64_t batch = 1; batch <= kMaxBatch; ++batch) {
    for (cut = 1; cut <= static_cast<size_t>(batch); ++cut) {
      ExpectTheEnginesBits(hybrid.forward(), Step(batch), testing::PrintToString(std::pair(batch, cut)));
    }
  }
  for (cut = 1; cut <= 4; ++cut) ExpectTheEnginesBits(hybrid.forward(), Step(4, 20), testing::PrintToString(cut));
}

TEST_F(HybridForwardTest, HasTheEnginesBitsWithPromptsInTheStep) {
  size_t cut = 0;
  HostHybrid hybrid(*device_, *model_.segment, pool_, kMaxRows, [&](const model::CheckedBatch&) { return cut; });
  for (cut = 1; cut <= 4; ++cut) ExpectTheEnginesBits(hybrid.forward(), Step(4, 20), testing::PrintToString(cut));
}

TEST_F(HybridForwardTest, HasTheEnginesBitsWithDelaysInEveryThread) {
  RandomDelays delay;
  device::FaultyDevice faulty(*device_);
  faulty.set_fault([&](const std::string&) {
    delay();
    return absl::OkStatus();
  });
  size_t cut = 0;
  HostHybrid hybrid(
      faulty, *model_.segment, pool_, kMaxRows, [&](const model::CheckedBatch&) { return cut; }, [&] { delay(); });
  for (const int64_t batch : {2, 3, 5, 8}) {
    for (cut = 1; cut < static_cast<size_t>(batch); ++cut) {
      ExpectTheEnginesBits(hybrid.forward(), Step(batch), testing::PrintToString(std::pair(batch, cut)));
    }
  }
}

// The interrupt comes between layers; what fails in one half ends the other one, too.
TEST_F(HybridForwardTest, ErrorsEndTheStepAndNotTheNextOne) {
  HostHybrid hybrid(*device_, *model_.segment, pool_, kMaxRows, [](const model::CheckedBatch&) { return size_t{2}; });
  std::vector<EngineRow> bad = Step(4);
  model::Logits logits;
  for (const size_t row : {0, 3}) {
    bad[row].token = kNanToken;
    const absl::Status status = Run(hybrid.forward(), bad, &logits);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(status.message(), HasSubstr("layer"));
    bad[row].token = 30;
    ExpectTheEnginesBits(hybrid.forward(), Step(4), "after an error");
  }
  int asked = 0;
  const absl::Status interrupted = hybrid.forward().Forward(
      {Step(4), pages_}, [&] { return ++asked == 3 ? absl::AbortedError("enough") : absl::OkStatus(); },
      [](int64_t, std::span<const float>) { ADD_FAILURE(); });
  EXPECT_EQ(interrupted.message(), "enough");
  ExpectTheEnginesBits(hybrid.forward(), Step(4), "after an interrupt");
  bad[1].position = 10000;
  EXPECT_EQ(Run(hybrid.forward(), bad, &logits).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HybridForwardTest, WhateverFailsOnTheDeviceIsReportedAndNothingHangs) {
  device::FaultyDevice faulty(*device_);
  HostHybrid hybrid(faulty, *model_.segment, pool_, kMaxRows, [](const model::CheckedBatch&) { return size_t{1}; });
  std::set<std::string> seen;
  std::mutex mutex;
  faulty.set_fault([&](const std::string& operation) {
    std::lock_guard lock(mutex);
    seen.insert(operation);
    return absl::OkStatus();
  });
  ExpectTheEnginesBits(hybrid.forward(), Step(3), "before");
  for (const std::string& operation : std::set(seen)) {
    for (const int when : {1, 2, 5}) {
      if (operation == "run: head" && when > 1) continue;  // a step has one
      int count = 0;
      faulty.set_fault([&](const std::string& now) -> absl::Status {
        std::lock_guard lock(mutex);
        if (now != operation || ++count != when) return absl::OkStatus();
        return absl::UnavailableError("broken: " + operation);
      });
      model::Logits logits;
      const absl::Status status = Run(hybrid.forward(), Step(3), &logits);
      if (count >= when) {
        EXPECT_THAT(status.message(), HasSubstr("broken: " + operation));
      }
      faulty.set_fault([](const std::string&) { return absl::OkStatus(); });
      ExpectTheEnginesBits(hybrid.forward(), Step(3), "after " + operation);
    }
  }
  EXPECT_THAT(seen, testing::IsSupersetOf({"copy", "event", "launch", "record", "run: attend", "run: head"}));
}

TEST_F(HybridForwardTest, ADeviceWithoutStreamsIsLostInEveryStepUntilItHasSome) {
  device::FaultyDevice faulty(*device_);
  HostHybrid hybrid(faulty, *model_.segment, pool_, kMaxRows, [](const model::CheckedBatch&) { return size_t{1}; });
  for (const std::string broken : {"launch", "run: attend", "synchronize"}) {
    faulty.set_fault([&](const std::string& operation) -> absl::Status {
      return operation == broken || operation == "stream" ? absl::InternalError("lost: " + operation)
                                                          : absl::OkStatus();
    });
    for (const int64_t batch : {1, 3, 1}) {
      model::Logits logits;
      const absl::Status status = Run(hybrid.forward(), Step(batch), &logits);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(status.message(), HasSubstr("the device is lost: lost: stream"));
    }
    faulty.set_fault([](const std::string&) { return absl::OkStatus(); });
    if (broken == "run: attend") {
      model::Logits logits;
      EXPECT_EQ(Run(hybrid.forward(), Step(3), &logits).code(), absl::StatusCode::kInternal)
          << "its streams had failed";
    }
    ExpectTheEnginesBits(hybrid.forward(), Step(3), "after " + broken);
  }
}

TEST_F(HybridForwardTest, AStepAllocatesNothingOnTheDevice) {
  device::FaultyDevice counting(*device_);
  HostHybrid hybrid(counting, *model_.segment, pool_, kMaxRows, [](const model::CheckedBatch&) { return size_t{1}; });
  std::atomic<int> waits = 0;
  counting.set_fault([&](const std::string& operation) -> absl::Status {
    if (operation == "allocate" || operation == "stream") return absl::InternalError(operation + " in a step");
    if (operation == "event") ++waits;
    return absl::OkStatus();
  });
  ExpectTheEnginesBits(hybrid.forward(), Step(2), "two lanes");
  const int64_t moe_layers = spec().num_layers - spec().first_dense_layers;
  EXPECT_EQ(waits, 2 * (moe_layers + 1)) << "a thread waits for the device once a layer with experts, and at the end";
}

}  // namespace
}  // namespace moestro::decode
