#include "loadtest/bench/random_segment.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/kernels/cpu/kernels.h"
#include "common/kv/pages.h"
#include "common/model/engine.h"
#include "loadtest/bench/presets.h"

namespace moestro::bench {
namespace {

TEST(RandomSegment, IsASegmentThatTheEngineRuns) {
  WorkerPool pool(2);
  const weights::ModelSpec spec = QuickPreset().model.spec;
  const auto segment = MakeRandomSegment(pool, spec);
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_TRUE(segment->segment->VerifyData().ok());
  auto engine = model::Engine::Create(*segment->segment, *AvailableKernels().back(), pool, {.max_rows = 8});
  ASSERT_TRUE(engine.ok()) << engine.status();

  const kv::KvGeometry geometry = {
      .num_layers = spec.num_layers, .kv_dim = spec.kv_dim(), .kv_heads = spec.num_kv_heads, .page_count = 1};
  const auto pages = HugeBuffer::Allocate(geometry.page_bytes());
  ASSERT_TRUE(pages.ok());
  const uint32_t page_list[] = {0};
  const kv::KvPages sequence(geometry, pages->data(), page_list);
  const model::EngineRow rows[] = {{.token = 3, .position = 0, .sequence = 0, .needs_logits = false},
                                   {.token = 7, .position = 1, .sequence = 0, .needs_logits = true}};
  double squares = 0;
  const absl::Status done = (*engine)->Forward(
      {.rows = rows, .sequences = {&sequence, 1}}, [] { return absl::OkStatus(); },
      [&](int64_t, std::span<const float> logits) {
        for (const float logit : logits) squares += logit * logit;
      });
  ASSERT_TRUE(done.ok()) << done;
  // Inputs of the head have deviation 1 and so have its rows: so have logits.
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(spec.vocab_size)), 1, 0.3);
}

TEST(FitExperts, TakesAsManyAsFit) {
  const weights::ModelSpec spec = LayerPreset(0, 0).model.spec;
  const auto four = FitExperts(spec, int64_t{4} << 30);
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_EQ(four->num_experts % spec.num_expert_groups, 0);
  EXPECT_GE(four->num_experts, 16);
  EXPECT_LT(four->num_experts, 64);
  const auto all = FitExperts(spec, int64_t{1} << 40);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->num_experts, 256);
  EXPECT_TRUE(absl::IsResourceExhausted(FitExperts(spec, int64_t{1} << 30).status()));
}

}  // namespace
}  // namespace moestro::bench
