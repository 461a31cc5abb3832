// Steps whose experts stream to the device: the engine's bits, whatever the schedule, the micro-batches and the experts
// that stay, and however the threads are scheduled.
#include "services/decode/throughput/batch_forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "common/device/host/host_device.h"
#include "common/engine/host/host_batch.h"
#include "tests/services/decode/step_fixture.h"
#include "tests/support/faulty_device.h"
#include "tests/support/typed_models.h"

namespace moestro::decode {

using model::EngineRow;

namespace {

using enum BatchSchedule;
using testing::HasSubstr;

constexpr BatchSchedule kSchedules[] = {kCgoPipe, kS2, kS3, kS4, kWholeLayer};

// With more layers: of two, the device has room for all.
weights::ModelSpec Deep(weights::ModelSpec spec) {
  spec.num_layers += 2;
  return spec;
}
SyntheticOptions Deep(SyntheticOptions options) {
  options.spec = Deep(options.spec);
  return options;
}

class BatchForwardTest : public StepTest {
 protected:
  explicit BatchForwardTest(const weights::ModelSpec& spec = SmallSpec()) : StepTest(Deep(spec)) {}
  explicit BatchForwardTest(const SyntheticOptions& options) : StepTest(Deep(options)) {}

  // memory_bytes: of each device.
  absl::StatusOr<std::unique_ptr<BatchForward>> Create(std::span<device::Device* const> devices, BatchSchedule schedule,
                                                       int64_t micro_batch, int64_t memory_bytes) {
    const auto make = [this, count = static_cast<int>(devices.size())](const model::ModelWeights& on_device) {
      return std::make_unique<engine::HostBatch>(spec(), on_device, TestKernels(), kMaxRows, /*threads=*/2, count);
    };
    auto forward = BatchForward::Create(spec(), weights_, TestKernels(), pool_, devices, make,
                                        {.max_rows = kMaxRows, .schedule = schedule, .memory_bytes = memory_bytes});
    if (forward.ok()) (*forward)->set_micro_batch(micro_batch);
    return forward;
  }
  absl::StatusOr<std::unique_ptr<BatchForward>> Create(device::Device& device, BatchSchedule schedule,
                                                       int64_t micro_batch, int64_t memory_bytes) {
    const std::array<device::Device*, 1> devices = {&device};
    return Create(devices, schedule, micro_batch, memory_bytes);
  }
  std::unique_ptr<BatchForward> Create(BatchSchedule schedule, int64_t micro_batch, int64_t memory_bytes) {
    auto forward = Create(*device_, schedule, micro_batch, memory_bytes);
    EXPECT_TRUE(forward.ok()) << forward.status();
    return *std::move(forward);
  }
  // What the fullest of so many devices takes where memory has no bound.
  int64_t MostMemory(BatchSchedule schedule, size_t devices) {
    const auto forward = Create(Devices(devices), schedule, kMaxBatch, int64_t{1} << 28).value();
    int64_t bytes = 0;
    for (size_t d = 0; d < devices; ++d) bytes = std::max(bytes, forward->device_bytes(d));
    return bytes;
  }
  // The least memory of each of so many devices with which a step of all sequences runs. Models of one size have one.
  int64_t LeastMemory(BatchSchedule schedule, size_t devices = 1) {
    static std::map<std::tuple<std::string, int64_t, BatchSchedule, size_t>, int64_t> known;
    std::string shapes(sizeof(spec()), 0);
    std::memcpy(shapes.data(), &spec(), sizeof(spec()));
    int64_t& least = known[{std::move(shapes), model_.memory.size(), schedule, devices}];
    if (least > 0) return least;
    int64_t fails = 0, works = MostMemory(schedule, devices);
    const auto runs = [&](int64_t bytes) {
      const auto forward = Create(Devices(devices), schedule, kMaxBatch, bytes);
      if (!forward.ok() || !AttendsOnDevice(schedule)) return forward.ok();
      model::Logits logits;  // the caches of a step may not fit
      return Run(**forward, Step(kMaxBatch), &logits).ok();
    };
    while (works - fails > 4096) {
      const int64_t middle = (fails + works) / 2;
      (runs(middle) ? works : fails) = middle;
    }
    return least = works;
  }

  std::span<device::Device* const> Devices(size_t count) const { return std::span(devices_).first(count); }

  const model::ModelWeights weights_ = model::BindWeights(*model_.segment).value();
  const std::unique_ptr<device::Device> device_ = device::NewHostDevice({});
  const std::unique_ptr<device::Device> second_ = device::NewHostDevice({});
  const std::unique_ptr<device::Device> third_ = device::NewHostDevice({});
  const std::array<device::Device*, 3> devices_ = {device_.get(), second_.get(), third_.get()};
};

class SchedulesTest : public BatchForwardTest, public testing::WithParamInterface<BatchSchedule> {};
std::string NameOfSchedule(const testing::TestParamInfo<BatchSchedule>& schedule) {
  std::string name(WordOf(kBatchScheduleWords, schedule.param));
  std::erase(name, '-');
  return name;
}

// From the least memory to more than all experts take; sequences of all lengths; more steps than one, because the last
// one has loaded the first layer of the next.
TEST_P(SchedulesTest, HasTheEnginesBitsForEveryMemoryAndCut) {
  const int64_t least = LeastMemory(GetParam());
  std::set<int64_t> resident;
  for (int64_t memory = least; memory <= 2 * least; memory += least / 3) {
    for (const int64_t micro_batch : {1, 2, 3, 5, 8}) {
      const auto forward = Create(GetParam(), micro_batch, memory);
      resident.insert(forward->pages().resident());
      for (const int64_t batch : {3, 8, 8}) {
        ExpectTheEnginesBits(*forward, Step(batch), testing::PrintToString(std::tuple(memory, micro_batch, batch)));
      }
      ExpectTheEnginesBits(*forward, Step(4, 20), "a prompt");
      EXPECT_EQ(device_->memory_used(), forward->device_bytes());
      EXPECT_LE(forward->device_bytes(), memory);
    }
  }
  EXPECT_GT(resident.size(), 2u) << "too few different shares of the experts";
  EXPECT_TRUE(AttendsOnDevice(GetParam()) || resident.contains(0));
}

TEST_P(SchedulesTest, HasTheEnginesBitsWithDelaysInEveryThread) {
  RandomDelays delay;
  device::FaultyDevice faulty(*device_);
  faulty.set_fault([&](const std::string&) {
    delay();
    return absl::OkStatus();
  });
  const int64_t memory = LeastMemory(GetParam());
  for (const int64_t micro_batch : {1, 2, 3}) {
    const auto forward = Create(faulty, GetParam(), micro_batch, memory).value();
    for (int i = 0; i < 3; ++i) ExpectTheEnginesBits(*forward, Step(kMaxBatch), "delays");
  }
}

TEST_P(SchedulesTest, ErrorsEndTheStepAndNotTheNextOne) {
  const auto forward = Create(GetParam(), 2, LeastMemory(GetParam()));
  std::vector<EngineRow> bad = Step(4);
  model::Logits logits;
  for (const size_t row : {0, 3}) {
    bad[row].token = kNanToken;
    const absl::Status status = Run(*forward, bad, &logits);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(status.message(), HasSubstr("layer"));
    bad[row].token = 30;
    ExpectTheEnginesBits(*forward, Step(4), "after an error");
  }
  int asked = 0;
  const absl::Status interrupted = forward->Forward(
      {Step(4), pages_}, [&] { return ++asked == 3 ? absl::AbortedError("enough") : absl::OkStatus(); },
      [](int64_t, std::span<const float>) { ADD_FAILURE(); });
  EXPECT_EQ(interrupted.message(), "enough");
  ExpectTheEnginesBits(*forward, Step(4), "after an interrupt");
  bad[1].position = 10000;
  EXPECT_EQ(Run(*forward, bad, &logits).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(SchedulesTest, WhateverFailsOnTheDeviceIsReportedAndNothingHangs) {
  device::FaultyDevice faulty(*device_);
  const auto forward = Create(faulty, GetParam(), 3, LeastMemory(GetParam())).value();
  ExpectTheEnginesBits(*forward, Step(kMaxBatch), "the first step, which makes events");
  std::map<std::string, int> seen;
  std::mutex mutex;
  faulty.set_fault([&](const std::string& operation) {
    std::lock_guard lock(mutex);
    ++seen[operation];
    return absl::OkStatus();
  });
  ExpectTheEnginesBits(*forward, Step(kMaxBatch), "before");
  EXPECT_GE(seen.size(), 8u);
  for (const auto& [operation, times] : seen) {
    for (const int at : {1, times / 2 + 1}) {
      std::atomic<int> calls = 0;
      faulty.set_fault([&, name = operation, at](const std::string& now) {
        return now == name && ++calls == at ? absl::DataLossError("planted") : absl::OkStatus();
      });
      model::Logits logits;
      const absl::Status status = Run(*forward, Step(kMaxBatch), &logits);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << operation << ": " << status;
      faulty.set_fault([](const std::string&) { return absl::OkStatus(); });
      ExpectTheEnginesBits(*forward, Step(kMaxBatch), "after " + operation);
    }
  }
}

// Each device has its rows of every expert: two and three of them, for every schedule, share of the experts that stays,
// and cut.
TEST_P(SchedulesTest, HasTheEnginesBitsOnSeveralDevices) {
  for (const size_t count : {2, 3}) {
    const int64_t least = LeastMemory(GetParam(), count);
    std::set<int64_t> resident;
    for (int64_t memory = least; memory <= 2 * least; memory += least / 2) {
      for (const int64_t micro_batch : {1, 3}) {
        const auto forward = Create(Devices(count), GetParam(), micro_batch, memory).value();
        resident.insert(forward->pages().resident());
        for (const int64_t batch : {3, 8}) {
          ExpectTheEnginesBits(*forward, Step(batch),
                               testing::PrintToString(std::tuple(count, memory, micro_batch, batch)));
        }
        ExpectTheEnginesBits(*forward, Step(4, 20), "a prompt");
        for (size_t d = 0; d < count; ++d) {
          EXPECT_EQ(devices_[d]->memory_used(), forward->device_bytes(d)) << d;
          EXPECT_LE(forward->device_bytes(d), memory) << d;
          EXPECT_GT(forward->device_bytes(d), 0) << d;
        }
        // All rows once, the scales of a block of rows perhaps twice, and biases on each.
        if (resident.contains(0) && resident.size() == 1) {
          const int64_t alone =
              Create(GetParam(), micro_batch, 2 * least * static_cast<int64_t>(count))->streamed_bytes();
          EXPECT_TRUE(alone == 0 || forward->streamed_bytes() < alone * 5 / 4) << forward->streamed_bytes();
        }
      }
    }
    EXPECT_GE(resident.size(), 2u) << "too few different shares of the experts";
  }
}

TEST_P(SchedulesTest, HasTheEnginesBitsOnSeveralDevicesWithDelaysInEveryThread) {
  RandomDelays delay;
  const auto slow = [&](const std::string&) {
    delay();
    return absl::OkStatus();
  };
  device::FaultyDevice first(*device_), second(*second_);
  first.set_fault(slow);
  second.set_fault(slow);
  const std::array<device::Device*, 2> devices = {&first, &second};
  const int64_t memory = LeastMemory(GetParam(), 2);
  for (const int64_t micro_batch : {1, 3}) {
    const auto forward = Create(devices, GetParam(), micro_batch, memory).value();
    for (int i = 0; i < 3; ++i) ExpectTheEnginesBits(*forward, Step(kMaxBatch), "delays");
  }
}

TEST_P(SchedulesTest, WhateverFailsOnAnotherDeviceIsReportedAndNothingHangs) {
  device::FaultyDevice first(*device_), second(*second_);
  const std::array<device::Device*, 2> devices = {&first, &second};
  const auto forward = Create(devices, GetParam(), 3, LeastMemory(GetParam(), 2)).value();
  ExpectTheEnginesBits(*forward, Step(kMaxBatch), "before");
  for (const std::string operation : {"copy", "record", "wait"}) {
    std::atomic<int> calls = 0;
    second.set_fault([&](const std::string& now) {
      return now == operation && ++calls == 2 ? absl::DataLossError("planted") : absl::OkStatus();
    });
    model::Logits logits;
    const absl::Status status = Run(*forward, Step(kMaxBatch), &logits);
    second.set_fault([](const std::string&) { return absl::OkStatus(); });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << operation << ": " << status;
    ExpectTheEnginesBits(*forward, Step(kMaxBatch), "after " + operation);
  }
  second.set_fault([&](const std::string& now) {
    return now == "copy" || now == "stream" ? absl::InternalError("gone: " + now) : absl::OkStatus();
  });
  model::Logits logits;
  const absl::Status lost = Run(*forward, Step(kMaxBatch), &logits);
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable) << lost;
  EXPECT_THAT(lost.message(), HasSubstr("a device is lost: gone: stream"));
}

INSTANTIATE_TEST_SUITE_P(All, SchedulesTest, testing::ValuesIn(kSchedules), NameOfSchedule);

// The places of layers change from step to step where an odd number of them streams.
TEST_F(BatchForwardTest, HasTheEnginesBitsForEveryShareOfTheExperts) {
  std::set<size_t> streamed;
  int64_t resident = -1;
  for (int64_t memory = LeastMemory(kCgoPipe);; memory += 16384) {
    const auto forward = Create(kCgoPipe, 3, memory);
    if (forward->pages().resident() == resident) continue;
    resident = forward->pages().resident();
    streamed.insert(forward->pages().streamed().size());
    for (int step = 0; step < 3; ++step) {
      ExpectTheEnginesBits(*forward, Step(kMaxBatch), testing::PrintToString(resident));
    }
    if (resident == forward->pages().experts()) break;
  }
  EXPECT_EQ(streamed, (std::set<size_t>{0, 3, 4})) << "for one or two layers that stream all experts would fit";
}

TEST_F(BatchForwardTest, SaysWhatDoesNotFit) {
  EXPECT_THAT(Create(*device_, kCgoPipe, 1, 1000).status().message(), HasSubstr("queries and outputs of 32 rows"));
  const int64_t least = LeastMemory(kCgoPipe);
  EXPECT_THAT(Create(*device_, kCgoPipe, 1, least - 8192).status().message(),
              HasSubstr("routed experts of two layers need"));
  const std::vector<device::Device*> many(static_cast<size_t>(CeilDiv(spec().hidden_size, 64) + 1), device_.get());
  EXPECT_THAT(Create(many, kCgoPipe, 1, least).status().message(), HasSubstr("one would have none; use at most"));
  const auto small = device::NewHostDevice({.memory_bytes = least - 8192});
  EXPECT_THAT(Create(*small, kCgoPipe, 1, least).status().message(), HasSubstr("device memory wanted"));
}

// Of experts so small that little is left for caches beside them.
class SmallCachesTest : public BatchForwardTest {
 protected:
  SmallCachesTest() : BatchForwardTest(FewExperts()) {}
  static weights::ModelSpec FewExperts() {
    weights::ModelSpec spec = SmallSpec();
    spec.num_experts = 1;
    spec.moe_intermediate_size = 48;
    spec.experts_per_token = 1;
    spec.num_expert_groups = 1;
    spec.experts_topk_groups = 1;
    return spec;
  }
};

TEST_F(SmallCachesTest, WhatDoesNotFitTogetherTakesMoreMicroBatches) {
  const auto forward = Create(kS4, kMaxBatch, LeastMemory(kS4));
  ExpectTheEnginesBits(*forward, Step(kMaxBatch), "more micro-batches");
  EXPECT_GT(forward->tasks().shape.micro_batches, 1);
}

TEST_F(SmallCachesTest, SayWhoseCacheDoesNotFit) {
  model::Logits logits;
  const auto forward = Create(kS4, kMaxBatch, LeastMemory(kS4));
  const absl::Status one = Run(*forward, Step(kMaxBatch, 20), &logits);
  EXPECT_EQ(one.code(), absl::StatusCode::kInvalidArgument) << one << ": it never will";
  EXPECT_THAT(one.message(), HasSubstr("room for the cache of 128 tokens, and one sequence has 192"));
  ExpectTheEnginesBits(*forward, Step(kMaxBatch), "after what does not fit");
  const auto whole = Create(kWholeLayer, 1, LeastMemory(kS4));
  EXPECT_THAT(Run(*whole, Step(kMaxBatch), &logits).message(), HasSubstr("all sequences together have more"));
}

// With costs a step is cut as they say.
class MeasuredCostsTest : public BatchForwardTest, public testing::WithParamInterface<BatchSchedule> {
 protected:
  MeasuredCostsTest() : BatchForwardTest(SyntheticOptions{.spec = SmallSpec()}) {}
};

TEST_P(MeasuredCostsTest, HaveTheEnginesBits) {
  const auto forward = Create(GetParam(), 1, int64_t{64} << 20);
  const auto costs = MeasureStepCosts(*forward, kMaxBatch);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(forward->forecast().seconds, 0);
  forward->set_costs(*costs, /*choose=*/true);
  for (const int64_t batch : {1, 3, 8}) {
    ExpectTheEnginesBits(*forward, Step(batch), "costs");
    EXPECT_GT(forward->forecast().seconds, 0);
  }
  ExpectTheEnginesBits(*forward, Step(4, 20), "costs and a prompt");
  const BatchCounts counts = forward->counts();
  EXPECT_EQ(counts.steps, 4);
  EXPECT_GE(counts.micro_batches, 4);
  EXPECT_GT(counts.forecast_seconds, 0);
  for (const double busy : counts.busy_seconds) EXPECT_GT(busy, 0);
}

INSTANTIATE_TEST_SUITE_P(All, MeasuredCostsTest, testing::ValuesIn(kSchedules), NameOfSchedule);

class GroupedFormsTest : public BatchForwardTest, public ::testing::WithParamInterface<GroupedForm> {
 protected:
  GroupedFormsTest() : BatchForwardTest(GetParam().spec) {}
};

TEST_P(GroupedFormsTest, HaveTheEnginesBits) {
  for (const BatchSchedule schedule : kSchedules) {
    const auto forward = Create(schedule, 2, LeastMemory(schedule));
    for (const int64_t chunk : {1, 20}) ExpectTheEnginesBits(*forward, Step(5, chunk), GetParam().name);
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, GroupedFormsTest, ::testing::ValuesIn(GroupedForms()),
                         [](const auto& form) { return form.param.name; });

class TypedBatchForwardTest : public TypedRunTest, public BatchForwardTest {
 protected:
  TypedBatchForwardTest() : BatchForwardTest(GetParam().options) {}
};

TEST_P(TypedBatchForwardTest, HasTheEnginesBits) {
  for (const BatchSchedule schedule : {kCgoPipe, kS4}) {
    const auto forward = Create(schedule, 2, LeastMemory(schedule));
    for (const int64_t chunk : {1, 20}) ExpectTheEnginesBits(*forward, Step(5, chunk), GetParam().name);
  }
}

TEST_P(TypedBatchForwardTest, HasTheEnginesBitsOnSeveralDevices) {
  for (const size_t count : {2, 3}) {
    const auto forward = Create(Devices(count), kCgoPipe, 2, LeastMemory(kCgoPipe, count)).value();
    for (const int64_t chunk : {1, 20}) ExpectTheEnginesBits(*forward, Step(5, chunk), GetParam().name);
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, TypedBatchForwardTest, ::testing::ValuesIn(TypedRuns()),
                         [](const auto& model) { return model.param.name; });

class DenseLayersTest : public BatchForwardTest {
 protected:
  DenseLayersTest() : BatchForwardTest(SmallMixedSpec()) {}
};

TEST_F(DenseLayersTest, HaveTheEnginesBits) {
  for (const BatchSchedule schedule : kSchedules) {
    const auto forward = Create(schedule, 3, LeastMemory(schedule));
    for (int i = 0; i < 3; ++i) ExpectTheEnginesBits(*forward, Step(7), "dense layers between others");
  }
}

class SharedGateTest : public BatchForwardTest {
 protected:
  SharedGateTest() : BatchForwardTest(SmallGatedSpec()) {}
};

TEST_F(SharedGateTest, HasTheEnginesBits) {
  const auto forward = Create(kCgoPipe, 2, LeastMemory(kCgoPipe));
  ExpectTheEnginesBits(*forward, Step(5), "a shared expert behind a gate");
}

}  // namespace
}  // namespace moestro::decode
