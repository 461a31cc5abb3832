// Steps do not allocate once they have been made before: neither the threads of the lanes, nor what they call.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "common/device/host/host_device.h"
#include "services/decode/overlap/scheduled_experts.h"
#include "services/decode/overlap/split.h"
#include "tests/common/model/engine_harness.h"
#include "tests/services/decode/overlap/overlap_fixture.h"
#include "tests/support/test_kernels.h"
#include "tests/support/thread_allocations.h"

namespace moestro::decode {
namespace {

// A stream whose own allocations do not count: what the host device puts into queues, a GPU's driver has places for.
class UncountedStream final : public device::Stream {
 public:
  explicit UncountedStream(std::unique_ptr<device::Stream> stream) : stream_(std::move(stream)) {}

  absl::Status CopyToDevice(uint8_t* to, const uint8_t* from, int64_t bytes) override {
    const UncountedAllocations uncounted;
    return stream_->CopyToDevice(to, from, bytes);
  }
  absl::Status CopyToHost(uint8_t* to, const uint8_t* from, int64_t bytes) override {
    const UncountedAllocations uncounted;
    return stream_->CopyToHost(to, from, bytes);
  }
  absl::Status Launch(device::Kernel kernel) override {
    const UncountedAllocations uncounted;
    return stream_->Launch(std::move(kernel));
  }
  absl::Status Record(device::Event& event) override {
    const UncountedAllocations uncounted;
    return stream_->Record(event);
  }
  absl::Status WaitFor(device::Event& event) override {
    const UncountedAllocations uncounted;
    return stream_->WaitFor(event);
  }
  absl::Status Synchronize() override {
    const UncountedAllocations uncounted;
    return stream_->Synchronize();
  }

 private:
  const std::unique_ptr<device::Stream> stream_;
};

class UncountedDevice final : public device::Device {
 public:
  std::string_view name() const override { return host_->name(); }
  int64_t memory_bytes() const override { return host_->memory_bytes(); }
  int64_t memory_used() const override { return host_->memory_used(); }
  int64_t memory_free() const override { return host_->memory_free(); }
  absl::StatusOr<device::Memory> Allocate(int64_t bytes, const std::string& what) override {
    return host_->Allocate(bytes, what);
  }
  absl::StatusOr<device::Registration> Register(const uint8_t* data, int64_t bytes,
                                                device::HostAccess access) override {
    return host_->Register(data, bytes, access);
  }
  absl::StatusOr<std::unique_ptr<device::Stream>> NewStream(std::string_view stream) override {
    return std::make_unique<UncountedStream>(host_->NewStream(stream).value());
  }
  absl::StatusOr<std::unique_ptr<device::Event>> NewEvent() override { return host_->NewEvent(); }
  double Now() const override { return host_->Now(); }

 private:
  const std::unique_ptr<device::Device> host_ = device::NewHostDevice({});
};

class SteadyStepTest : public testing::Test {
 protected:
  static constexpr int64_t kSequences = 4;
  static constexpr int kWarmUpSteps = 20;
  static constexpr int kSteps = 20;

  SteadyStepTest() {
    for (int i = 0; i < kSequences; ++i) {
      sequences_.emplace_back(spec(), kWarmUpSteps + kSteps);
      pages_.push_back(sequences_.back().pages());
    }
  }
  const weights::ModelSpec& spec() const { return model_.segment->spec(); }

  // Allocations of the threads of both lanes in kSteps steps, one token of each sequence each.
  std::array<int64_t, engine::kMaxLanes> Allocations(engine::RoutedExperts& experts, SplitPolicy split) {
    // What a lane's thread has allocated when it last came to the experts: from one step's last layer to the next's.
    std::array<int64_t, engine::kMaxLanes> last = {};
    const std::thread::id first_lane = std::this_thread::get_id();
    WatchedExperts watched(experts,
                           [&] { last[std::this_thread::get_id() == first_lane ? 0 : 1] = ThreadAllocations(); });
    const auto forward =
        HybridForward::Create(spec(), device_, compute_, watched, {.max_rows = kSequences, .split = std::move(split)})
            .value();
    std::array<int64_t, engine::kMaxLanes> before = {};
    for (int32_t step = 0; step < kWarmUpSteps + kSteps; ++step) {
      std::array<model::EngineRow, kSequences> rows;
      for (int32_t i = 0; i < kSequences; ++i) {
        rows[static_cast<size_t>(i)] = {
            .token = 20 + (7 * step + i) % 50, .position = step, .sequence = i, .needs_logits = true};
      }
      int64_t logits = 0;
      const absl::Status status = forward->Forward({rows, pages_, model::MlaForm::kAbsorbed}, model::NeverInterrupted,
                                                   [&](int64_t, std::span<const float>) { ++logits; });
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(logits, kSequences);
      if (step + 1 == kWarmUpSteps) before = last;
    }
    return {last[0] - before[0], last[1] - before[1]};
  }

  const SyntheticSegment model_ = MakeSyntheticSegment({.spec = SmallSpec()});
  const model::ModelWeights weights_ = model::BindWeights(*model_.segment).value();
  const CpuKernels& kernels_ = TestKernels();
  WorkerPool workers_{2};
  UncountedDevice device_;
  engine::HostDecode compute_{spec(), weights_, kernels_, kSequences, /*threads=*/2, /*hot_rows=*/kSequences};
  CpuExperts cpu_{spec(), weights_, kernels_, workers_, kSequences};
  std::vector<model::TestSequence> sequences_;
  std::vector<kv::KvPages> pages_;
};

constexpr std::array<int64_t, engine::kMaxLanes> kNone = {};

TEST_F(SteadyStepTest, TheCounterCounts) {
  const int64_t before = ThreadAllocations();
  { const std::vector<int> one(1); }
  EXPECT_EQ(ThreadAllocations() - before, 1);
  {
    const UncountedAllocations uncounted;
    const std::vector<int> other(1);
  }
  EXPECT_EQ(ThreadAllocations() - before, 1);
}

// Experts that allocate once a call.
class WastefulExperts final : public engine::RoutedExperts {
 public:
  explicit WastefulExperts(engine::RoutedExperts& experts) : experts_(experts) {}
  absl::Status Run(int64_t layer, int64_t count, const engine::ExpertIo& rows) override {
    const std::vector<int64_t> copy(1, layer);
    return experts_.Run(copy[0], count, rows);
  }

 private:
  engine::RoutedExperts& experts_;
};

TEST_F(SteadyStepTest, SeesWhatAnyLaneAllocates) {
  WastefulExperts wasteful(cpu_);
  const int64_t calls = kSteps * (spec().num_layers - spec().first_dense_layers);
  EXPECT_EQ(Allocations(wasteful, OneMicroBatch), (std::array<int64_t, engine::kMaxLanes>{calls, 0}));
  EXPECT_EQ(Allocations(wasteful, SplitRuns), (std::array<int64_t, engine::kMaxLanes>{calls, calls}));
}

TEST_F(SteadyStepTest, OneBatch) { EXPECT_EQ(Allocations(cpu_, OneMicroBatch), kNone); }

TEST_F(SteadyStepTest, TwoBatches) { EXPECT_EQ(Allocations(cpu_, SplitRuns), kNone); }

TEST_F(SteadyStepTest, WithExpertsThatAreHitMissedAndLoaded) {
  for (const experts::Schedule schedule :
       {experts::Schedule::kFixed, experts::Schedule::kHybrid, experts::Schedule::kOnDemand}) {
    const auto scheduled = ScheduledExperts::Create(
                               spec(), weights_, kernels_, workers_, cpu_, compute_, device_,
                               {.schedule = schedule, .budget_bytes = 1 << 18, .most_loads = 2, .max_rows = kSequences})
                               .value();
    scheduled->SetCosts({.host = experts::SecondsByRows({1, 2, 4}), .device = experts::SecondsByRows({1}), .load = 1});
    ASSERT_LT(scheduled->held_experts(), spec().num_experts * spec().num_moe_layers());
    EXPECT_EQ(Allocations(*scheduled, SplitRuns), kNone) << static_cast<int>(schedule);
    EXPECT_GT(scheduled->counts().hits, 2 * kSteps);
    EXPECT_GT(scheduled->counts().misses, 2 * kSteps);
    EXPECT_GT(scheduled->counts().loads, kSteps);
  }
}

}  // namespace
}  // namespace moestro::decode
