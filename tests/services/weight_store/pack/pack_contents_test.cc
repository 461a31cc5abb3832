// Every element of the segment against the checkpoint, one by one, through the documented layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/tensor/pack.h"
#include "tests/services/weight_store/pack/pack_in_memory.h"
#include "tests/support/random_checkpoint.h"

namespace moestro::store {
namespace {

template <typename T>
T Load(const void* bytes, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const uint8_t*>(bytes) + index * int64_t{sizeof(T)}, sizeof(T));
  return value;
}

// Element (row, col) as its bits, from `columns`-wide published data.
uint32_t Bits(DType dtype, const std::string& data, int64_t columns, int64_t row, int64_t col) {
  const int64_t index = row * columns + col;
  return dtype == DType::kBF16 ? Load<uint16_t>(data.data(), index) : Load<uint8_t>(data.data(), index);
}
uint32_t PackedBits(const weights::TensorView& view, int64_t row, int64_t col) {
  const uint8_t* element = view.data + PackedOffset(view.dtype, view.cols, row, col);
  return view.dtype == DType::kBF16 ? Load<uint16_t>(element, 0) : *element;
}

// Of the bytes that are stored.
void ExpectExceptions(const weights::TensorView& view) {
  std::vector<uint32_t> expected(static_cast<size_t>(ExceptionWords(view.rows, view.cols)));
  const int64_t blocks = (view.cols + 127) / 128;
  for (int64_t row = 0; row < PaddedRows(view.rows); ++row) {
    for (int64_t col = 0; col < PaddedCols(view.cols); ++col) {
      const bool is_normal = (PackedBits(view, row, col) & 0x78) != 0;
      expected[static_cast<size_t>(row / 64 * blocks + col / 128)] |= uint32_t{!is_normal} << (col % 128 / 4);
    }
  }
  ASSERT_NE(view.exceptions, nullptr) << view.name;
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), view.exceptions)) << view.name;
}

// Compares every element, padding included, with expected(row, col).
template <typename Expected>
void ExpectPacked(const weights::TensorView& view, Expected expected) {
  ASSERT_EQ(view.layout, weights::TensorLayout::kPacked) << view.name;
  int64_t wrong = 0;
  for (int64_t row = 0; row < PaddedRows(view.rows); ++row) {
    for (int64_t col = 0; col < PaddedCols(view.cols); ++col) {
      const bool is_padding = row >= view.rows || col >= view.cols;
      wrong += PackedBits(view, row, col) != (is_padding ? 0 : expected(row, col));
    }
  }
  EXPECT_EQ(wrong, 0) << view.name;
  if (view.dtype == DType::kF8E4M3) ExpectExceptions(view);
}

void ExpectScales(const weights::TensorView& view, const RandomCheckpoint::Tensor& published) {
  ASSERT_EQ((view.rows + 127) / 128, published.shape[0]);
  ASSERT_EQ((view.cols + 127) / 128, published.shape[1]);
  EXPECT_EQ(std::memcmp(view.scales, published.data.data(), published.data.size()), 0) << view.name;
}

void ExpectWidened(const weights::TensorView& view, const RandomCheckpoint::Tensor& published) {
  EXPECT_EQ(view.dtype, DType::kF32) << view.name;
  EXPECT_EQ(view.layout, weights::TensorLayout::kRowMajor) << view.name;
  ASSERT_EQ(view.bytes, view.rows * view.cols * 4);
  for (int64_t i = 0; i < view.rows * view.cols; ++i) {
    const float expected = published.dtype == "F32" ? Load<float>(published.data.data(), i)
                                                    : FromBf16(Load<uint16_t>(published.data.data(), i));
    ASSERT_EQ(Load<float>(view.data, i), expected) << view.name << " " << i;
  }
}

void ExpectSameAsPublished(const weights::WeightSegment& segment, const RandomCheckpoint& checkpoint,
                           const model::ModelTensor& tensor) {
  const auto view = segment.Find(tensor.name);
  ASSERT_TRUE(view.ok()) << view.status();
  const RandomCheckpoint::Tensor& published = checkpoint.tensors().at(tensor.name);
  EXPECT_EQ(view->rows, tensor.rows);
  EXPECT_EQ(view->cols, tensor.cols);
  if (tensor.name == "model.embed_tokens.weight") {
    EXPECT_EQ(view->layout, weights::TensorLayout::kRowMajor);
    EXPECT_EQ(view->dtype, DType::kBF16);
    ASSERT_EQ(view->bytes, static_cast<int64_t>(published.data.size()));
    EXPECT_EQ(std::memcmp(view->data, published.data.data(), published.data.size()), 0);
  } else if (view->layout == weights::TensorLayout::kPacked) {
    EXPECT_STREQ(DTypeName(view->dtype), published.dtype.c_str());
    ExpectPacked(*view,
                 [&](int64_t row, int64_t col) { return Bits(view->dtype, published.data, view->cols, row, col); });
    if (view->dtype == DType::kF8E4M3) ExpectScales(*view, checkpoint.tensors().at(tensor.name + "_scale_inv"));
  } else {
    ExpectWidened(*view, published);
  }
}

void ExpectTransposedKeys(const weights::WeightSegment& segment, const RandomCheckpoint& checkpoint, int64_t layer) {
  const weights::ModelSpec& spec = checkpoint.spec();
  const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.kv_b_proj.";
  const auto view = segment.Find(prefix + "key_transposed");
  ASSERT_TRUE(view.ok()) << view.status();
  const int64_t lora = spec.kv_lora_rank, head_rows = spec.qk_nope_head_dim + spec.v_head_dim;
  EXPECT_EQ(view->rows, spec.num_heads * lora);
  EXPECT_EQ(view->cols, spec.qk_nope_head_dim);
  const std::string& data = checkpoint.tensors().at(prefix + "weight").data;
  ExpectPacked(*view, [&](int64_t row, int64_t col) {
    return Bits(view->dtype, data, lora, row / lora * head_rows + col, row % lora);
  });
  if (view->dtype != DType::kF8E4M3) return;
  const std::string& scales = checkpoint.tensors().at(prefix + "weight_scale_inv").data;
  for (int64_t row = 0; row < view->rows; row += 128) {
    for (int64_t col = 0; col < view->cols; col += 128) {
      const int64_t published_row = row / lora * head_rows + col;
      EXPECT_EQ(view->scales[row / 128 * (view->cols / 128) + col / 128],
                Load<float>(scales.data(), published_row / 128 * (lora / 128) + row % lora / 128));
    }
  }
}

void ExpectFaithful(const weights::ModelSpec& spec, bool fp8, int threads) {
  RandomCheckpoint random(spec, fp8);
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  const Packed packed = PackInMemory(checkpoint, spec, {.threads = threads});
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  const auto segment = packed.Open();
  const auto expected = model::CheckpointTensors(spec);
  EXPECT_EQ(segment->directory().size(), expected.size() + static_cast<size_t>(spec.num_layers + spec.tied_head));
  for (const model::ModelTensor& tensor : expected) ExpectSameAsPublished(*segment, random, tensor);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) ExpectTransposedKeys(*segment, random, layer);
  EXPECT_EQ(std::memcmp(&segment->spec(), &spec, sizeof(spec)), 0);
  const absl::Status verified = segment->VerifyData();
  EXPECT_TRUE(verified.ok()) << verified;
}

TEST(PackContents, Bf16OfOddShapes) { ExpectFaithful(OddSpec(), false, 1); }
TEST(PackContents, Bf16OfOddShapesByThreeThreads) { ExpectFaithful(OddSpec(), false, 3); }
TEST(PackContents, Fp8WithEdgeBlocks) { ExpectFaithful(BlockSpec(), true, 2); }

TEST(PackContents, Fp8WithSeveralKeyBlocksAHead) {
  weights::ModelSpec spec = BlockSpec();
  spec.qk_nope_head_dim = 256;
  spec.num_layers = 1;
  ExpectFaithful(spec, true, 2);
}

// Tensors that the segment has in parts, some of them transposed or of every other column. expected_parts: how many
// do not begin where the checkpoint's tensor does.
void ExpectPartsOfStackedTensors(const weights::ModelSpec& spec, int64_t expected_parts, int threads) {
  RandomCheckpoint random(spec, false);
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  const Packed packed = PackInMemory(checkpoint, spec, {.threads = threads});
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  const auto segment = packed.Open();
  int64_t parts = 0;
  for (const model::ModelTensor& tensor : model::SegmentTensors(spec)) {
    if (!model::IsLinear(tensor.role) && tensor.part != model::TensorPart::kExpert) continue;
    const auto view = segment->Find(tensor.name);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->rows, tensor.rows);
    const model::PublishedPart part = model::PublishedAs(spec, tensor);
    const std::string& data = random.tensors().at(part.name).data;
    const int64_t cols = part.shape.back();
    const auto at = [&](int64_t row, int64_t col) {
      return part.transposed ? std::pair(part.first_row + col, part.first_col + part.col_step * row)
                             : std::pair(part.first_row + row, part.first_col + part.col_step * col);
    };
    if (model::IsLinear(tensor.role)) {
      ExpectPacked(*view, [&](int64_t row, int64_t col) {
        const auto [published_row, published_col] = at(row, col);
        return Bits(DType::kBF16, data, cols, published_row, published_col);
      });
    } else {
      const bool is_f32 = random.tensors().at(part.name).dtype == "F32";
      for (int64_t col = 0; col < tensor.cols; ++col) {
        const auto [published_row, published_col] = at(0, col);
        const int64_t i = published_row * cols + published_col;
        ASSERT_EQ(Load<float>(view->data, col),
                  is_f32 ? Load<float>(data.data(), i) : FromBf16(Load<uint16_t>(data.data(), i)))
            << tensor.name << " " << col;
      }
    }
    parts += part.transposed || part.first_row > 0 || part.first_col > 0 ? 1 : 0;
  }
  EXPECT_EQ(parts, expected_parts);
  const absl::Status verified = segment->VerifyData();
  EXPECT_TRUE(verified.ok()) << verified;
}

weights::ModelSpec StackedSpec() {
  weights::ModelSpec spec;
  std::string("dbrx").copy(spec.family, sizeof(spec.family) - 1);
  spec.hidden_size = 192;
  spec.num_layers = 2;
  spec.num_heads = 3;
  spec.num_kv_heads = 1;
  spec.qk_rope_head_dim = spec.v_head_dim = 64;
  spec.heads_without_norms = spec.softmax_router = spec.layer_norms = 1;
  spec.moe_intermediate_size = 35;
  spec.num_experts = 5;
  spec.experts_per_token = 2;
  spec.vocab_size = spec.token_count = 131;
  return spec;
}

TEST(PackContents, PartsOfStackedTensors) {
  for (const int threads : {1, 3}) ExpectPartsOfStackedTensors(StackedSpec(), 2 * (2 + 3 * 5 - 2), threads);
}

// gpt-oss: gates and ups alternate, of which all but the first expert's gate biases begin elsewhere.
TEST(PackContents, PartsOfInterleavedTensors) {
  weights::ModelSpec spec = StackedSpec();
  std::string("gpt_oss").copy(spec.family, sizeof(spec.family) - 1);
  spec.layer_norms = 0;
  spec.expert_biases = spec.router_bias = spec.attention_sinks = 1;
  for (const int threads : {1, 3}) ExpectPartsOfStackedTensors(spec, 2 * (3 * 5 + 3 * 5 - 2), threads);
}

// So wide that the transposed tensor is read a slice at a time.
TEST(PackContents, AStackedTensorInStripes) {
  weights::ModelSpec spec = StackedSpec();
  spec.num_layers = 1;
  spec.moe_intermediate_size = 70001;
  spec.num_experts = 1;
  spec.experts_per_token = 1;
  ExpectPartsOfStackedTensors(spec, 2 + 3 - 2, 2);
  std::string("gpt_oss").copy(spec.family, sizeof(spec.family) - 1);
  spec.layer_norms = 0;
  ExpectPartsOfStackedTensors(spec, 3, 2);
}

TEST(PackContents, ATiedHeadIsThePackedEmbedding) {
  weights::ModelSpec spec = OddSpec();
  spec.tied_head = 1;
  ExpectFaithful(spec, false, 2);
  RandomCheckpoint random(spec, false);
  EXPECT_EQ(random.tensors().count("lm_head.weight"), 0u);
  random.Write();
  const checkpoint::Checkpoint checkpoint = random.Open();
  const Packed packed = PackInMemory(checkpoint, spec, {.threads = 1});
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  const auto segment = packed.Open();
  const std::string& embedding = random.tensors().at("model.embed_tokens.weight").data;
  ExpectPacked(*segment->Find("lm_head.weight"),
               [&](int64_t row, int64_t col) { return Bits(DType::kBF16, embedding, spec.hidden_size, row, col); });
}

TEST(PackContents, WorkedExampleOfTheFormatDocument) {
  EXPECT_EQ(PackedOffset(DType::kF8E4M3, 129, 70, 6), 8732);
  EXPECT_EQ(PackedOffset(DType::kBF16, 129, 70, 6), 17688);
}

}  // namespace
}  // namespace moestro::store
