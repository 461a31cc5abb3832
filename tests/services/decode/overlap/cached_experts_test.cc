// Hot experts on the device: the CPU's bits, whatever is held.
#include "services/decode/overlap/cached_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
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

using testing::HasSubstr;

constexpr int64_t kMaxRows = 6;

class CachedExpertsTest : public testing::Test {
 protected:
  explicit CachedExpertsTest(const SyntheticOptions& options = {.spec = SmallMixedSpec()})
      : model_(MakeSyntheticSegment(options)) {}

  const weights::ModelSpec& spec() const { return model_.segment->spec(); }
  int64_t layers() const { return spec().num_moe_layers(); }

  // Room for so many experts of each layer; a little is left.
  std::unique_ptr<CachedExperts> Make(int64_t slots, int64_t loads_per_pass = 2) {
    return CachedExperts::Create(spec(), weights_, kernels_, cpu_, compute_, device_,
                                 {.budget_bytes = slots * layers() * ExpertBytes() + 1,
                                  .max_rows = kMaxRows,
                                  .loads_per_pass = loads_per_pass})
        .value();
  }
  // What Create says about one byte tells how many bytes an expert takes.
  int64_t ExpertBytes() {
    const auto none = CachedExperts::Create(spec(), weights_, kernels_, cpu_, compute_, device_,
                                            {.budget_bytes = 1, .max_rows = kMaxRows, .loads_per_pass = 1});
    EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(none.status().message());
    return std::stoll(message.substr(message.find("of ") + 3));
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
  void ExpectTheCpusBits(CachedExperts& cached, int64_t layer, int64_t count) {
    const std::vector<float> expected = Sums(cpu_, layer, count);
    const std::vector<float> actual = Sums(cached, layer, count);
    EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0) << layer << " " << count;
  }

  const SyntheticSegment model_;
  const model::ModelWeights weights_ = model::BindWeights(*model_.segment).value();
  const CpuKernels& kernels_ = TestKernels();
  WorkerPool pool_{2};
  CpuExperts cpu_{spec(), weights_, kernels_, pool_, 2 * kMaxRows};
  engine::HostDecode compute_{spec(), weights_, kernels_, kMaxRows, /*threads=*/1, /*hot_rows=*/kMaxRows};
  const std::unique_ptr<device::Device> host_ = device::NewHostDevice({});
  device::FaultyDevice device_{*host_};
  std::mt19937 random_{1};
  std::vector<uint16_t> x_ = std::vector<uint16_t>(static_cast<size_t>(2 * kMaxRows * spec().hidden_size));
  std::vector<model::ExpertChoice> choices_;
};

TEST_F(CachedExpertsTest, HasTheCpusBitsWhateverIsHeld) {
  for (const int64_t slots : {int64_t{1}, int64_t{3}, spec().num_experts}) {
    const auto cached = Make(slots);
    ASSERT_EQ(cached->slots(), slots);
    for (int pass = 0; pass < 60; ++pass) {
      const auto count = static_cast<int64_t>(1 + random_() % kMaxRows);
      Draw(count);
      ExpectTheCpusBits(*cached, spec().MoeLayer(pass % layers()), count);
    }
    EXPECT_GT(cached->hits(), 0);
    EXPECT_GT(cached->misses(), 0);
  }
}

// Experts with biases, and an activation with a clamp that numbers reach.
class CachedClampedExpertsTest : public CachedExpertsTest {
 protected:
  static weights::ModelSpec Spec() {
    weights::ModelSpec spec = SmallMixedSpec();
    spec.expert_biases = 1;
    spec.swiglu_limit = 1.25;
    spec.swiglu_alpha = 1.702;
    return spec;
  }
  CachedClampedExpertsTest() : CachedExpertsTest({.spec = Spec()}) {}
};

TEST_F(CachedClampedExpertsTest, HasTheCpusBits) {
  const auto cached = Make(spec().num_experts / 2);
  for (int pass = 0; pass < 10; ++pass) {
    Draw(3);
    for (int64_t layer = 0; layer < spec().num_layers; ++layer) {
      if (spec().IsMoeLayer(layer)) ExpectTheCpusBits(*cached, layer, 3);
    }
  }
  EXPECT_GT(cached->hits(), 0);
}

class TypedCachedExpertsTest : public TypedRunTest, public CachedExpertsTest {
 protected:
  TypedCachedExpertsTest() : CachedExpertsTest(GetParam().options) {}
};

TEST_P(TypedCachedExpertsTest, HaveTheCpusBits) {
  const auto cached = Make(spec().num_experts / 2);
  for (int pass = 0; pass < 10; ++pass) {
    Draw(1 + pass % kMaxRows);
    for (int64_t i = 0; i < layers(); ++i) ExpectTheCpusBits(*cached, spec().MoeLayer(i), 1 + pass % kMaxRows);
  }
  EXPECT_GT(cached->hits(), 0);
  EXPECT_GT(cached->misses(), 0);
}

INSTANTIATE_TEST_SUITE_P(Weights, TypedCachedExpertsTest, ::testing::ValuesIn(TypedRuns()),
                         [](const auto& model) { return model.param.name; });

TEST_F(CachedExpertsTest, HoldsEverythingInTheEnd) {
  const auto cached = Make(spec().num_experts, /*loads_per_pass=*/spec().num_experts);
  Draw(kMaxRows);
  ExpectTheCpusBits(*cached, spec().MoeLayer(0), kMaxRows);
  const int64_t misses = cached->misses();
  ExpectTheCpusBits(*cached, spec().MoeLayer(0), kMaxRows);
  EXPECT_EQ(cached->misses(), misses);
  EXPECT_EQ(cached->hits(), misses);
}

TEST_F(CachedExpertsTest, PromptsLeaveTheCacheAsItIs) {
  const auto cached = Make(2);
  Draw(2 * kMaxRows);
  ExpectTheCpusBits(*cached, spec().MoeLayer(0), kMaxRows + 1);
  EXPECT_EQ(cached->hits() + cached->misses(), 0);
}

TEST_F(CachedExpertsTest, TakesItsMemoryFromTheDevice) {
  const int64_t before = device_.memory_used();
  {
    const auto cached = Make(3);
    EXPECT_GE(device_.memory_used() - before, 3 * layers() * ExpertBytes());
  }
  EXPECT_EQ(device_.memory_used(), before);
  const auto small = device::NewHostDevice({.memory_bytes = 1000});
  EXPECT_EQ(CachedExperts::Create(spec(), weights_, kernels_, cpu_, compute_, *small,
                                  {.budget_bytes = 1 << 30, .max_rows = 1, .loads_per_pass = 1})
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(CachedExpertsTest, AFailureIsReportedAndNotRemembered) {
  const auto cached = Make(spec().num_experts);
  const int64_t layer = spec().MoeLayer(0);
  Draw(3);
  ExpectTheCpusBits(*cached, layer, 3);
  for (const std::string broken : {"run: hot experts", "copy", "event", "record", "wait"}) {
    for (int pass = 0; pass < 3; ++pass) ExpectTheCpusBits(*cached, layer, 3);
    device_.set_fault([&](const std::string& operation) -> absl::Status {
      return operation == broken ? absl::UnavailableError("broken: " + broken) : absl::OkStatus();
    });
    std::vector<float> sums(static_cast<size_t>(3 * spec().hidden_size));
    const absl::Status status = cached->Run(layer, 3, {x_.data(), choices_.data(), sums.data()});
    EXPECT_THAT(status.message(), HasSubstr("broken: " + broken));
    device_.set_fault([](const std::string&) { return absl::OkStatus(); });
    ExpectTheCpusBits(*cached, layer, 3);
  }
}

TEST_F(CachedExpertsTest, WithoutNewStreamsEveryPassFailsUntilThereAreSome) {
  const auto cached = Make(spec().num_experts);
  const int64_t layer = spec().MoeLayer(0);
  Draw(3);
  for (int pass = 0; pass < 3; ++pass) ExpectTheCpusBits(*cached, layer, 3);
  device_.set_fault([&](const std::string& operation) -> absl::Status {
    return operation == "copy" || operation == "stream" ? absl::InternalError("lost: " + operation) : absl::OkStatus();
  });
  std::vector<float> sums(static_cast<size_t>(3 * spec().hidden_size));
  for (int pass = 0; pass < 3; ++pass) {
    const absl::Status status = cached->Run(layer, 3, {x_.data(), choices_.data(), sums.data()});
    EXPECT_THAT(status.message(), HasSubstr("lost: stream"));
  }
  device_.set_fault([](const std::string&) { return absl::OkStatus(); });
  for (int pass = 0; pass < 3; ++pass) ExpectTheCpusBits(*cached, layer, 3);
}

}  // namespace
}  // namespace moestro::decode
