#include "services/cli/model/make_model/tensor_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "common/base/random_bits.h"
#include "common/tensor/block_rows.h"
#include "common/tensor/fp8_codes.h"
#include "services/cli/model/make_model/four_bits.h"

namespace moestro::cli {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kSeed = 1;

const std::map<std::string, PlannedTensor>& TinyPlan() {
  static const auto plan = [] {
    std::map<std::string, PlannedTensor> by_name;
    for (const PlannedTensor& tensor : PlanTensors(*ResolveModel({}))) by_name.emplace(tensor.name, tensor);
    return by_name;
  }();
  return plan;
}

template <typename T>
std::vector<T> Values(const PlannedTensor& tensor, int64_t begin, int64_t end, uint64_t seed = kSeed) {
  std::vector<T> values(end - begin);
  FillValues(tensor, seed, begin, end, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

template <typename T>
std::vector<T> Values(const std::string& name, int64_t end) {
  return Values<T>(TinyPlan().at(name), 0, end);
}

constexpr char kDown[] = "model.layers.3.mlp.experts.1.down_proj.weight";
constexpr char kDownScale[] = "model.layers.3.mlp.experts.1.down_proj.weight_scale_inv";

// The golden numbers of these tests come from tests/golden/generator_check.py.
TEST(RandomBitsTest, GoldenWords) {
  EXPECT_EQ(HashName("lm_head.weight"), 0xab67eb515e1b6f0du);
  const RandomWords words(kSeed, kDown);
  EXPECT_EQ(words[0], 0x43ed5897e893e8deu);
  EXPECT_EQ(words[12345], 0x987e19692e96fef8u);
}

TEST(TensorValuesTest, GoldenFp8Codes) {
  EXPECT_THAT(Values<uint8_t>(kDown, 16), ElementsAre(0xf1, 0xf1, 0x6e, 0x6a, 0xf2, 0x79, 0xf2, 0x65, 0xf0, 0x5d, 0x6c,
                                                      0xe0, 0x69, 0xec, 0xf9, 0xf4));
}

TEST(TensorValuesTest, GoldenScales) {
  EXPECT_THAT(Values<uint32_t>(kDownScale, 4), ElementsAre(0x39a0b3b9, 0x39520e9c, 0x399c3cfb, 0x3972822d));
}

TEST(TensorValuesTest, GoldenBf16Values) {
  EXPECT_THAT(Values<uint16_t>("lm_head.weight", 6), ElementsAre(0x3e8c, 0x3e09, 0x3eaa, 0x3e74, 0xbdd1, 0x3e57));
  EXPECT_THAT(Values<uint16_t>("model.norm.weight", 4), ElementsAre(0x3f81, 0x3f84, 0x3f8e, 0x3f69));
}

TEST(TensorValuesTest, GoldenF32Bias) {
  EXPECT_THAT(Values<uint32_t>("model.layers.1.mlp.gate.e_score_correction_bias", 4),
              ElementsAre(0x3c624add, 0xbe0f5c6d, 0x3e101ba5, 0x3e1897a2));
}

TEST(TensorValuesTest, BytesDoNotDependOnTheRanges) {
  const PlannedTensor& codes = TinyPlan().at(kDown);
  const auto whole = Values<uint8_t>(codes, 0, 1000);
  for (const int64_t cut : {1, 2, 3, 5, 998, 999}) {
    auto joined = Values<uint8_t>(codes, 0, cut);
    const auto rest = Values<uint8_t>(codes, cut, 1000);
    joined.insert(joined.end(), rest.begin(), rest.end());
    EXPECT_EQ(joined, whole) << cut;
  }
}

TEST(TensorValuesTest, SeedAndNameChangeEverything) {
  const PlannedTensor& tensor = TinyPlan().at(kDown);
  PlannedTensor renamed = tensor;
  renamed.key = "other";
  EXPECT_NE(Values<uint8_t>(tensor, 0, 64), Values<uint8_t>(tensor, 0, 64, kSeed + 1));
  EXPECT_NE(Values<uint8_t>(tensor, 0, 64), Values<uint8_t>(renamed, 0, 64));
}

TEST(TensorValuesTest, PredictionLayerRepeatsTheHead) {
  EXPECT_EQ(Values<uint16_t>("model.layers.4.shared_head.head.weight", 512), Values<uint16_t>("lm_head.weight", 512));
}

TEST(TensorValuesTest, CodesCoverTheFormatWithoutNan) {
  PlannedTensor tensor = TinyPlan().at(kDown);
  constexpr int64_t kCount = 1 << 20;
  tensor.shape = {1, kCount};
  std::array<int64_t, 256> histogram{};
  double sum = 0;
  double squares = 0;
  for (const uint8_t code : Values<uint8_t>(tensor, 0, kCount)) {
    ++histogram[code];
    const double value = FromE4M3(code);
    sum += value;
    squares += value * value;
  }
  EXPECT_EQ(histogram[0x7f], 0);
  EXPECT_EQ(histogram[0xff], 0);
  for (int code = 0; code < 0x7f; ++code) {
    EXPECT_GT(histogram[code], 0) << code;
    EXPECT_GT(histogram[code | 0x80], 0) << code;
  }
  EXPECT_NEAR(sum / kCount, 0, 1);
  EXPECT_NEAR(std::sqrt(squares / kCount), kCodeStdDev, 1);
}

TEST(TensorValuesTest, ScalesVaryAndAreNoPowersOfTwo) {
  PlannedTensor tensor = TinyPlan().at(kDownScale);
  tensor.shape = {100, 100};
  const double unit = tensor.deviation / kCodeStdDev;
  int powers_of_two = 0;
  for (const float scale : Values<float>(tensor, 0, tensor.elements())) {
    ASSERT_GE(scale, static_cast<float>(0.5 * unit));
    ASSERT_LE(scale, static_cast<float>(1.5 * unit));
    int exponent = 0;
    if (std::frexp(scale, &exponent) == 0.5f) ++powers_of_two;
  }
  EXPECT_LT(powers_of_two, 5);
}

TEST(TensorValuesTest, NormalValuesHaveTheWantedMoments) {
  PlannedTensor tensor = TinyPlan().at("model.embed_tokens.weight");
  tensor.dtype = DType::kF32;
  tensor.mean = 3;
  tensor.deviation = 2;
  double sum = 0;
  double squares = 0;
  constexpr int64_t kCount = 200000;
  for (const float value : Values<float>(tensor, 0, kCount)) {
    sum += value;
    squares += (value - 3.0) * (value - 3.0);
    ASSERT_LE(std::fabs(value - 3.0f), 3.47f * 2);
  }
  EXPECT_NEAR(sum / kCount, 3, 0.02);
  EXPECT_NEAR(std::sqrt(squares / kCount), 2, 0.02);
}

TEST(TensorValuesTest, DequantisedValuesAreCodeTimesScale) {
  const PlannedTensor& codes_plan = TinyPlan().at(kDown);  // 256 x 192: two block columns, the second half as wide
  const PlannedTensor& scales_plan = TinyPlan().at(kDownScale);
  PlannedTensor bf16 = codes_plan;
  bf16.dtype = DType::kBF16;
  bf16.recipe = Recipe::kDequantised;
  const auto codes = Values<uint8_t>(codes_plan, 0, codes_plan.elements());
  const auto scales = Values<float>(scales_plan, 0, scales_plan.elements());
  constexpr int64_t kBegin = 77;  // in the middle of a row
  const auto values = Values<uint16_t>(bf16, kBegin, bf16.elements());
  for (int64_t i = kBegin; i < bf16.elements(); ++i) {
    const int64_t block = i / 192 / kScaleBlock * 2 + i % 192 / kScaleBlock;
    ASSERT_EQ(values[i - kBegin], ToBf16(FromE4M3(codes[i]) * scales[block])) << i;
  }
}

// Codes and scales stand for the values of the weight's BF16 form, to within half a step.
class FourBitValues : public ::testing::TestWithParam<const char*> {};

TEST_P(FourBitValues, AreTheRoundedWeight) {
  const std::string name = "model.layers.2.mlp.experts.1.down_proj.weight";
  std::map<std::string, PlannedTensor> plan;
  for (const char* weights : {"bf16", GetParam()}) {
    for (PlannedTensor& tensor : PlanTensors(*ResolveModel({.weights = weights}))) plan[tensor.name] = tensor;
  }
  const PlannedTensor &codes = plan.at(name + "_packed"), &scales = plan.at(name + "_scale");
  const bool int4 = std::string_view(GetParam()) == "int4";
  const DType type = int4 ? DType::kI4G32 : DType::kMXFP4;
  const int64_t rows = codes.rows, cols = codes.cols;
  const auto bytes = [](const PlannedTensor& tensor) {
    std::vector<uint8_t> data(static_cast<size_t>(tensor.bytes()));
    const int64_t cut = tensor.elements() / 3;  // within a group
    FillValues(tensor, kSeed, 0, cut, reinterpret_cast<std::byte*>(data.data()));
    FillValues(tensor, kSeed, cut, tensor.elements(),
               reinterpret_cast<std::byte*>(data.data() + cut * tensor.element_bytes()));
    return data;
  };
  const std::vector<uint8_t> code_bytes = bytes(codes), scale_bytes = bytes(scales);
  const auto exact = Values<uint16_t>(plan.at(name), 0, rows * cols);
  std::vector<uint8_t> row(static_cast<size_t>(RowBytes(type, cols)));
  std::vector<float> weights(static_cast<size_t>(cols));
  std::set<float> ratios;
  for (int64_t r = 0; r < rows; ++r) {
    JoinCodesAndScales(type, code_bytes.data() + r * cols / 2, scale_bytes.data() + r * std::ssize(scale_bytes) / rows,
                       cols, row.data());
    DequantizeRow(type, row.data(), cols, weights.data());
    for (int64_t c = 0; c < cols; ++c) {
      const float weight = FromBf16(exact[r * cols + c]);
      const uint8_t* const scale = row.data() + c / 32 * FormatOf(type).row_block_bytes;
      const float step =
          int4 ? FromBf16(static_cast<uint16_t>(scale[0] | scale[1] << 8)) : std::ldexp(1.f, *scale - 127);
      const float magnitude = std::fabs(weight) / step;
      // Half of the distance of neighbours; beyond the last one up to 8 (INT4: 7.5), and 2^-8 for each rounding to
      // BF16.
      const float half = int4 ? 0.5f : magnitude < 2 ? 0.25f : magnitude < 4 ? 0.5f : magnitude < 6 ? 1 : 2;
      ASSERT_LE(std::fabs(weights[c] - weight) / step, half + magnitude / 128) << "row " << r << ", column " << c;
      ratios.insert(weights[c] / step);
    }
  }
  EXPECT_EQ(ratios.size(), int4 ? 16 : 15) << "every code is there";
}

INSTANTIATE_TEST_SUITE_P(Forms, FourBitValues, ::testing::Values("int4", "mxfp4"));

// The three forms of weights with zero points stand for the same values, to within one step of the BF16 form's.
TEST(ZeroPointValues, AreTheRoundedWeightInEveryForm) {
  const std::string module = "model.layers.2.mlp.experts.1.down_proj.";
  const auto bytes_of = [&](const char* weights, const std::string& name) {
    for (const PlannedTensor& tensor : PlanTensors(*ResolveModel({.weights = weights}))) {
      if (tensor.name != name) continue;
      std::vector<uint8_t> data(static_cast<size_t>(tensor.bytes()));
      const int64_t cut = tensor.elements() / 3;  // within a group, or a band of lines
      FillValues(tensor, kSeed, 0, cut, reinterpret_cast<std::byte*>(data.data()));
      FillValues(tensor, kSeed, cut, tensor.elements(),
                 reinterpret_cast<std::byte*>(data.data() + cut * tensor.element_bytes()));
      return data;
    }
    ADD_FAILURE() << name;
    return std::vector<uint8_t>();
  };
  std::map<std::string, PlannedTensor> plan;
  for (PlannedTensor& tensor : PlanTensors(*ResolveModel({.weights = "bf16"}))) plan[tensor.name] = tensor;
  const PlannedTensor& exact = plan.at(module + "weight");
  const int64_t rows = exact.shape[0], cols = exact.shape[1], groups = cols / kFourBitGroup;
  const auto values = Values<uint16_t>(exact, 0, rows * cols);
  const auto nibble = [](const std::vector<uint8_t>& words, int64_t word, int64_t place) {
    return words[static_cast<size_t>(word * 4 + place / 2)] >> (place % 2 * 4) & 15;
  };
  const auto f16 = [](const std::vector<uint8_t>& scales, int64_t i) {
    return FromF16(
        static_cast<uint16_t>(scales[static_cast<size_t>(2 * i)] | scales[static_cast<size_t>(2 * i + 1)] << 8));
  };
  const auto packed = bytes_of("int4_asym", module + "weight_packed"),
             packed_scales = bytes_of("int4_asym", module + "weight_scale"),
             packed_zeros = bytes_of("int4_asym", module + "weight_zero_point");
  const auto awq = bytes_of("awq", module + "qweight"), awq_scales = bytes_of("awq", module + "scales"),
             awq_zeros = bytes_of("awq", module + "qzeros");
  const auto gptq = bytes_of("gptq", module + "qweight"), gptq_zeros = bytes_of("gptq", module + "qzeros"),
             group_of_input = bytes_of("gptq", module + "g_idx");
  EXPECT_EQ(bytes_of("gptq", module + "scales"), awq_scales);
  constexpr int64_t kAwqPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};
  std::set<int> codes, zeros;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t g = c / kFourBitGroup;
      const int code = nibble(packed, (r * cols + c) / 8, c % 8);
      const int zero = nibble(packed_zeros, r / 8 * groups + g, r % 8);
      const float scale = f16(packed_scales, r * groups + g);
      ASSERT_EQ(nibble(awq, (c * rows + r) / 8, kAwqPlace[r % 8]), code);
      ASSERT_EQ(nibble(awq_zeros, (g * rows + r) / 8, kAwqPlace[r % 8]), zero);
      ASSERT_EQ(f16(awq_scales, g * rows + r), scale);
      ASSERT_EQ(nibble(gptq, c / 8 * rows + r, c % 8), code);
      ASSERT_EQ((nibble(gptq_zeros, (g * rows + r) / 8, r % 8) + 1) % 16, zero);
      ASSERT_EQ(group_of_input[static_cast<size_t>(4 * c)], g);
      // Half a step for the code, half of one for the zero point at the ends, and 15 * 2^-11 for the scale's rounding.
      const float weight = FromBf16(values[r * cols + c]);
      ASSERT_LE(std::fabs(static_cast<float>(code - zero) * scale - weight), 1.02f * scale + std::fabs(weight) / 256)
          << "row " << r << ", column " << c;
      codes.insert(code);
      zeros.insert(zero);
    }
  }
  EXPECT_EQ(codes.size(), 16) << "every code is there";
  EXPECT_GT(zeros.size(), 4);
}

TEST(FourBitGroups, ZeroPoints) {
  std::array<float, kFourBitGroup> weights{};
  EXPECT_EQ(RoundToInt4WithZero(weights).scale, 0x3c00) << "1";
  EXPECT_EQ(RoundToInt4WithZero(weights).zero, 0);
  weights = {-6, 9, 0, 1, -1, 0.5f, 1.5f, 8.6f};
  const Int4ZeroGroup group = RoundToInt4WithZero(weights);
  EXPECT_EQ(group.scale, 0x3c00);
  EXPECT_EQ(group.zero, 6);
  EXPECT_EQ(group.words[0], 0xf86576f0u);
  EXPECT_EQ(group.words[1], 0x66666666u);
}

TEST(FourBitGroups, TiesAndLimits) {
  std::array<float, kFourBitGroup> weights{};
  EXPECT_EQ(RoundToInt4(weights).scale, 0x3f80) << "1";
  EXPECT_EQ(RoundToInt4(weights).words[3], 0x88888888u);
  EXPECT_EQ(RoundToMxfp4(weights).scale, 0);
  EXPECT_EQ(RoundToMxfp4(weights).bytes[15], 0);
  weights = {-7.5f, 7.5f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 3};
  EXPECT_EQ(RoundToInt4(weights).scale, 0x3f80);
  EXPECT_EQ(RoundToInt4(weights).words[0], 0xb68aa8f0u);
  weights = {4, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 6, 7.9f, -7, -0.1f};
  const Mxfp4Group group = RoundToMxfp4(weights);
  EXPECT_EQ(group.scale, 127);
  const std::array<uint8_t, 16> codes = {0x06, 0x22, 0x44, 0x66, 0x77, 0x8f};
  EXPECT_EQ(group.bytes, codes);
}

// In any ranges, with scales of both types.
TEST(TensorValuesTest, Int8CodesAreTheNearestOfTheirRow) {
  const auto codes8 = Values<uint8_t>(kDown, 256 * 192);
  const auto blocks = Values<float>(kDownScale, 4);
  for (const char* const weights : {"int8", "w8a8_int8"}) {
    std::map<std::string, PlannedTensor> plan;
    for (const PlannedTensor& tensor : PlanTensors(*ResolveModel({.weights = weights}))) plan[tensor.name] = tensor;
    EXPECT_STREQ(plan.at("model.layers.3.self_attn.kv_b_proj.weight").dtype_name(),
                 weights == std::string("int8") ? "BF16" : "I8");
    const PlannedTensor& codes_plan = plan.at(kDown);
    const PlannedTensor& scales_plan = plan.at(std::string(kDown) + "_scale");
    const bool narrow = weights == std::string("int8");
    EXPECT_STREQ(codes_plan.dtype_name(), "I8");
    EXPECT_STREQ(scales_plan.dtype_name(), narrow ? "BF16" : "F32");
    EXPECT_THAT(scales_plan.shape, ElementsAre(256, 1));
    constexpr int64_t kBegin = 77;  // in the middle of a row
    const auto codes = Values<int8_t>(codes_plan, kBegin, codes_plan.elements());
    for (int64_t row = 0; row < 256; ++row) {
      std::array<float, 192> values;
      for (int64_t col = 0; col < 192; ++col) {
        values[col] = FromE4M3(codes8[row * 192 + col]) * blocks[row / kScaleBlock * 2 + col / kScaleBlock];
      }
      float largest = 0;
      for (const float value : values) largest = std::max(largest, std::fabs(value));
      float scale = largest / 127;
      if (narrow) {
        scale = FromBf16(ToBf16(scale));
        EXPECT_EQ(Values<uint16_t>(scales_plan, row, row + 1)[0], ToBf16(scale));
      } else {
        EXPECT_EQ(Values<float>(scales_plan, row, row + 1)[0], scale);
      }
      for (int64_t col = row == 0 ? kBegin : 0; col < 192; ++col) {
        const float code = std::clamp(std::nearbyint(values[col] / scale), -127.0f, 127.0f);
        ASSERT_EQ(codes[row * 192 + col - kBegin], code) << row << " " << col;
      }
    }
  }
}

}  // namespace
}  // namespace moestro::cli
