// Experts on the device and on the CPU: the CPU's bits under every schedule, whatever is held.
#include "services/decode/overlap/scheduled_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <set>

#include "common/device/host/host_device.h"
#include "common/engine/host/host_decode.h"
#include "common/experts/replay.h"
#include "common/model/routing_recorder.h"
#include "tests/support/faulty_device.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"
#include "tests/support/typed_models.h"

namespace moestro::decode {
namespace {

using experts::Policy;
using experts::Schedule;
using testing::HasSubstr;

constexpr Schedule kTwoPlaceSchedules[] = {Schedule::kFixed, Schedule::kHybrid, Schedule::kOnDemand};
constexpr Policy kPolicies[] = {Policy::kLru, Policy::kLfu, Policy::kMrs, Policy::kFirstLayers};

constexpr int64_t kScheduledRows = 6;

class ScheduledExpertsTest : public testing::Test {
 protected:
  explicit ScheduledExpertsTest(const SyntheticOptions& options = {.spec = SmallMixedSpec()})
      : model_(MakeSyntheticSegment(options)) {}

  const weights::ModelSpec& spec() const { return model_.segment->spec(); }
  int64_t layers() const { return spec().num_moe_layers(); }

  ScheduledExperts::Options Options(int64_t slots, int64_t most_loads, Schedule schedule, Policy policy = Policy::kLru,
                                    int64_t prefetch_layers = 0) const {
    const int64_t bytes = DeviceExpertBytes(spec(), weights_);
    return {.schedule = schedule,
            .policy = policy,
            .budget_bytes = (slots * layers() + most_loads) * bytes + 1,  // a little is left
            .most_loads = most_loads,
            .prefetch_layers = prefetch_layers,
            .max_rows = kScheduledRows};
  }
  // Room for so many experts of each layer.
  std::unique_ptr<ScheduledExperts> Make(int64_t slots, int64_t most_loads = 2, Schedule schedule = Schedule::kFixed) {
    return Create(Options(slots, most_loads, schedule)).value();
  }
  absl::StatusOr<std::unique_ptr<ScheduledExperts>> Create(const ScheduledExperts::Options& options) {
    return ScheduledExperts::Create(spec(), weights_, kernels_, pool_, cpu_, compute_, device_, options);
  }

  // Random inputs and choices of `count` rows.
  void Draw(int64_t count) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count * spec().hidden_size; ++i) x_[static_cast<size_t>(i)] = ToBf16(normal(random_));
    choices_.clear();
    for (int64_t row = 0; row < count; ++row) {
      std::set<int32_t> ids;
      while (std::ssize(ids) < spec().experts_per_token)
        ids.insert(static_cast<int32_t>(random_() % spec().num_experts));
      for (const int32_t id : ids) choices_.push_back({id, normal(random_)});
    }
  }
  std::vector<float> Sums(engine::RoutedExperts& experts, int64_t layer, int64_t count) {
    std::vector<float> sums(static_cast<size_t>(count * spec().hidden_size), -1);
    const absl::Status status = experts.Run(layer, count, {x_.data(), choices_.data(), sums.data()});
    EXPECT_TRUE(status.ok()) << status;
    return sums;
  }
  void ExpectTheCpusBits(ScheduledExperts& scheduled, int64_t layer, int64_t count) {
    const std::vector<float> expected = Sums(cpu_, layer, count);
    const std::vector<float> actual = Sums(scheduled, layer, count);
    EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0) << layer << " " << count;
  }

  const SyntheticSegment model_;
  const model::ModelWeights weights_ = model::BindWeights(*model_.segment).value();
  const CpuKernels& kernels_ = TestKernels();
  WorkerPool pool_{2};
  CpuExperts cpu_{spec(), weights_, kernels_, pool_, 2 * kScheduledRows};
  engine::HostDecode compute_{spec(), weights_, kernels_, kScheduledRows, /*threads=*/1, /*hot_rows=*/kScheduledRows};
  const std::unique_ptr<device::Device> host_ = device::NewHostDevice({});
  device::FaultyDevice device_{*host_};
  std::mt19937 random_{1};
  std::vector<uint16_t> x_ = std::vector<uint16_t>(static_cast<size_t>(2 * kScheduledRows * spec().hidden_size));
  std::vector<model::ExpertChoice> choices_;
};

// Costs of which every kind of plan is the best at times: 1 for an expert on the CPU and a row, and a random load.
experts::ExpertCosts RandomTwoPlaceCosts(std::mt19937& random) {
  const auto draw = [&] { return std::uniform_real_distribution(0.0, 2.0)(random); };
  return {.host = experts::SecondsByRows({1, 2, 4}),
          .host_start = draw(),
          .device = experts::SecondsByRows({draw()}),
          .device_start = draw(),
          .load = draw()};
}

TEST_F(ScheduledExpertsTest, HasTheCpusBitsUnderEveryScheduleAndPolicy) {
  for (const Schedule schedule : kTwoPlaceSchedules) {
    for (const Policy policy : kPolicies) {
      for (const int64_t prefetch : {0, 3}) {
        for (const int64_t slots : {int64_t{1}, spec().num_experts / 2, spec().num_experts}) {
          const bool whole = policy == Policy::kFirstLayers;
          if (whole && slots * layers() < spec().num_experts) continue;
          const auto scheduled = Create(Options(slots, 3, schedule, policy, prefetch)).value();
          for (int pass = 0; pass < 9 * layers(); ++pass) {
            if (pass % (3 * layers()) == 0) {
              scheduled->SetCosts(RandomTwoPlaceCosts(random_));
              scheduled->Forget();
            }
            const auto count = static_cast<int64_t>(1 + random_() % kScheduledRows);
            Draw(count);
            ExpectTheCpusBits(*scheduled, spec().MoeLayer(pass % layers()), count);
          }
          const ExpertCounts counts = scheduled->counts();
          EXPECT_GT(counts.hits, 0);
          EXPECT_GT(counts.on_device, 0);
          EXPECT_GE(counts.loads_ahead, counts.foreseen_hits);
          EXPECT_TRUE(prefetch > 0 || counts.loads_ahead == 0);
          EXPECT_TRUE(counts.loads > 0 || whole) << static_cast<int>(schedule) << " " << slots;
        }
      }
    }
  }
}

// The routers of a layer's neighbours foresee for the same input what they choose for it.
TEST_F(ScheduledExpertsTest, WhatIsLoadedAheadIsFoundThere) {
  const auto scheduled = Create(Options(1, 4, Schedule::kHybrid, Policy::kMrs, /*prefetch_layers=*/3)).value();
  scheduled->SetCosts(
      {.host = experts::SecondsByRows({1, 2, 4}), .device = experts::SecondsByRows({0.1}), .load = 0.5, .between = 2});
  ASSERT_GT(layers(), 1);
  const std::span<const uint16_t> x(x_);
  model::GateReuse gates(spec(), weights_, kernels_, pool_, kScheduledRows);
  for (int step = 0; step < 20; ++step) {
    Draw(2);
    for (int64_t i = 0; i < layers(); ++i) {
      ExpectTheCpusBits(*scheduled, spec().MoeLayer(i), 2);
      if (i + 1 == layers()) break;
      std::vector<model::ExpertChoice> next(choices_.size());
      gates.Foresee({.layer = spec().MoeLayer(i), .choices = choices_, .x = x.data()}, 1, next);
      choices_ = next;
    }
  }
  EXPECT_GT(scheduled->counts().foreseen_hits, 0);
}

// Loads within passes, on a bus that is slow and on a device that waits for it.
TEST_F(ScheduledExpertsTest, HasTheCpusBitsWhileTheDeviceWaitsForLoads) {
  const auto slow = device::NewHostDevice({.copy_bytes_per_second = 1e8});
  const auto scheduled = ScheduledExperts::Create(spec(), weights_, kernels_, pool_, cpu_, compute_, *slow,
                                                  Options(1, spec().num_experts, Schedule::kOnDemand))
                             .value();
  for (int pass = 0; pass < 8; ++pass) {
    Draw(kScheduledRows);
    ExpectTheCpusBits(*scheduled, spec().MoeLayer(pass % layers()), kScheduledRows);
  }
  EXPECT_GT(scheduled->counts().loads, 2 * 8);
}

TEST_F(ScheduledExpertsTest, HasTheCpusBitsWithMeasuredCosts) {
  const auto scheduled = Make(spec().num_experts / 2, 2, Schedule::kHybrid);
  ASSERT_TRUE(scheduled->MeasureCosts(device_).ok());
  const experts::ExpertCosts& costs = scheduled->costs();
  EXPECT_GT(costs.host_start + costs.host.At(1), 0);
  EXPECT_GT(costs.device_start + costs.device.At(1), 0);
  EXPECT_GT(costs.load, 0);
  for (int pass = 0; pass < 20; ++pass) {
    Draw(1 + pass % kScheduledRows);
    ExpectTheCpusBits(*scheduled, spec().MoeLayer(pass % layers()), 1 + pass % kScheduledRows);
  }
  EXPECT_GT(scheduled->counts().planned_seconds, 0);
  EXPECT_GT(scheduled->counts().measured_seconds, 0);
}

// The recording of a run, replayed with the run's costs, has its hits and its loads.
TEST_F(ScheduledExpertsTest, HitsAreThoseOfTheReplay) {
  const std::string path = testing::TempDir() + "scheduled_experts_trace-" + std::to_string(getpid());
  const int64_t slots = spec().num_experts / 2, loads = 3;
  int64_t ahead = 0;
  for (const Schedule schedule : kTwoPlaceSchedules) {
    for (const Policy policy : kPolicies) {
      for (const int64_t prefetch : {0, 2}) {
        const auto scheduled = Create(Options(slots, loads, schedule, policy, prefetch)).value();
        experts::ExpertCosts costs = RandomTwoPlaceCosts(random_);
        costs.between = 1;
        scheduled->SetCosts(costs);
        scheduled->Forget();
        {
          const auto recorder =
              model::RoutingRecorder::Create(path, *model_.segment, kernels_, pool_, kScheduledRows).value();
          for (uint32_t step = 0; step < 20; ++step) {
            const auto count = static_cast<int64_t>(1 + random_() % kScheduledRows);
            recorder->trace().Begin(
                std::vector<model::TracedToken>(static_cast<size_t>(count), {.sequence = 1, .position = step}));
            for (int64_t i = 0; i < layers(); ++i) {
              Draw(count);
              Sums(*scheduled, spec().MoeLayer(i), count);
              recorder->Note({.layer = spec().MoeLayer(i), .choices = choices_, .x = x_.data()});
            }
            ASSERT_TRUE(recorder->trace().End().ok());
          }
        }
        experts::ExpertPlanner planner({.moe_layers = layers(),
                                        .num_experts = spec().num_experts,
                                        .slots = slots,
                                        .most_loads = loads,
                                        .schedule = schedule,
                                        .policy = policy});
        planner.SetCosts(costs);
        const auto reader = model::RoutingTraceReader::Open(path).value();
        const experts::CacheCounts replayed =
            experts::ReplayExperts(*reader, /*prompts=*/true, prefetch, planner).value();
        const ExpertCounts counts = scheduled->counts();
        EXPECT_EQ(replayed.hits, counts.hits) << static_cast<int>(schedule) << " " << static_cast<int>(policy);
        EXPECT_EQ(replayed.misses, counts.misses);
        EXPECT_EQ(replayed.loads, counts.loads);
        EXPECT_EQ(replayed.loads_ahead, counts.loads_ahead);
        EXPECT_EQ(replayed.foreseen_hits, counts.foreseen_hits);
        ahead += counts.loads_ahead;
      }
    }
  }
  EXPECT_GT(ahead, 0);
  std::filesystem::remove(path);
}

// Experts with biases, and an activation with a clamp that numbers reach.
class ScheduledClampedExpertsTest : public ScheduledExpertsTest {
 protected:
  static weights::ModelSpec Spec() {
    weights::ModelSpec spec = SmallMixedSpec();
    spec.expert_biases = 1;
    spec.swiglu_limit = 1.25;
    spec.swiglu_alpha = 1.702;
    return spec;
  }
  ScheduledClampedExpertsTest() : ScheduledExpertsTest({.spec = Spec()}) {}
};

TEST_F(ScheduledClampedExpertsTest, HasTheCpusBits) {
  const auto scheduled = Make(spec().num_experts / 2);
  for (int pass = 0; pass < 10; ++pass) {
    Draw(3);
    for (int64_t layer = 0; layer < spec().num_layers; ++layer) {
      if (spec().IsMoeLayer(layer)) ExpectTheCpusBits(*scheduled, layer, 3);
    }
  }
  EXPECT_GT(scheduled->counts().hits, 0);
}

class TypedScheduledExpertsTest : public TypedRunTest, public ScheduledExpertsTest {
 protected:
  TypedScheduledExpertsTest() : ScheduledExpertsTest(GetParam().options) {}
};

TEST_P(TypedScheduledExpertsTest, HaveTheCpusBits) {
  const auto scheduled = Make(spec().num_experts / 2);
  for (int pass = 0; pass < 10; ++pass) {
    Draw(1 + pass % kScheduledRows);
    for (int64_t i = 0; i < layers(); ++i) ExpectTheCpusBits(*scheduled, spec().MoeLayer(i), 1 + pass % kScheduledRows);
  }
  EXPECT_GT(scheduled->counts().hits, 0);
  EXPECT_GT(scheduled->counts().misses, 0);
}

INSTANTIATE_TEST_SUITE_P(Weights, TypedScheduledExpertsTest, ::testing::ValuesIn(TypedRuns()),
                         [](const auto& model) { return model.param.name; });

TEST_F(ScheduledExpertsTest, HoldsEverythingInTheEnd) {
  const auto scheduled = Make(spec().num_experts, /*loads_per_pass=*/spec().num_experts);
  Draw(kScheduledRows);
  ExpectTheCpusBits(*scheduled, spec().MoeLayer(0), kScheduledRows);
  const int64_t misses = scheduled->counts().misses;
  ExpectTheCpusBits(*scheduled, spec().MoeLayer(0), kScheduledRows);
  EXPECT_EQ(scheduled->counts().misses, misses);
  EXPECT_EQ(scheduled->counts().hits, misses);
}

TEST_F(ScheduledExpertsTest, PromptsLeaveTheCacheAsItIs) {
  const auto scheduled = Make(2);
  Draw(2 * kScheduledRows);
  ExpectTheCpusBits(*scheduled, spec().MoeLayer(0), kScheduledRows + 1);
  EXPECT_EQ(scheduled->counts().hits + scheduled->counts().misses, 0);
}

TEST_F(ScheduledExpertsTest, TakesItsMemoryFromTheDevice) {
  const int64_t before = device_.memory_used();
  {
    const auto scheduled = Make(3);
    EXPECT_GE(device_.memory_used() - before, 3 * layers() * DeviceExpertBytes(spec(), weights_));
  }
  EXPECT_EQ(device_.memory_used(), before);
  const auto small = device::NewHostDevice({.memory_bytes = 1000});
  EXPECT_EQ(ScheduledExperts::Create(spec(), weights_, kernels_, pool_, cpu_, compute_, *small,
                                     Options(3, 1, Schedule::kFixed))
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(ScheduledExpertsTest, SaysWhatTheBudgetDoesNotPayFor) {
  ScheduledExperts::Options options = Options(1, 2, Schedule::kHybrid);
  options.budget_bytes /= 2;
  EXPECT_THAT(Create(options).status().message(), HasSubstr("layers, and 2 that are being loaded"));
  options = Options(0, 0, Schedule::kFixed, Policy::kFirstLayers);
  options.budget_bytes = (spec().num_experts - 1) * DeviceExpertBytes(spec(), weights_);
  const absl::Status split = Create(options).status();
  EXPECT_EQ(split.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(split.message(), HasSubstr("experts of a layer"));
}

TEST_F(ScheduledExpertsTest, AFailureIsReportedAndNotRemembered) {
  const auto scheduled = Make(spec().num_experts);
  const int64_t layer = spec().MoeLayer(0);
  Draw(3);
  ExpectTheCpusBits(*scheduled, layer, 3);
  for (const std::string broken : {"run: hot experts", "copy", "event", "record", "wait"}) {
    for (int pass = 0; pass < 3; ++pass) ExpectTheCpusBits(*scheduled, layer, 3);
    device_.set_fault([&](const std::string& operation) -> absl::Status {
      return operation == broken ? absl::UnavailableError("broken: " + broken) : absl::OkStatus();
    });
    std::vector<float> sums(static_cast<size_t>(3 * spec().hidden_size));
    const absl::Status status = scheduled->Run(layer, 3, {x_.data(), choices_.data(), sums.data()});
    EXPECT_THAT(status.message(), HasSubstr("broken: " + broken));
    device_.set_fault([](const std::string&) { return absl::OkStatus(); });
    ExpectTheCpusBits(*scheduled, layer, 3);
  }
}

TEST_F(ScheduledExpertsTest, WithoutNewStreamsEveryPassFailsUntilThereAreSome) {
  const auto scheduled = Make(spec().num_experts);
  const int64_t layer = spec().MoeLayer(0);
  Draw(3);
  for (int pass = 0; pass < 3; ++pass) ExpectTheCpusBits(*scheduled, layer, 3);
  device_.set_fault([&](const std::string& operation) -> absl::Status {
    return operation == "copy" || operation == "stream" ? absl::InternalError("lost: " + operation) : absl::OkStatus();
  });
  std::vector<float> sums(static_cast<size_t>(3 * spec().hidden_size));
  for (int pass = 0; pass < 3; ++pass) {
    const absl::Status status = scheduled->Run(layer, 3, {x_.data(), choices_.data(), sums.data()});
    EXPECT_THAT(status.message(), HasSubstr("lost: stream"));
  }
  device_.set_fault([](const std::string&) { return absl::OkStatus(); });
  for (int pass = 0; pass < 3; ++pass) ExpectTheCpusBits(*scheduled, layer, 3);
}

}  // namespace
}  // namespace moestro::decode
