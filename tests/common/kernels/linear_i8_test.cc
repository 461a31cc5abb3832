// INT8 weights. With inputs in codes, sums are exact and there is no tolerance: every table has the bits of the NumPy
// model in tests/golden/int8_linear. With BF16 inputs: against double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "common/tensor/pack.h"
#include "tests/common/kernels/amx/model_test.h"

namespace moestro {
namespace {

constexpr int64_t kCases = 1000;
constexpr uint16_t kBf16Nan = 0x7fc0;

// SplitMix64.
uint64_t RandomBits(uint64_t seed, int64_t i) {
  uint64_t z = seed + (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

struct alignas(kPackedAlignment) Line {
  uint8_t bytes[kPackedAlignment];
};

struct Layer {
  int64_t rows = 0, cols = 0, tokens = 0;
  std::vector<int8_t> codes;  // [rows, cols]
  std::vector<Line> packed;
  std::vector<float> scales;
  std::vector<int32_t> compensation;
  std::vector<uint16_t> x;  // [tokens, stride]
  int64_t stride = 0;       // NaN behind the inputs of a token

  PackedMatrix weights() const {
    return {.dtype = DType::kI8,
            .rows = rows,
            .cols = cols,
            .data = packed[0].bytes,
            .scales = scales.data(),
            .compensation = compensation.data()};
  }
};

void Pack(const std::vector<uint8_t>& codes, Layer* layer) {
  const int64_t group_bytes = PackedGroupBytes(DType::kI8, layer->cols);
  layer->packed.resize(static_cast<size_t>(PackedBytes(DType::kI8, layer->rows, layer->cols) / kPackedAlignment));
  layer->compensation.resize(static_cast<size_t>(PaddedRows(layer->rows)));
  for (int64_t row = 0; row < layer->rows; row += kRowGroup) {
    uint8_t* group = layer->packed[0].bytes + row / kRowGroup * group_bytes;
    PackRows(DType::kI8, codes.data() + row * layer->cols, layer->cols, std::min(kRowGroup, layer->rows - row),
             layer->cols, group);
    FindCompensation(group, layer->cols, layer->compensation.data() + row);
  }
}

// The case of golden.py.
Layer MakeLayer(int64_t index) {
  const auto seed = static_cast<uint64_t>(3 * index);
  Layer layer;
  layer.rows = 1 + static_cast<int64_t>(RandomBits(seed, 0) % 150);
  layer.cols = 1 + static_cast<int64_t>(RandomBits(seed, 1) % 600);
  layer.tokens = 1 + static_cast<int64_t>(RandomBits(seed, 2) % 9);
  const bool wide = index % 50 == 0;
  if (wide) layer.rows = 3, layer.cols = 28672, layer.tokens = 2;
  if (index % 50 == 1) layer.rows = 70, layer.cols = 640, layer.tokens = 131;
  const int64_t kind = wide ? index / 50 % 5 : index % 5;
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < layer.rows * layer.cols; ++i) {
    auto code = static_cast<uint8_t>(RandomBits(seed + 1, i));
    if (kind == 1) code = wide ? 0x80 | (code & 31) : 0x80;
    if (kind == 2) code = code >= 0x80 ? 0x80 : 0x7f;
    codes.push_back(code);
  }
  Pack(codes, &layer);
  layer.codes.assign(codes.begin(), codes.end());
  for (int64_t row = 0; row < PaddedRows(layer.rows); ++row) {
    const uint32_t bits = static_cast<uint32_t>(RandomBits(seed + 1, row) >> 32 & 0x7fffff) | 0x3c000000;
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    layer.scales.push_back(scale);
  }
  layer.stride = layer.cols + 3;
  layer.x.resize(static_cast<size_t>((layer.tokens - 1) * layer.stride + layer.cols), kBf16Nan);
  for (int64_t i = 0; i < layer.tokens * layer.cols; ++i) {
    auto bits = static_cast<uint16_t>((RandomBits(seed + 2, i) & 0x8fff) | 112 << 7);
    if (kind == 1) bits = 0x4049;
    if (kind == 2) bits = bits & 0x8000 ? 0xc049 : 0x4049;
    if (kind == 3 && (bits & 3) != 0) bits = 0;
    layer.x[static_cast<size_t>(i / layer.cols * layer.stride + i % layer.cols)] = bits;
  }
  return layer;
}

// The inputs as coded rows, `gap` bytes further apart than they need be.
struct CodedInputs {
  std::vector<Line> lines;
  int64_t stride = 0;

  const uint8_t* row(int64_t t) const { return lines[0].bytes + t * stride; }
};
CodedInputs Encode(const CpuKernels& kernels, const Layer& layer, int64_t gap = 0) {
  CodedInputs coded;
  coded.stride = CodedRowBytes(InputCoding::kRow, layer.cols) + gap;
  coded.lines.resize(static_cast<size_t>(layer.tokens * coded.stride / kPackedAlignment));
  for (int64_t t = 0; t < layer.tokens; ++t) {
    kernels.encode_inputs(InputCoding::kRow, layer.x.data() + t * layer.stride, layer.cols,
                          coded.lines[0].bytes + t * coded.stride);
  }
  return coded;
}

std::vector<float> Multiply(const CpuKernels& kernels, const Layer& layer) {
  std::vector<float> y(static_cast<size_t>(layer.tokens * layer.rows), NAN);
  const CodedInputs coded = Encode(kernels, layer);
  kernels.linear_coded(layer.weights(), coded.row(0), coded.stride, layer.tokens, y.data(), layer.rows, 0, layer.rows,
                       /*add=*/false);
  return y;
}

uint64_t Fnv1a(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : values) {
    uint8_t bytes[4];
    std::memcpy(bytes, &value, sizeof bytes);
    for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  }
  return hash;
}

class LinearI8Test : public KernelOrModelTest {};

TEST_P(LinearI8Test, HasTheBitsOfTheIntegerModel) {
  std::ifstream file(LINEAR_I8_HASHES);
  for (int64_t index = 0; index < kCases; ++index) {
    std::string expected;
    ASSERT_TRUE(file >> expected) << LINEAR_I8_HASHES;
    const Layer layer = MakeLayer(index);
    ASSERT_EQ(Fnv1a(Multiply(*kernels_, layer)), std::stoull(expected, nullptr, 16))
        << "case " << index << ": [" << layer.rows << ", " << layer.cols << "] x " << layer.tokens;
  }
}

TEST_P(LinearI8Test, RowsAndTokensAloneHaveTheSameBits) {
  const Layer layer = MakeLayer(1);  // 70 rows, 131 tokens
  const std::vector<float> all = Multiply(*kernels_, layer);
  const CodedInputs coded = Encode(*kernels_, layer, kCodedRowAlignment);
  for (int64_t t = 0; t < layer.tokens; t += 13) {
    for (const int64_t begin : {int64_t{0}, kRowGroup}) {
      const int64_t end = std::min(begin + kRowGroup, layer.rows);
      std::vector<float> y(static_cast<size_t>(end - begin));
      kernels_->linear_coded(layer.weights(), coded.row(t), coded.stride, 1, y.data(), end - begin, begin, end,
                             /*add=*/false);
      EXPECT_EQ(std::memcmp(y.data(), &all[static_cast<size_t>(t * layer.rows + begin)], y.size() * sizeof(float)), 0)
          << "token " << t << ", rows from " << begin;
    }
  }
}

// Copied rows, further apart than they need be; a case's tokens take turns.
TEST_P(LinearI8Test, TakesInputsThatWereCodedBefore) {
  const struct {
    int64_t index, tokens;
  } cases[] = {{1, 131}, {1, 5}, {1, 16}, {1, 17}, {1, 37}, {1, 48}, {3, 9}, {50, 2}, {50, 21}, {50, 66}, {63, 4}};
  for (const auto& [index, tokens] : cases) {
    const Layer layer = MakeLayer(index);
    const int64_t stride = CodedRowBytes(InputCoding::kRow, layer.cols) + kCodedRowAlignment;
    std::vector<Line> coded(static_cast<size_t>(tokens * stride / kPackedAlignment));
    for (int64_t t = 0; t < tokens; ++t) {
      kernels_->encode_inputs(InputCoding::kRow, layer.x.data() + t % layer.tokens * layer.stride, layer.cols,
                              coded[0].bytes + t * stride);
    }
    std::vector<float> product = Multiply(*kernels_, layer);
    for (const bool add : {false, true}) {
      if (add) {
        for (float& value : product) value += 1;
      }
      std::vector<float> y(static_cast<size_t>(tokens * layer.rows), add ? 1.0f : NAN);
      kernels_->linear_coded(layer.weights(), coded[0].bytes, stride, tokens, y.data(), layer.rows, 0, layer.rows, add);
      for (int64_t t = 0; t < tokens; ++t) {
        const float* expected = &product[static_cast<size_t>(t % layer.tokens * layer.rows)];
        ASSERT_EQ(std::memcmp(&y[static_cast<size_t>(t * layer.rows)], expected,
                              static_cast<size_t>(layer.rows) * sizeof(float)),
                  0)
            << "case " << index << ", token " << t << " of " << tokens;
      }
    }
  }
}

TEST_P(LinearI8Test, AddsToTheOutput) {
  const Layer layer = MakeLayer(3);
  const std::vector<float> product = Multiply(*kernels_, layer);
  const std::vector<float> before = RandomFloats(std::ssize(product), 7);
  std::vector<float> y = before;
  const CodedInputs coded = Encode(*kernels_, layer);
  kernels_->linear_coded(layer.weights(), coded.row(0), coded.stride, layer.tokens, y.data(), layer.rows, 0, layer.rows,
                         /*add=*/true);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], before[i] + product[i]) << i;
}

TEST_P(LinearI8Test, InfinityAndNanReachOnlyTheirToken) {
  Layer layer = MakeLayer(4);
  layer.tokens = 3;
  layer.x.assign(static_cast<size_t>(3 * layer.stride), ToBf16(0.5f));
  layer.x[0] = 0x7f80;  // infinity
  layer.x[static_cast<size_t>(layer.stride)] = kBf16Nan;
  const std::vector<float> y = Multiply(*kernels_, layer);
  for (int64_t row = 0; row < layer.rows; ++row) {
    EXPECT_FALSE(std::isfinite(y[static_cast<size_t>(row)]));
    EXPECT_FALSE(std::isfinite(y[static_cast<size_t>(layer.rows + row)]));
    EXPECT_TRUE(std::isfinite(y[static_cast<size_t>(2 * layer.rows + row)]));
  }
}

TEST_P(LinearI8Test, SmallestInputsHaveCodes) {
  Layer layer = MakeLayer(7);
  layer.tokens = 1;
  layer.x.assign(static_cast<size_t>(layer.cols), 1);  // 2^-133, subnormal
  std::vector<float> ones = Multiply(*kernels_, layer);
  layer.x.assign(static_cast<size_t>(layer.cols), 0);
  for (const float zero : Multiply(*kernels_, layer)) EXPECT_EQ(zero, 0);
  EXPECT_TRUE(std::ranges::any_of(ones, [](float value) { return value != 0; }));
}

// BF16 inputs: a product of a code and an input is exact in F32. Of a chain of n inputs the n additions round; each of
// the B chains adds one fused multiply-add with the row's scale: |y - truth| <= Gamma(n + B) * sum |scale * code * x|.
// The inputs are normal numbers.
TEST_P(LinearI8Test, Bf16InputsAgainstDoubleAndSameBitsForAnyBatchAndSplit) {
  for (const int64_t index : {0, 1, 2, 5, 8, 10, 13, 15, 18, 50}) {
    const Layer layer = MakeLayer(index);
    SCOPED_TRACE(testing::Message() << "[" << layer.rows << ", " << layer.cols << "] x " << layer.tokens);
    std::vector<float> y(static_cast<size_t>(layer.tokens * layer.rows), NAN);
    kernels_->linear(layer.weights(), layer.x.data(), layer.stride, layer.tokens, y.data(), layer.rows, 0, layer.rows);
    const auto blocks = static_cast<double>((layer.cols + kScaleBlock - 1) / kScaleBlock);
    const double roundings = static_cast<double>(std::min(layer.cols, kScaleBlock)) + blocks;
    for (int64_t t = 0; t < layer.tokens; ++t) {
      const uint16_t* const x = layer.x.data() + t * layer.stride;
      for (int64_t row = 0; row < layer.rows; ++row) {
        double sum = 0, magnitude = 0;
        for (int64_t col = 0; col < layer.cols; ++col) {
          const double term = static_cast<double>(layer.codes[static_cast<size_t>(row * layer.cols + col)]) *
                              FromBf16(x[col]) * layer.scales[static_cast<size_t>(row)];
          sum += term;
          magnitude += std::fabs(term);
        }
        ASSERT_NEAR(y[static_cast<size_t>(t * layer.rows + row)], sum, Gamma(roundings) * magnitude)
            << "token " << t << ", row " << row;
      }
      for (int64_t begin = 0; begin < layer.rows; begin += kRowGroup) {
        const int64_t end = std::min(begin + kRowGroup, layer.rows);
        std::vector<float> part(static_cast<size_t>(end - begin), NAN);
        kernels_->linear(layer.weights(), x, layer.stride, 1, part.data(), end - begin, begin, end);
        const float* const same = &y[static_cast<size_t>(t * layer.rows + begin)];
        ASSERT_EQ(std::memcmp(part.data(), same, part.size() * sizeof(float)), 0) << "token " << t << " alone";
      }
    }
    const std::vector<float> before = RandomFloats(std::ssize(y), 7);
    std::vector<float> added = before;
    kernels_->linear_add(layer.weights(), layer.x.data(), layer.stride, layer.tokens, added.data(), layer.rows, 0,
                         layer.rows);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(added[i], before[i] + y[i]) << i;
  }
}

TEST_P(LinearI8Test, SettingsDecideWhichWeightsTakeCodes) {
  using enum Int8Activations;
  EXPECT_EQ(kernels_->int8_activations, kPublished);
  EXPECT_EQ(CodingOf(DType::kI8, kPublished), InputCoding::kRow);
  EXPECT_EQ(CodingOf(DType::kI8, kAll), InputCoding::kRow);
  EXPECT_EQ(CodingOf(DType::kI8, kBf16), InputCoding::kNone);
  EXPECT_EQ(CodingOf(DType::kQ4K, kPublished), InputCoding::kNone);
  EXPECT_EQ(CodingOf(DType::kQ4K, kAll), InputCoding::kSpans);
  EXPECT_EQ(CodingOf(DType::kQ4K, kBf16), InputCoding::kNone);
  for (const Int8Activations setting : {kPublished, kAll, kBf16}) {
    for (const DType type : {DType::kF8E4M3, DType::kBF16, DType::kF16}) {
      EXPECT_EQ(CodingOf(type, setting), InputCoding::kNone);
    }
  }
}

MOE_INSTANTIATE_PER_ISA(LinearI8Test);
MOE_INSTANTIATE_ON_MODEL(LinearI8Test);
MOE_INSTANTIATE_CODED(LinearI8Test);

}  // namespace
}  // namespace moestro
