#include <gtest/gtest.h>

#include "common/checkpoint/config.h"
#include "common/model/attention/attention_buffers.h"
#include "common/model/head.h"
#include "common/model/moe/expert_buffers.h"
#include "common/model/moe/feed_forward.h"

namespace moestro::model {
namespace {

weights::ModelSpec Geometry() { return checkpoint::PublishedModel("deepseek-v3"); }

TEST(BuffersTest, ExpertsAlonePayForExpertsAlone) {
  const weights::ModelSpec spec = Geometry();
  const int64_t row = 8 * (MostCodedBytes(7168) + 2 * RowStride(2048));
  const int64_t worker_row = 2 * 4 * kMaxTaskGroups * kRowGroup;
  EXPECT_EQ(ExpertBuffers::Bytes(spec, 3, 0, 0), 3 * row);
  EXPECT_EQ(ExpertBuffers::Bytes(spec, 3, 5, 0), 3 * (row + 5 * worker_row));
  EXPECT_EQ(ExpertBuffers::Bytes(spec, 3, 0, DenseWidth(spec)),
            3 * (row + 2 * RowStride(18432) + MostCodedBytes(18432)));
}

TEST(BuffersTest, OfTheOtherStages) {
  const weights::ModelSpec spec = Geometry();
  EXPECT_EQ(RowBuffers::Bytes(spec, 3), 3 * (6 * 7168 + 4 * 64));
  EXPECT_EQ(GatingBuffers::Bytes(spec, 3), 3 * 4 * (7168 + 256));
  EXPECT_EQ(HeadBuffers::Bytes(spec), kLogitRows * (2 * 7168 + MostCodedBytes(7168) + 4 * 129280));
}

TEST(BuffersTest, GroupedQueriesNeedNothingForEachWorker) {
  weights::ModelSpec spec = Geometry();
  EXPECT_LT(AttentionBuffers::Bytes(spec, 1, 1), AttentionBuffers::Bytes(spec, 1, 2));
  spec.q_lora_rank = spec.kv_lora_rank = spec.qk_nope_head_dim = 0;
  spec.qk_rope_head_dim = spec.v_head_dim;
  spec.num_kv_heads = 8;
  const int64_t heads = spec.num_heads * spec.v_head_dim;
  const int64_t row =
      4 * heads + 6 * spec.kv_dim() + 2 * heads + 2 * AttnOutStride(spec) + MostCodedBytes(AttnOutStride(spec));
  EXPECT_EQ(AttentionBuffers::Bytes(spec, 3, 1), 3 * row);
  EXPECT_EQ(AttentionBuffers::Bytes(spec, 3, 64), 3 * row);
}

}  // namespace
}  // namespace moestro::model
