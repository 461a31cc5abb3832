#include "common/checkpoint/segment_plan.h"

#include <gtest/gtest.h>

#include "tests/support/random_checkpoint.h"

namespace moestro::checkpoint {

using weights::ModelSpec;

namespace {

using testing::ExpectError;

absl::StatusOr<int64_t> SegmentBytesFor(const ModelSpec& spec, bool fp8) {
  const auto plan = PlanShapes(spec, fp8);
  if (!plan.ok()) return plan.status();
  return weights::SegmentWriter::RequiredBytes(*plan);
}

TEST(PlanShapes, AgreesWithThePlanOfACheckpoint) {
  for (const bool fp8 : {false, true}) {
    RandomCheckpoint random(BlockSpec(), fp8);
    random.Write();
    const Checkpoint checkpoint = random.Open();
    const auto inventory = CheckInventory(checkpoint, random.spec());
    ASSERT_TRUE(inventory.ok());
    const auto plan = MakePlan(*inventory, random.spec());
    ASSERT_TRUE(plan.ok());
    const auto bytes = SegmentBytesFor(random.spec(), fp8);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(*bytes, weights::SegmentWriter::RequiredBytes(plan->tensors));
  }
}

TEST(PlanShapes, ATiedHeadIsInTheSegment) {
  for (const int64_t vocab_size : {131, 5000}) {
    ModelSpec spec = OddSpec();
    spec.vocab_size = spec.token_count = vocab_size;
    const int64_t untied = SegmentBytesFor(spec, false).value();
    spec.tied_head = 1;
    EXPECT_EQ(SegmentBytesFor(spec, false).value(), untied);
    EXPECT_EQ(HeadBytes(PlanShapes(spec, false).value()), (vocab_size + 63) / 64 * 64 * 72 * 2);
  }
}

// One byte per parameter, one more for those that stay BF16, and less than one percent for everything else.
TEST(PlanShapes, FullModelIsItsParametersAndLittleMore) {
  const ModelSpec spec = PublishedModel("deepseek-v3");
  const double embeddings = 2.0 * 129280 * 7168;
  const double transposed_keys = 61.0 * 128 * 512 * 128;
  const double published = static_cast<double>(model::ParameterCount(spec)) + embeddings + transposed_keys;
  const auto fp8 = SegmentBytesFor(spec, true);
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  EXPECT_GT(static_cast<double>(*fp8), published);
  EXPECT_LT(static_cast<double>(*fp8), published * 1.01);
  const auto bf16 = SegmentBytesFor(spec, false);
  ASSERT_TRUE(bf16.ok()) << bf16.status();
  EXPECT_GT(*bf16, *fp8 / 100 * 195);
}

TEST(PlanShapes, Fp8NeedsHeadsOfWholeScaleBlocks) {
  for (int64_t ModelSpec::*field : {&ModelSpec::kv_lora_rank, &ModelSpec::qk_nope_head_dim, &ModelSpec::v_head_dim}) {
    ModelSpec spec = BlockSpec();
    spec.*field = 64;
    ExpectError(SegmentBytesFor(spec, true).status(), absl::StatusCode::kInvalidArgument,
                {"model.layers.0.self_attn.kv_b_proj.weight", "multiples of 128", "64"});
    EXPECT_TRUE(SegmentBytesFor(spec, false).ok());
  }
}

TEST(PlanShapes, AbsurdSizesAreRefusedByName) {
  ModelSpec spec = OddSpec();
  spec.vocab_size = int64_t{1} << 40;
  ExpectError(SegmentBytesFor(spec, false).status(), absl::StatusCode::kInvalidArgument, {"model.embed_tokens.weight"});
  spec = OddSpec();
  spec.intermediate_size = int64_t{1} << 27;
  ExpectError(SegmentBytesFor(spec, false).status(), absl::StatusCode::kInvalidArgument, {"mlp.down_proj.weight"});
}

}  // namespace
}  // namespace moestro::checkpoint
