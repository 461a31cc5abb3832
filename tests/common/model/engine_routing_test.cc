#include <algorithm>
#include <utility>

#include "common/model/engine.h"
#include "gtest/gtest.h"
#include "tests/common/model/engine_harness.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro::model {
namespace {

using Routing = std::vector<std::pair<int64_t, std::vector<ExpertChoice>>>;  // (layer, choices) in order of the calls

TEST(EngineRouting, IsToldAfterEveryMoeLayerAndDependsOnTheRowAlone) {
  const SyntheticSegment model = MakeSyntheticSegment({.spec = SmallMixedSpec()});
  const weights::ModelSpec& spec = model.segment->spec();
  WorkerPool pool(2);
  Routing told;
  const auto engine = Engine::Create(*model.segment, TestKernels(), pool,
                                     {.max_rows = 8,
                                      .on_routing =
                                          [&](const LayerRouting& routing) {
                                            told.emplace_back(routing.layer, std::vector(routing.choices.begin(),
                                                                                         routing.choices.end()));
                                          }})
                          .value();
  const std::vector<int32_t> tokens = RandomTokens(5, spec.token_count, 1);
  RunPrompt(*engine, TestSequence(spec, 64), tokens, /*chunk=*/5, MlaForm::kAbsorbed);
  const Routing whole = std::exchange(told, {});
  RunPrompt(*engine, TestSequence(spec, 64), tokens, /*chunk=*/1, MlaForm::kAbsorbed);

  const std::vector<int64_t> with_experts = {1, 3};
  const int64_t moe_layers = std::ssize(with_experts);
  ASSERT_EQ(whole.size(), static_cast<size_t>(moe_layers));
  ASSERT_EQ(told.size(), static_cast<size_t>(5 * moe_layers));
  const int64_t k = spec.experts_per_token;
  for (int64_t i = 0; i < moe_layers; ++i) {
    const auto& [layer, choices] = whole[i];
    EXPECT_EQ(layer, with_experts[i]);
    ASSERT_EQ(choices.size(), static_cast<size_t>(5 * k));
    for (int64_t row = 0; row < 5; ++row) {
      const auto& alone = told[row * moe_layers + i].second;
      ASSERT_EQ(alone.size(), static_cast<size_t>(k));
      for (int64_t j = 0; j < k; ++j) {
        const ExpertChoice& choice = choices[row * k + j];
        EXPECT_EQ(choice.expert, alone[j].expert);
        EXPECT_EQ(choice.weight, alone[j].weight);
        EXPECT_LT(choice.expert, spec.num_experts);
        EXPECT_GT(choice.expert, j == 0 ? -1 : choices[row * k + j - 1].expert);
      }
    }
  }
}

}  // namespace
}  // namespace moestro::model
