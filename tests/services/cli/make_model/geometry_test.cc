#include "services/cli/make_model/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/tensor/dtype.h"

namespace moestro {
namespace {

using ::testing::HasSubstr;

TEST(GeometryTest, TinyHasEdgeBlocks) {
  const auto g = ResolveGeometry({});
  ASSERT_TRUE(g.ok());
  EXPECT_NE(g->q_lora_rank % kScaleBlock, 0);
  EXPECT_NE(g->moe_intermediate % kScaleBlock, 0);
  EXPECT_NE((g->kv_lora_rank + g->qk_rope_head_dim) % kScaleBlock, 0);
  EXPECT_EQ(g->mtp_layers, 1);
}

TEST(GeometryTest, LayerIsTheRealGeometry) {
  const auto g = ResolveGeometry({.preset = "layer"});
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(g->hidden, 7168);
  EXPECT_EQ(g->experts, 256);
  EXPECT_EQ(g->groups, 8);
  EXPECT_EQ(g->vocab_rows, 129280);
}

TEST(GeometryTest, TinyQwen3HasWideHeadsAndNoDenseLayer) {
  const auto g = ResolveGeometry({.preset = "tiny-qwen3"});
  ASSERT_TRUE(g.ok());
  EXPECT_GT(g->heads * g->v_head_dim, g->hidden);
  EXPECT_EQ(g->heads % g->kv_heads, 0);
  EXPECT_EQ(g->dense_layers, 0);
  EXPECT_EQ(g->mtp_layers, 0);
}

TEST(GeometryTest, OverridesReplaceThePreset) {
  const auto g = ResolveGeometry({.layers = 7, .vocab_rows = 4096, .shard_bytes = 123, .weights = "bf16"});
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(g->layers, 7);
  EXPECT_EQ(g->vocab_rows, 4096);
  EXPECT_EQ(g->shard_bytes, 123);
  EXPECT_FALSE(g->fp8);
}

TEST(GeometryTest, RoutingStaysValidForEveryNumberOfExperts) {
  for (const char* preset : {"tiny", "tiny-qwen3", "layer"}) {
    for (int experts = 2; experts <= 300; ++experts) {
      const auto g = ResolveGeometry({.preset = preset, .experts = experts});
      ASSERT_TRUE(g.ok());
      EXPECT_EQ(g->experts, experts);
      ASSERT_EQ(g->experts % g->groups, 0);
      EXPECT_GE(g->experts / g->groups, 2);
      EXPECT_GE(g->topk_groups, 1);
      EXPECT_LE(g->topk_groups, g->groups);
      EXPECT_GE(g->topk_groups * (g->experts / g->groups), g->experts_per_token) << experts;
    }
  }
}

TEST(GeometryTest, ThePresetsOwnNumberOfExpertsChangesNothing) {
  const auto g = ResolveGeometry({.preset = "layer", .experts = 256});
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(g->groups, 8);
  EXPECT_EQ(g->topk_groups, 4);
  EXPECT_EQ(g->experts_per_token, 8);
}

TEST(GeometryTest, ErrorsNameTheFlag) {
  EXPECT_THAT(ResolveGeometry({.preset = "huge"}).status().message(), HasSubstr("--preset \"huge\""));
  EXPECT_THAT(ResolveGeometry({.weights = "int4"}).status().message(), HasSubstr("--weights \"int4\""));
  EXPECT_THAT(ResolveGeometry({.layers = -1}).status().message(), HasSubstr("--layers is -1"));
  EXPECT_THAT(ResolveGeometry({.experts = 1}).status().message(), HasSubstr("--experts is 1"));
  EXPECT_THAT(ResolveGeometry({.vocab_rows = -5}).status().message(), HasSubstr("--vocab-rows is -5"));
  EXPECT_THAT(ResolveGeometry({.shard_bytes = -1}).status().message(), HasSubstr("--shard-bytes is -1"));
}

}  // namespace
}  // namespace moestro
