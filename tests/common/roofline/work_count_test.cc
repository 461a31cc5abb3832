#include "common/roofline/work_count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "common/checkpoint/config.h"
#include "common/roofline/shapes.h"

namespace moestro::roofline {
namespace {

weights::ModelSpec DeepSeekV3() { return checkpoint::PublishedModel("deepseek-v3"); }

TEST(WorkCount, ATokenOfDeepSeekV3MeetsThePublished37BillionParameters) {
  const weights::ModelSpec spec = DeepSeekV3();
  const double head = static_cast<double>(spec.vocab_size * spec.hidden_size);
  const double router = 58.0 * 256 * 7168;
  const double kv = 61.0 * 576 * 2;
  // Bytes equal parameters where a parameter is a byte; the head has two bytes each, the router four. The published
  // number includes the embedding.
  const double parameters = DecodeBytes(spec, 0, 1, 58 * 8) - kv - head - 3 * router + head;
  EXPECT_NEAR(parameters, 37e9, 0.6e9);
}

// 14.2 billion of 57.4; the embedding is among them and multiplies nothing.
TEST(WorkCount, ATokenOfQwen2MeetsThePublished14BillionParameters) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("qwen2-57b");
  const ModelCount model = CountModel(spec, DType::kBF16);
  double elements = model.head.elements + static_cast<double>(spec.vocab_size * spec.hidden_size);
  for (const LayerCount& layer : model.layers) {
    elements += layer.attention.elements + layer.router.elements + layer.dense.elements +
                static_cast<double>(spec.experts_per_token) * layer.expert.elements;
  }
  EXPECT_NEAR(elements, 14.2e9, 0.1e9);
}

// The last layer, which is dense, is not the one that tells.
TEST(WorkCount, ExpertsOfAModelWithDenseLayersBetween) {
  weights::ModelSpec spec = DeepSeekV3();
  spec.num_layers = 6;
  spec.dense_layers[0] = 1 << 5;
  const double expert = CountModel(spec, DType::kF8E4M3).layers[3].expert.bytes;
  EXPECT_GT(expert, 0);
  EXPECT_EQ(DecodeBytes(spec, 10, 1, 7) - DecodeBytes(spec, 10, 1, 5), 2 * expert);
}

// Blocks count with their scales. Experts of layers 3 and 4 are in Q4_K, 144 bytes for 256 weights, of layer 5 in Q6_K.
TEST(WorkCount, LayersOfSeveralTypes) {
  weights::ModelSpec spec = DeepSeekV3();
  spec.num_layers = 6;
  const ModelCount model = CountModel(spec, ShapesOnly(spec, [](const model::ModelTensor& tensor) {
                                        if (tensor.part != model::TensorPart::kExpert) return DType::kBF16;
                                        return tensor.name.starts_with("model.layers.5.") ? DType::kQ6K : DType::kQ4K;
                                      }));
  const double elements = 3.0 * 7168 * 2048;
  EXPECT_EQ(model.layers[3].expert.elements, elements);
  EXPECT_EQ(model.layers[4].expert.bytes, elements / 256 * 144);
  EXPECT_EQ(model.layers[5].expert.bytes, elements / 256 * 210);
  EXPECT_EQ(DecodeBytes(spec, model, 0, 1, 3) - DecodeBytes(spec, model, 0, 1, 0), elements / 256 * (144 + 144 + 210));
}

TEST(WorkCount, EveryTokenBeforeAddsItsKv) {
  const weights::ModelSpec spec = DeepSeekV3();
  const int64_t experts = 58 * 8;
  EXPECT_EQ(DecodeBytes(spec, 100, 1, experts) - DecodeBytes(spec, 0, 1, experts), 100.0 * 61 * 576 * 2);
  EXPECT_EQ(DecodeBytes(spec, 100, 3, experts) - DecodeBytes(spec, 100, 1, experts), 2 * 101.0 * 61 * 576 * 2);
}

TEST(WorkCount, WindowsBoundWhatARowSees) {
  for (const auto& [before, rows, window] :
       {std::array<int64_t, 3>{0, 100, 7}, {3, 10, 7}, {50, 4, 7}, {0, 5, 7}, {2, 9, 0}}) {
    int64_t pairs = 0;
    for (int64_t row = before; row < before + rows; ++row) pairs += window == 0 ? row + 1 : std::min(row + 1, window);
    EXPECT_EQ(VisiblePairs(static_cast<double>(before), static_cast<double>(rows), window), static_cast<double>(pairs));
  }
  weights::ModelSpec spec = checkpoint::PublishedModel("gpt-oss-20b");
  const double kv = 2.0 * 8 * 64 * 2;  // bytes of a token and layer
  EXPECT_EQ(DecodeBytes(spec, 4095, 1, 96) - DecodeBytes(spec, 127, 1, 96), (4096 - 128) * 12 * kv);
  const double windowed = PrefillOperations(spec, model::MlaForm::kAbsorbed, 1000);
  spec.sliding_window = 0;
  const double pairs = 1000.0 * 1001 / 2 - (128.0 * 129 / 2 + 872 * 128.0);
  EXPECT_DOUBLE_EQ(PrefillOperations(spec, model::MlaForm::kAbsorbed, 1000) - windowed, 2 * 12 * 64 * 128 * pairs);
}

TEST(WorkCount, EveryDifferentExpertIsReadOnce) {
  const weights::ModelSpec spec = DeepSeekV3();
  EXPECT_EQ(DecodeBytes(spec, 0, 2, 500) - DecodeBytes(spec, 0, 2, 499), 3.0 * 7168 * 2048);
}

// All experts, but for a prompt that is too short to use them all.
TEST(WorkCount, APromptReadsWhatItUsesOnce) {
  const weights::ModelSpec spec = DeepSeekV3();
  const ModelCount model = CountModel(spec, DType::kF8E4M3);
  const double kv = 61.0 * 576 * 2;
  EXPECT_EQ(PrefillBytes(spec, model, 1), DecodeBytes(spec, 0, 1, 58 * 8) - kv);
  EXPECT_EQ(PrefillBytes(spec, model, 32), DecodeBytes(spec, 0, 1, 58 * 256) - kv);
  EXPECT_EQ(PrefillBytes(spec, model, 4096), PrefillBytes(spec, model, 32));
}

TEST(WorkCount, FormsDifferInAttentionPairsOnly) {
  const weights::ModelSpec spec = DeepSeekV3();
  const double pairs = 61.0 * 512 * 513 / 2 * 128;
  EXPECT_DOUBLE_EQ(PrefillOperations(spec, model::MlaForm::kAbsorbed, 512) -
                       PrefillOperations(spec, model::MlaForm::kUnabsorbed, 512),
                   2 * pairs * ((576 + 512) - (192 + 128)));
}

TEST(WorkCount, OneTokenDoesTwoOperationsAWeight) {
  const weights::ModelSpec spec = DeepSeekV3();
  const double attention = 61.0 * 128 * (192 + 128);
  EXPECT_NEAR(PrefillOperations(spec, model::MlaForm::kUnabsorbed, 1), 2 * (36.6e9 + attention), 0.3e9);
}

}  // namespace
}  // namespace moestro::roofline
