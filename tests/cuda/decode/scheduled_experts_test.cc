// Routed experts that a GPU, or the model of one, holds and computes.
#include "services/decode/overlap/scheduled_experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "common/device/cuda/cuda_device.h"
#include "common/engine/cuda/cuda_decode.h"
#include "tests/common/model/tolerance.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro::decode {
namespace {

constexpr int64_t kMaxRows = 20;

// More experts than a launch takes, and more rows than a tile.
weights::ModelSpec Spec() {
  weights::ModelSpec spec = SmallSpec();
  spec.num_layers = 2;
  spec.num_experts = 24;
  spec.experts_per_token = 6;
  return spec;
}

void ExpectSumsNearTheCpus(const weights::ModelSpec& of, std::optional<DType> type = {},
                           experts::Schedule schedule = experts::Schedule::kFixed) {
  const SyntheticSegment model = MakeSyntheticSegment({.spec = of, .type = type});
  const weights::ModelSpec& spec = model.segment->spec();
  const model::ModelWeights weights = model::BindWeights(*model.segment).value();
  const CpuKernels& kernels = TestKernels();
  WorkerPool pool(2);
  CpuExperts cpu(spec, weights, kernels, pool, kMaxRows);
  const auto device = device::OpenCudaDevice({.memory_bytes = int64_t{1} << 30}).value();
  const auto compute =
      engine::CudaDecode::Create(*device, spec, weights,
                                 {.max_rows = kMaxRows, .max_sequences = kMaxRows, .kv_pages = 1, .hot_rows = kMaxRows})
          .value();
  // The first pass loads experts behind it, or computes them behind their loads.
  const auto scheduled = ScheduledExperts::Create(spec, weights, kernels, pool, cpu, *compute, *device,
                                                  {.schedule = schedule,
                                                   .budget_bytes = int64_t{1} << 28,
                                                   .most_loads = spec.num_experts,
                                                   .max_rows = kMaxRows})
                             .value();
  ASSERT_EQ(scheduled->held_experts(), spec.num_experts * spec.num_moe_layers());

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const int64_t count : {kMaxRows, int64_t{1}, kMaxRows}) {
    std::vector<uint16_t> x(static_cast<size_t>(count * spec.hidden_size));
    for (uint16_t& number : x) number = ToBf16(normal(random));
    std::vector<model::ExpertChoice> choices;
    for (int64_t row = 0; row < count; ++row) {
      std::set<int32_t> ids = {0};  // one that all rows use
      while (std::ssize(ids) < spec.experts_per_token) ids.insert(static_cast<int32_t>(random() % spec.num_experts));
      for (const int32_t id : ids) choices.push_back({id, normal(random)});
    }
    std::vector<float> expected(static_cast<size_t>(count * spec.hidden_size)), got(expected.size());
    ASSERT_TRUE(cpu.Run(1, count, {x.data(), choices.data(), expected.data()}).ok());
    const absl::Status status = scheduled->Run(1, count, {x.data(), choices.data(), got.data()});
    ASSERT_TRUE(status.ok()) << status;
    // Both round the input of the down projection to BF16, nearly always in the same way; of I8 weights then to codes,
    // as Int8Deviation has it.
    const double deviation = 2.0 / 512 + (type == DType::kI8 ? 4.0 / 127 / std::sqrt(6.0) : 0);
    const double tolerance =
        model::kSigmas * deviation * model::RootMeanSquare(std::vector<double>(expected.begin(), expected.end()));
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << i;
  }
  EXPECT_GT(scheduled->counts().hits, spec.num_experts) << "the first pass has loaded nearly all";
}

TEST(CudaScheduledExpertsTest, SumsAreNearTheCpus) { ExpectSumsNearTheCpus(Spec()); }

TEST(CudaScheduledExpertsTest, Int8) { ExpectSumsNearTheCpus(Spec(), DType::kI8); }

TEST(CudaScheduledExpertsTest, LoadedWithinThePass) {
  ExpectSumsNearTheCpus(Spec(), {}, experts::Schedule::kOnDemand);
  ExpectSumsNearTheCpus(Spec(), DType::kI8, experts::Schedule::kOnDemand);
}

TEST(CudaScheduledExpertsTest, WithBiasesAndAClamp) {
  weights::ModelSpec spec = Spec();
  spec.expert_biases = 1;
  spec.swiglu_limit = 1.25;
  spec.swiglu_alpha = 1.702;
  ExpectSumsNearTheCpus(spec);
}

}  // namespace
}  // namespace moestro::decode
