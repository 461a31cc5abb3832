// I8 weights through the packer: codes, scales and compensation, one by one.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/services/weight_store/pack/pack_in_memory.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/random_checkpoint.h"

namespace moestro::store {
namespace {

using testing::ExpectError;

// Whether the segment has it in INT8.
bool IsInt8(const model::ModelTensor& tensor) {
  return model::IsLinear(tensor.role) && tensor.role != model::TensorRole::kLatentUp;
}

float ScaleOf(int64_t row) { return static_cast<float>(1 + row % 128) / 64; }  // exact in BF16 and F16

// All linear layers, with scales of the three types in turn.
void Round(RandomCheckpoint& random) {
  std::mt19937 bits(11);
  int type = 0;
  for (const model::ModelTensor& tensor : model::CheckpointTensors(random.spec())) {
    if (!model::IsLinear(tensor.role)) continue;
    RandomCheckpoint::Tensor& codes = random.tensors().at(tensor.name);
    codes.dtype = "I8";
    codes.data.resize(static_cast<size_t>(tensor.rows * tensor.cols));
    for (char& code : codes.data) code = static_cast<char>(bits());
    if (tensor.rows > 1) std::memset(codes.data.data(), 0x80, static_cast<size_t>(tensor.cols));
    const bool wide = type % 3 == 0, bf16 = type % 3 == 1;
    RandomCheckpoint::Tensor scales{wide ? "F32" : bf16 ? "BF16" : "F16", {tensor.rows, 1}, {}};
    for (int64_t row = 0; row < tensor.rows; ++row) {
      const float scale = ScaleOf(row);
      const uint16_t narrow = bf16 ? ToBf16(scale) : std::bit_cast<uint16_t>(static_cast<_Float16>(scale));
      scales.data.append(wide ? reinterpret_cast<const char*>(&scale) : reinterpret_cast<const char*>(&narrow),
                         wide ? sizeof scale : sizeof narrow);
    }
    random.tensors()[tensor.name + "_scale"] = std::move(scales);
    ++type;
  }
}

checkpoint::Checkpoint Written(const RandomCheckpoint& random) {
  random.Write();
  random.dir().Write("config.json", R"({"quantization_config": {"quant_method": "w8a8_int8"}})");
  return random.Open();
}

// As FORMAT.md says.
int8_t CodeAt(const weights::TensorView& view, int64_t row, int64_t col) {
  constexpr int64_t kPlaces[] = {0, 2, 1, 3};
  const int64_t padded = (view.cols + 63) / 64 * 64;
  return static_cast<int8_t>(
      view.data[row / 64 * 64 * padded + (col / 4 * 4 + row % 64 / 16) * 64 + row % 16 * 4 + kPlaces[col % 4]]);
}

void ExpectMatrix(const weights::TensorView& view, const std::string& codes) {
  ASSERT_EQ(view.dtype, DType::kI8);
  const PackedMatrix matrix = view.packed();
  EXPECT_EQ(matrix.exceptions, nullptr);
  ASSERT_NE(matrix.compensation, nullptr);
  ASSERT_NE(matrix.scales, nullptr);
  for (int64_t row = 0; row < PaddedRows(view.rows); ++row) {
    const bool missing = row >= view.rows;
    int64_t sum = 0;
    for (int64_t col = 0; col < (view.cols + 63) / 64 * 64; ++col) {
      const bool padding = missing || col >= view.cols;
      const int8_t code = padding ? int8_t{0} : static_cast<int8_t>(codes[static_cast<size_t>(row * view.cols + col)]);
      ASSERT_EQ(CodeAt(view, row, col), code) << view.name << " " << row << " " << col;
      sum += code;
    }
    ASSERT_EQ(matrix.compensation[row], -128 * sum) << view.name << " " << row;
    ASSERT_EQ(matrix.scales[row], missing ? 0 : ScaleOf(row)) << view.name << " " << row;
  }
}

// Wide enough for several chunks of columns.
weights::ModelSpec WideSpec() {
  weights::ModelSpec spec = OddSpec();
  spec.intermediate_size = 2 * 1024 + 67;
  return spec;
}

TEST(PackInt8, CodesScalesAndCompensation) {
  RandomCheckpoint random(WideSpec(), /*fp8=*/false);
  Round(random);
  const checkpoint::Checkpoint checkpoint = Written(random);
  for (const int threads : {1, 3}) {
    const Packed packed = PackInMemory(checkpoint, random.spec(), {.threads = threads});
    ASSERT_TRUE(packed.status.ok()) << packed.status;
    const auto segment = packed.Open();
    EXPECT_TRUE(segment->VerifyData().ok());
    int matrices = 0;
    for (const model::ModelTensor& tensor : model::CheckpointTensors(random.spec())) {
      if (!IsInt8(tensor)) continue;
      const auto view = segment->Find(tensor.name);
      ASSERT_TRUE(view.ok()) << view.status();
      ExpectMatrix(*view, random.tensors().at(tensor.name).data);
      ++matrices;
    }
    EXPECT_GT(matrices, 20);
  }
}

// The segment has them as if they had been published so.
TEST(PackInt8, LatentsAreRoundedToF16) {
  RandomCheckpoint random(OddSpec(), /*fp8=*/false);
  Round(random);
  RandomCheckpoint rounded(OddSpec(), /*fp8=*/false);
  Round(rounded);
  int latents = 0;
  for (const model::ModelTensor& tensor : model::CheckpointTensors(random.spec())) {
    if (tensor.role != model::TensorRole::kLatentUp) continue;
    rounded.tensors().erase(tensor.name + "_scale");
    RandomCheckpoint::Tensor& values = rounded.tensors().at(tensor.name);
    const std::string codes = std::exchange(values.data, {});
    values.dtype = "F16";
    for (size_t i = 0; i < codes.size(); ++i) {
      const float scale = ScaleOf(static_cast<int64_t>(i) / tensor.cols);
      values.data += testing::RawBytes(static_cast<_Float16>(scale * static_cast<int8_t>(codes[i])));
    }
    ++latents;
  }
  ASSERT_GT(latents, 1);
  const Packed packed = PackInMemory(Written(random), random.spec(), {.threads = 2});
  ASSERT_TRUE(packed.status.ok()) << packed.status;
  const Packed expected = PackInMemory(Written(rounded), random.spec(), {.threads = 1});
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  const auto segment = packed.Open(), other = expected.Open();
  for (const weights::TensorEntry& entry : segment->directory()) {
    const weights::TensorView view = *segment->Find(entry.name), as_f16 = *other->Find(entry.name);
    ASSERT_EQ(view.dtype, as_f16.dtype) << entry.name;
    ASSERT_EQ(view.bytes, as_f16.bytes) << entry.name;
    EXPECT_EQ(std::memcmp(view.data, as_f16.data, static_cast<size_t>(view.bytes)), 0) << entry.name;
  }
}

TEST(PackInt8, LatentsMustFitIntoF16) {
  const std::string name = "model.layers.1.self_attn.kv_b_proj.weight";
  for (const float bad : {1024.0f, std::numeric_limits<float>::quiet_NaN()}) {
    RandomCheckpoint random(OddSpec(), /*fp8=*/false);
    Round(random);
    RandomCheckpoint::Tensor& scales = random.tensors().at(name + "_scale");
    scales.dtype = "F32";
    scales.data.clear();
    for (int64_t row = 0; row < scales.shape[0]; ++row) scales.data += testing::RawBytes(bad);
    const Packed packed = PackInMemory(Written(random), random.spec(), {.threads = 2});
    ExpectError(packed.status, absl::StatusCode::kInvalidArgument,
                {"tensor '" + name + "' has a value that is not finite as F16"});
  }
}

TEST(PackInt8, BadScalesAreNamed) {
  const std::string name = "model.layers.1.mlp.experts.3.down_proj.weight_scale";
  for (const float bad :
       {-1.0f, -0.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    RandomCheckpoint random(OddSpec(), /*fp8=*/false);
    Round(random);
    RandomCheckpoint::Tensor& scales = random.tensors().at(name);
    scales.dtype = "F32";
    scales.data.assign(static_cast<size_t>(scales.shape[0]) * sizeof bad, '\0');
    std::memcpy(scales.data.data() + scales.data.size() - sizeof bad, &bad, sizeof bad);
    const checkpoint::Checkpoint checkpoint = Written(random);
    const Packed packed = PackInMemory(checkpoint, random.spec(), {.threads = 2});
    ExpectError(packed.status, absl::StatusCode::kInvalidArgument,
                {"tensor '" + name + "' has a scale that is negative or not finite: the file is damaged"});
    EXPECT_EQ(packed.state(), weights::SegmentState::kFailed);
  }
}

}  // namespace
}  // namespace moestro::store
