#include "common/model/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/support/synthetic_segment.h"

namespace moestro::model {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Names(const std::vector<ModelTensor>& tensors) {
  std::vector<std::string> names;
  for (const ModelTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

TEST(Schema, ADenseLayerInOrderOfUse) {
  EXPECT_THAT(Names(CheckpointTensors(SmallSpec(), 0)),
              ElementsAre("model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_a_proj.weight",
                          "model.layers.0.self_attn.q_a_layernorm.weight", "model.layers.0.self_attn.q_b_proj.weight",
                          "model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
                          "model.layers.0.self_attn.kv_a_layernorm.weight", "model.layers.0.self_attn.kv_b_proj.weight",
                          "model.layers.0.self_attn.o_proj.weight", "model.layers.0.post_attention_layernorm.weight",
                          "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
                          "model.layers.0.mlp.down_proj.weight"));
}

// Every tensor has a unique name and field.
TEST(Schema, FieldsAreDistinct) {
  weights::ModelSpec without_norms = SmallGroupedSpec();
  without_norms.heads_without_norms = 1;
  EXPECT_EQ(SegmentTensors(without_norms).size() + 2 * 3, SegmentTensors(SmallGroupedSpec()).size());
  weights::ModelSpec with_biases = SmallGroupedSpec();
  with_biases.qkv_biases = 1;
  EXPECT_EQ(SegmentTensors(with_biases).size(), SegmentTensors(SmallGroupedSpec()).size() + 3 * 3);
  for (const weights::ModelSpec& spec :
       {SmallSpec(), SmallGroupedSpec(), without_norms, with_biases, SmallMixedSpec(), SmallGatedSpec(), BareSpec()}) {
    ModelWeights weights;
    std::set<std::string> names;
    std::set<const void*> fields;
    ForEachTensor(spec, weights, [&](const ModelTensor& tensor, auto& field) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      EXPECT_TRUE(fields.insert(&field).second) << tensor.name;
    });
    EXPECT_EQ(names.size(), SegmentTensors(spec).size());
  }
}

TEST(Schema, TransposedKeysFollowTheirSourceInTheSegmentAlone) {
  const weights::ModelSpec spec = SmallSpec();
  const std::vector<ModelTensor> tensors = SegmentTensors(spec);
  EXPECT_EQ(std::ssize(tensors), std::ssize(CheckpointTensors(spec)) + spec.num_layers);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].role != TensorRole::kKeyUpTransposed) continue;
    EXPECT_EQ(tensors[i - 1].role, TensorRole::kLatentUp);
    EXPECT_EQ(tensors[i].rows, spec.num_heads * spec.kv_lora_rank);
    EXPECT_EQ(tensors[i].cols, spec.qk_nope_head_dim);
  }
  EXPECT_EQ(SegmentTensors(SmallGroupedSpec()).size(), CheckpointTensors(SmallGroupedSpec()).size());
}

TEST(Schema, ArraysAreVisitedWhereTheyAre) {
  const weights::ModelSpec spec = SmallSpec();
  const float scales = 0;
  const uint8_t data = 0;
  AttentionWeights attention;
  attention.kv_a_norm = &scales;
  attention.o = {DType::kF8E4M3, 64, 128, &data, &scales};
  std::vector<int64_t> bytes;
  VisitArrays(spec, attention, [&](auto& array, int64_t count) {
    bytes.push_back(count);
    array = nullptr;
  });
  EXPECT_THAT(bytes, ElementsAre(4 * spec.kv_lora_rank, 64 * 128, 4));
  EXPECT_EQ(attention.kv_a_norm, nullptr);
  EXPECT_EQ(attention.o.data, nullptr);
  EXPECT_EQ(attention.o.scales, nullptr);
}

}  // namespace
}  // namespace moestro::model
