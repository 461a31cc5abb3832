// Weights whose codes and scales are two tensors, packed.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tensor/block_rows.h"
#include "common/tensor/packed_matrix.h"
#include "tests/services/weight_store/pack/pack_in_memory.h"
#include "tests/support/random_checkpoint.h"

namespace moestro::store {
namespace {

constexpr char kExperts[] = "model.layers.1.mlp.experts.";
constexpr int64_t kHidden = 160, kWidth = 96,
                  kExpertCount = 3;  // rows end within a group of 64, columns within a block

weights::ModelSpec Spec() {
  weights::ModelSpec spec = OddSpec();
  spec.hidden_size = kHidden;
  spec.moe_intermediate_size = kWidth;
  spec.num_experts = kExpertCount;
  return spec;
}

constexpr char kInt4Config[] = R"({"quantization_config": {
    "quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"weights": {
    "num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}}}})";
constexpr char kMxfp4Config[] = R"({"quantization_config": {
    "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "config_groups": {"group_0": {"weights": {
    "num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}}}}})";
constexpr char kGptOssConfig[] = R"({"quantization_config": {"quant_method": "mxfp4"}})";

struct Weight {
  std::string name;
  int64_t rows;
  int64_t cols;
  std::string codes;
  std::string scales;
};

class TwoTensorsPack : public ::testing::Test {
 protected:
  std::string Random(int64_t bytes) {
    std::string data(static_cast<size_t>(bytes), '\0');
    for (char& byte : data) byte = static_cast<char>(random_());
    return data;
  }

  // Replaces the experts' weights with random ones.
  void MakePacked(bool int4) {
    for (int64_t e = 0; e < kExpertCount; ++e) {
      for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
        const bool down = std::string_view(matrix) == "down_proj";
        Weight weight{absl::StrCat(kExperts, e, ".", matrix, ".weight"), down ? kHidden : kWidth,
                      down ? kWidth : kHidden, "", ""};
        weight.codes = Random(weight.rows * weight.cols / 2);
        weight.scales = Random(weight.rows * weight.cols / 32 * (int4 ? 2 : 1));
        // Finite ones: no exponent of BF16 or E8M0 is all ones.
        for (char& byte : weight.scales) byte = static_cast<char>(byte & 0x3f);
        checkpoint_.tensors().erase(weight.name);
        checkpoint_.tensors()[weight.name + "_packed"] = {
            int4 ? "I32" : "U8", {weight.rows, weight.cols / (int4 ? 8 : 2)}, weight.codes};
        checkpoint_.tensors()[weight.name + "_scale"] = {
            int4 ? "BF16" : "U8", {weight.rows, weight.cols / 32}, weight.scales};
        weights_.push_back(std::move(weight));
      }
    }
  }

  // The same in the tensors of gpt-oss.
  void MakeBlocks() {
    RandomCheckpoint::Tensor codes[2] = {{"U8", {kExpertCount, 2 * kWidth, kHidden / 32, 16}, ""},
                                         {"U8", {kExpertCount, kHidden, kWidth / 32, 16}, ""}};
    RandomCheckpoint::Tensor scales[2] = {{"U8", {kExpertCount, 2 * kWidth, kHidden / 32}, ""},
                                          {"U8", {kExpertCount, kHidden, kWidth / 32}, ""}};
    for (int64_t e = 0; e < kExpertCount; ++e) {
      const Weight &gate = weights_[3 * e], &up = weights_[3 * e + 1], &down = weights_[3 * e + 2];
      for (int64_t row = 0; row < kWidth; ++row) {
        for (const Weight* part : {&gate, &up}) {
          codes[0].data += part->codes.substr(row * kHidden / 2, kHidden / 2);
          scales[0].data += part->scales.substr(row * kHidden / 32, kHidden / 32);
        }
      }
      codes[1].data += down.codes;
      scales[1].data += down.scales;
    }
    for (const Weight& weight : weights_) {
      checkpoint_.tensors().erase(weight.name + "_packed");
      checkpoint_.tensors().erase(weight.name + "_scale");
    }
    const std::string experts = kExperts;
    checkpoint_.tensors()[experts + "gate_up_proj_blocks"] = codes[0];
    checkpoint_.tensors()[experts + "gate_up_proj_scales"] = scales[0];
    checkpoint_.tensors()[experts + "down_proj_blocks"] = codes[1];
    checkpoint_.tensors()[experts + "down_proj_scales"] = scales[1];
  }

  // The experts' packed bytes; empty after a failure, which `status_` has.
  std::vector<std::string> Pack(const char* config) {
    checkpoint_.Write();
    checkpoint_.dir().Write("config.json", config);
    const checkpoint::Checkpoint opened = checkpoint_.Open();
    const Packed packed = PackInMemory(opened, checkpoint_.spec(), {.threads = 2});
    status_ = packed.status;
    if (!status_.ok()) return {};
    const auto segment = packed.Open();
    std::vector<std::string> bytes;
    for (const Weight& weight : weights_) {
      const auto view = segment->Find(weight.name);
      EXPECT_TRUE(view.ok()) << view.status();
      const int64_t size = PackedBytes(view->dtype, view->rows, view->cols);
      bytes.emplace_back(reinterpret_cast<const char*>(view->data), static_cast<size_t>(size));
    }
    return bytes;
  }

  std::string PackedRows(DType type, const Weight& weight) const {
    const int64_t row_bytes = RowBytes(type, weight.cols);
    std::string rows(static_cast<size_t>(weight.rows * row_bytes), '\0');
    for (int64_t r = 0; r < weight.rows; ++r) {
      const auto part = [&](const std::string& all) {
        return reinterpret_cast<const uint8_t*>(all.data()) + std::ssize(all) / weight.rows * r;
      };
      JoinCodesAndScales(type, part(weight.codes), part(weight.scales), weight.cols,
                         reinterpret_cast<uint8_t*>(rows.data()) + r * row_bytes);
    }
    std::string packed;
    for (int64_t row = 0; row < weight.rows; row += kRowGroup) {
      std::string group(static_cast<size_t>(PackedGroupBytes(type, weight.cols)), '\0');
      PackBlockRows(type, reinterpret_cast<const uint8_t*>(rows.data()) + row * row_bytes, row_bytes,
                    std::min(kRowGroup, weight.rows - row), 0, weight.cols, reinterpret_cast<uint8_t*>(group.data()));
      packed += group;
    }
    return packed;
  }

  RandomCheckpoint checkpoint_{Spec(), false};
  std::mt19937 random_{3};
  std::vector<Weight> weights_;
  absl::Status status_;
};

TEST_F(TwoTensorsPack, Int4) {
  MakePacked(true);
  const std::vector<std::string> packed = Pack(kInt4Config);
  ASSERT_TRUE(status_.ok()) << status_;
  for (size_t i = 0; i < weights_.size(); ++i) {
    EXPECT_TRUE(packed[i] == PackedRows(DType::kI4G32, weights_[i])) << weights_[i].name;
  }
}

TEST_F(TwoTensorsPack, Mxfp4OfCompressedTensorsAndOfGptOss) {
  MakePacked(false);
  const std::vector<std::string> packed = Pack(kMxfp4Config);
  ASSERT_TRUE(status_.ok()) << status_;
  for (size_t i = 0; i < weights_.size(); ++i) {
    EXPECT_TRUE(packed[i] == PackedRows(DType::kMXFP4, weights_[i])) << weights_[i].name;
  }
  MakeBlocks();
  EXPECT_TRUE(Pack(kGptOssConfig) == packed);
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(TwoTensorsPack, AScaleThatIsNotFinite) {
  const std::string name = absl::StrCat(kExperts, "1.up_proj.weight_scale");
  MakePacked(true);
  for (const uint16_t bits : {0x7f80, 0xff80, 0x7fc0}) {
    std::memcpy(checkpoint_.tensors().at(name).data.data() + 40, &bits, sizeof bits);
    Pack(kInt4Config);
    testing::ExpectError(status_, absl::StatusCode::kInvalidArgument,
                         {".safetensors: tensor '" + name + "' has a scale that is not finite", "download it again"});
  }
}

TEST_F(TwoTensorsPack, AnE8M0ScaleThatIsNaN) {
  const std::string name = absl::StrCat(kExperts, "2.down_proj.weight_scale");
  MakePacked(false);
  checkpoint_.tensors().at(name).data[7] = '\xff';
  Pack(kMxfp4Config);
  testing::ExpectError(status_, absl::StatusCode::kInvalidArgument, {"'" + name + "' has a scale that is not finite"});
}

}  // namespace
}  // namespace moestro::store
