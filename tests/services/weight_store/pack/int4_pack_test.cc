// INT4 weights with zero points or F16 scales, as AWQ, GPTQ and compressed-tensors publish them: packed, they are the
// weights of tests/golden/int4 (make_int4.py).
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/safetensors.h"
#include "common/tensor/packed_matrix.h"
#include "tests/services/weight_store/pack/pack_in_memory.h"
#include "tests/support/packed_block_reader.h"
#include "tests/support/random_checkpoint.h"

namespace moestro::store {
namespace {

using nlohmann::json;

// The weight that takes the golden tensors; all others are BF16.
constexpr char kUp[] = "model.layers.1.mlp.experts.1.up_proj.weight";

struct Form {
  const char* name;
  int64_t rows;
  int64_t cols;
  DType dtype;
  json quantization;
};

json ByInput(const char* method, int64_t group, const char* format = nullptr, bool ordered = false) {
  json quantization = {{"quant_method", method}, {"bits", 4}, {"group_size", group}, {"desc_act", ordered}};
  if (format != nullptr) quantization["checkpoint_format"] = format;
  return quantization;
}

json Packed4(int64_t group, bool symmetric) {
  json weights = {{"num_bits", 4}, {"type", "int"}, {"symmetric", symmetric}, {"strategy", "channel"}};
  if (group > 0) weights["strategy"] = "group", weights["group_size"] = group;
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

std::vector<Form> Forms() {
  return {{"awq_128", 24, 256, DType::kI4Z128, ByInput("awq", 128)},
          {"awq_64", 72, 192, DType::kI4Z32, ByInput("awq", 64)},
          {"gptq_32", 24, 192, DType::kI4Z32, ByInput("gptq", 32, "gptq", true)},
          {"gptq_v2_row", 24, 256, DType::kI4Z128, ByInput("gptq", -1, "gptq_v2")},
          {"packed_128", 20, 256, DType::kI4Z128, Packed4(128, false)},
          {"packed_96", 20, 192, DType::kI4Z32, Packed4(96, false)},
          {"packed_row", 20, 192, DType::kI4Z32, Packed4(0, false)},
          {"packed_symmetric_128", 20, 256, DType::kI4Z128, Packed4(128, true)},
          {"packed_symmetric_64", 20, 192, DType::kI4Z32, Packed4(64, true)}};
}

class Int4Pack : public ::testing::Test {
 protected:
  void SetUp() override { Use(Forms()[2]); }

  // A checkpoint with this form of the weight.
  void Use(const Form& form) {
    form_ = form;
    weights::ModelSpec spec = OddSpec();
    spec.hidden_size = form.cols;
    spec.moe_intermediate_size = form.rows;
    checkpoint_.emplace(spec, false);
    checkpoint_->tensors().erase(kUp);
    const auto file = checkpoint::OpenSafetensors(absl::StrCat("tests/golden/int4/", form.name, ".safetensors"));
    ASSERT_TRUE(file.ok()) << file.status();
    for (const checkpoint::TensorInfo& info : file->tensors()) {
      std::string data(static_cast<size_t>(info.bytes), '\0');
      ASSERT_TRUE(file->ReadAt(info.file_offset, data.data(), info.bytes).ok());
      if (info.name == "values") {
        values_.resize(data.size() / sizeof(float));
        std::memcpy(values_.data(), data.data(), data.size());
      } else {
        checkpoint_->tensors()[NameOf(info.name)] = {info.dtype_name, info.shape, std::move(data)};
      }
    }
    ASSERT_EQ(std::ssize(values_), form.rows * form.cols);
  }
  // Of a tensor with this end.
  static std::string NameOf(const std::string& end) {
    return std::string(kUp).substr(0, std::string_view(kUp).size() - std::string_view("weight").size()) + end;
  }
  std::string& Data(const std::string& end) { return checkpoint_->tensors().at(NameOf(end)).data; }

  Packed Pack() {
    checkpoint_->Write();
    checkpoint_->dir().Write("config.json", json({{"quantization_config", form_.quantization}}).dump());
    const checkpoint::Checkpoint opened = checkpoint_->Open();
    return PackInMemory(opened, checkpoint_->spec(), {.threads = 2});
  }

  Form form_;
  std::optional<RandomCheckpoint> checkpoint_;
  std::vector<float> values_;
};

TEST_F(Int4Pack, HasTheLibrarysWeights) {
  for (const Form& form : Forms()) {
    SCOPED_TRACE(form.name);
    ASSERT_NO_FATAL_FAILURE(Use(form));
    const Packed packed = Pack();
    ASSERT_TRUE(packed.status.ok()) << packed.status;
    const auto segment = packed.Open();
    const auto view = segment->Find(kUp);
    ASSERT_TRUE(view.ok()) << view.status();
    ASSERT_EQ(view->dtype, form.dtype);
    const auto* const data = static_cast<const uint8_t*>(view->data);
    for (int64_t row = 0; row < form.rows; ++row) {
      const testing::PackedBlockReader reader(view->dtype,
                                              data + row / kRowGroup * PackedGroupBytes(view->dtype, view->cols));
      for (int64_t col = 0; col < form.cols; ++col) {
        ASSERT_EQ(reader.Weight(row % kRowGroup, col), values_[static_cast<size_t>(row * form.cols + col)])
            << "[" << row << ", " << col << "]";
      }
    }
    EXPECT_TRUE(segment->VerifyData().ok());
    EXPECT_EQ(segment->Find("model.layers.1.mlp.experts.0.up_proj.weight")->dtype, DType::kBF16);
  }
}

TEST_F(Int4Pack, AnOtherOrderOfInputs) {
  const int32_t group = 3;
  std::memcpy(Data("g_idx").data() + 4 * 7, &group, sizeof group);
  testing::ExpectError(Pack().status, absl::StatusCode::kInvalidArgument,
                       {".safetensors: tensor '" + NameOf("g_idx") + "' has input 7 in group 3, not 0",
                        "get the model quantised with desc_act: false"});
}

TEST_F(Int4Pack, AScaleThatIsNotFinite) {
  for (const size_t form : {0, 2, 4}) {
    ASSERT_NO_FATAL_FAILURE(Use(Forms()[form]));
    const std::string end = form == 4 ? "weight_scale" : "scales";
    const uint16_t infinity = 0x7c00;
    std::memcpy(Data(end).data() + 6, &infinity, sizeof infinity);
    testing::ExpectError(Pack().status, absl::StatusCode::kInvalidArgument,
                         {"tensor '" + NameOf(end) + "' has a scale that is not finite"});
  }
}

}  // namespace
}  // namespace moestro::store
