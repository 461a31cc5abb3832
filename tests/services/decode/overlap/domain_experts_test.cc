// Experts on the device, on the CPU and on threads that stand for processors near the data: the CPU's bits under every
// schedule, wherever experts lie.
#include "services/decode/overlap/domain_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "common/device/host/host_device.h"
#include "common/engine/host/host_decode.h"
#include "tests/support/faulty_device.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"
#include "tests/support/typed_models.h"

namespace moestro::decode {
namespace {

using experts::DomainSchedule;
using testing::HasSubstr;

constexpr DomainSchedule kDomainSchedules[] = {DomainSchedule::kTriDomain, DomainSchedule::kGreedy,
                                               DomainSchedule::kKlotski, DomainSchedule::kEnhancedKTransformers,
                                               DomainSchedule::kMonde};
constexpr int64_t kDomainRows = 12;

class DomainExpertsTest : public testing::Test {
 protected:
  explicit DomainExpertsTest(const SyntheticOptions& options = {.spec = SmallMixedSpec()})
      : model_(MakeSyntheticSegment(options)) {}

  const weights::ModelSpec& spec() const { return model_.segment->spec(); }
  int64_t layers() const { return spec().num_moe_layers(); }

  DomainExperts::Options Options(DomainSchedule schedule, int64_t slots = 1, int64_t units = 3) const {
    constexpr int64_t kLoads = 2;
    return {.schedule = schedule,
            .budget_bytes = (slots * layers() + kLoads) * DeviceExpertBytes(spec(), weights_) + 1,
            .most_loads = kLoads,
            .near_units = units,
            .max_rows = kDomainRows};
  }
  absl::StatusOr<std::unique_ptr<DomainExperts>> Create(const DomainExperts::Options& options) {
    return DomainExperts::Create(spec(), weights_, kernels_, pool_, cpu_, compute_, device_, options);
  }

  // Random inputs, and choices of which some experts get most.
  void Draw(int64_t count) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count * spec().hidden_size; ++i) x_[static_cast<size_t>(i)] = ToBf16(normal(random_));
    choices_.clear();
    for (int64_t row = 0; row < count; ++row) {
      std::set<int32_t> ids;
      while (std::ssize(ids) < spec().experts_per_token) {
        const uint64_t range = random_() % 3 == 0 ? static_cast<uint64_t>(spec().num_experts) : 3;
        ids.insert(static_cast<int32_t>(random_() % range));
      }
      for (const int32_t id : ids) choices_.push_back({id, normal(random_)});
    }
  }
  std::vector<float> Sums(engine::RoutedExperts& experts, int64_t layer, int64_t count) {
    std::vector<float> sums(static_cast<size_t>(count * spec().hidden_size), -1);
    const absl::Status status = experts.Run(layer, count, {x_.data(), choices_.data(), sums.data()});
    EXPECT_TRUE(status.ok()) << status;
    return sums;
  }
  void ExpectTheCpusBits(DomainExperts& domains, int64_t layer, int64_t count) {
    const std::vector<float> expected = Sums(cpu_, layer, count), actual = Sums(domains, layer, count);
    EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0) << layer << " " << count;
  }

  const SyntheticSegment model_;
  const model::ModelWeights weights_ = model::BindWeights(*model_.segment).value();
  const CpuKernels& kernels_ = TestKernels();
  WorkerPool pool_{2};
  CpuExperts cpu_{spec(), weights_, kernels_, pool_, 2 * kDomainRows};
  engine::HostDecode compute_{spec(), weights_, kernels_, kDomainRows, /*threads=*/1, /*hot_rows=*/kDomainRows};
  const std::unique_ptr<device::Device> host_ = device::NewHostDevice({});
  device::FaultyDevice device_{*host_};
  std::mt19937 random_{1};
  std::vector<uint16_t> x_ = std::vector<uint16_t>(static_cast<size_t>(2 * kDomainRows * spec().hidden_size));
  std::vector<model::ExpertChoice> choices_;
};

// Costs of which every domain is the quickest at times. Experts have enough rows that some are hot.
experts::ExpertCosts RandomDomainCosts(std::mt19937& random) {
  const auto draw = [&](double most) { return std::uniform_real_distribution(0.0, most)(random); };
  return {.host = experts::SecondsByRows({1, 1.5, 2.5, 4}),
          .device = experts::SecondsByRows({draw(1), draw(1), draw(1)}),
          .load = draw(3),
          .between = draw(4)};
}

// Experts move before passes, as other ones get most rows, or stay where the first passes have laid them.
TEST_F(DomainExpertsTest, HasTheCpusBitsWhereverExpertsLie) {
  for (const DomainSchedule schedule : kDomainSchedules) {
    for (const bool moves : {true, false}) {
      for (const int64_t units : {1, 4}) {
        if (TestKernels().isa == kAmxOnModel && (!moves || units == 1)) continue;  // it takes up to 90 times as long
        DomainExperts::Options options = Options(schedule, 1 + units % 3, units);
        options.prefetch = options.relayout = moves;
        const auto domains = Create(options).value();
        ExpertCounts counts;
        for (int pass = 0; pass < 48 * layers(); ++pass) {
          if (pass % (16 * layers()) == 0) {
            counts.near_data += domains->counts().near_data;
            counts.on_device += domains->counts().on_device;
            counts.loads_ahead += domains->counts().loads_ahead;
            domains->SetCosts(RandomDomainCosts(random_));
          }
          const auto count = static_cast<int64_t>(1 + random_() % kDomainRows);
          Draw(count);
          ExpectTheCpusBits(*domains, spec().MoeLayer(pass % layers()), count);
        }
        const ExpertCounts last = domains->counts();
        counts.near_data += last.near_data;
        counts.on_device += last.on_device;
        counts.loads_ahead += last.loads_ahead;
        const experts::DomainsUsed used = experts::DomainsOf(schedule);
        EXPECT_EQ(counts.near_data > 0, used.near) << static_cast<int>(schedule) << " " << moves;
        EXPECT_GT(counts.on_device, 0) << static_cast<int>(schedule);
        EXPECT_GT(counts.loads_ahead, 0) << static_cast<int>(schedule) << ": the first layout";
      }
    }
  }
}

TEST_F(DomainExpertsTest, HasTheCpusBitsWithMeasuredCostsAndPacedUnits) {
  DomainExperts::Options options = Options(DomainSchedule::kTriDomain, 2);
  options.near_bytes_per_second = 1e9;
  const auto domains = Create(options).value();
  ASSERT_TRUE(domains->MeasureCosts(device_).ok());
  EXPECT_GT(domains->costs().load, 0);
  for (int pass = 0; pass < 20 * layers(); ++pass) {
    Draw(kDomainRows);
    ExpectTheCpusBits(*domains, spec().MoeLayer(pass % layers()), kDomainRows);
  }
  const ExpertCounts counts = domains->counts();
  EXPECT_GT(counts.planned_seconds, 0);
  EXPECT_GT(counts.measured_seconds, 0);
  EXPECT_GT(counts.hits + counts.misses, 0);
}

// A unit takes as long as its rate says.
TEST(NearExperts, TakeAsLongAsReadingDoes) {
  const SyntheticSegment model = MakeSyntheticSegment({.spec = SmallMixedSpec()});
  const weights::ModelSpec& spec = model.segment->spec();
  const model::ModelWeights weights = model::BindWeights(*model.segment).value();
  const auto bytes = static_cast<double>(DeviceExpertBytes(spec, weights));
  constexpr double kSeconds = 0.02;
  NearExperts near(spec, weights, TestKernels(), {.units = 2, .bytes_per_second = 2 * bytes / kSeconds, .max_rows = 2});
  const std::vector<model::ExpertChoice> choices = {{1, 1}, {3, 1}};
  model::ExpertPlan both, none;
  both.Sort(choices, 2, spec.num_experts);
  const std::vector<uint16_t> x(static_cast<size_t>(spec.hidden_size), ToBf16(1.0f));
  std::vector<float> outputs(static_cast<size_t>(2 * spec.hidden_size));
  const NearExperts::Work work[] = {{&both, outputs.data()}, {&none, nullptr}};
  const double begin = device::SteadyClock().Now();
  near.Start(spec.MoeLayer(0), work, x.data());
  near.Wait();
  EXPECT_GE(device::SteadyClock().Now() - begin, kSeconds) << "never less: how much more depends on the machine";
}

TEST_F(DomainExpertsTest, AFailureIsReportedAndNotRemembered) {
  const auto domains = Create(Options(DomainSchedule::kKlotski, 2)).value();
  domains->SetCosts(
      {.host = experts::SecondsByRows({9}), .device = experts::SecondsByRows({1}), .load = 0.1, .between = 9});
  const int64_t layer = spec().MoeLayer(0);
  for (const std::string broken : {"run: hot experts", "copy", "event", "record"}) {
    for (int pass = 0; pass < 3; ++pass) {
      Draw(3);
      ExpectTheCpusBits(*domains, layer, 3);
    }
    device_.set_fault([&](const std::string& operation) -> absl::Status {
      return operation == broken ? absl::UnavailableError("broken: " + broken) : absl::OkStatus();
    });
    std::vector<float> sums(static_cast<size_t>(3 * spec().hidden_size));
    const absl::Status status = domains->Run(layer, 3, {x_.data(), choices_.data(), sums.data()});
    EXPECT_THAT(status.message(), HasSubstr("broken: " + broken));
    device_.set_fault([](const std::string&) { return absl::OkStatus(); });
    ExpectTheCpusBits(*domains, layer, 3);
  }
}

TEST_F(DomainExpertsTest, PromptsAndSmallBudgets) {
  const auto domains = Create(Options(DomainSchedule::kTriDomain)).value();
  Draw(2 * kDomainRows);
  ExpectTheCpusBits(*domains, spec().MoeLayer(0), kDomainRows + 1);
  EXPECT_EQ(domains->counts().hits + domains->counts().misses, 0);
  DomainExperts::Options small = Options(DomainSchedule::kTriDomain);
  small.budget_bytes /= 4;
  const absl::Status status = Create(small).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("layers, and 2 that are being loaded"));
}

class TypedDomainExpertsTest : public TypedRunTest, public DomainExpertsTest {
 protected:
  TypedDomainExpertsTest() : DomainExpertsTest(GetParam().options) {}
};

TEST_P(TypedDomainExpertsTest, HaveTheCpusBits) {
  const auto domains = Create(Options(DomainSchedule::kTriDomain)).value();
  for (int pass = 0; pass < 24; ++pass) {
    if (pass % 12 == 0) domains->SetCosts(RandomDomainCosts(random_));
    Draw(1 + pass % kDomainRows);
    for (int64_t i = 0; i < layers(); ++i) ExpectTheCpusBits(*domains, spec().MoeLayer(i), 1 + pass % kDomainRows);
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, TypedDomainExpertsTest, ::testing::ValuesIn(TypedRuns()),
                         [](const auto& model) { return model.param.name; });

}  // namespace
}  // namespace moestro::decode
