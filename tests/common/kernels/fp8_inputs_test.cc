#include "common/kernels/cpu/fp8_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "common/base/math.h"
#include "common/tensor/pack.h"
#include "tests/common/kernels/amx/model_test.h"

namespace moestro {
namespace {

constexpr DType kFp8 = DType::kF8E4M3;

struct alignas(kCodedRowAlignment) Line {
  uint8_t bytes[kCodedRowAlignment];
};

struct CodedRow {
  std::vector<Line> lines;
  explicit CodedRow(int64_t cols, int64_t rows = 1)
      : lines(static_cast<size_t>(rows * CodedRowBytes(InputCoding::kFp8, cols) / kCodedRowAlignment)) {}
  uint8_t* data() { return lines[0].bytes; }
  float value(int64_t i) { return FromBf16(reinterpret_cast<const uint16_t*>(data())[i]); }
  float scale(int64_t cols, int64_t span) {
    return reinterpret_cast<const float*>(data() + CeilDiv(cols, kCodeSpan) * kCodeSpan * 2)[span];
  }
};

// Every code from a quotient that is it, a tie, or next to one: 448 in each span makes the scale 1.
TEST(Fp8InputsTest, CodesAreTheNearestOnes) {
  for (uint32_t bits = 0; bits < 0x7f80; bits += 64) {  // of all BF16 numbers, 64 at once, of both signs
    std::vector<uint16_t> x(128);
    x[0] = ToBf16(448.0f);
    for (uint32_t i = 1; i < 128; ++i) {
      const uint32_t of = std::min<uint32_t>(bits + i / 2, 0x43e0);  // 448 at most
      x[i] = static_cast<uint16_t>(of | (i % 2) << 15);
    }
    CodedRow row(128);
    EncodeFp8(x.data(), 128, row.data());
    ASSERT_EQ(row.scale(128, 0), 1.0f);
    for (int64_t i = 0; i < 128; ++i) {
      const float expected = FromE4M3(ToE4M3(FromBf16(x[static_cast<size_t>(i)])));
      ASSERT_EQ(std::bit_cast<uint32_t>(row.value(i)), std::bit_cast<uint32_t>(expected)) << FromBf16(x[i]);
    }
  }
}

TEST(Fp8InputsTest, SpansOfAnyMagnitude) {
  std::mt19937 random(1);
  for (int turn = 0; turn < 500; ++turn) {
    const int64_t cols = 1 + static_cast<int64_t>(random() % 300);
    std::vector<uint16_t> x(static_cast<size_t>(cols));
    const int least = static_cast<int>(random() % 0x7f);
    for (uint16_t& number : x) {  // exponents of eight octaves, subnormals among them
      number = static_cast<uint16_t>((random() % 0x400 + static_cast<uint32_t>(least) * 0xf0) | (random() % 2) << 15);
      if ((number & 0x7fff) >= 0x7f80) number = 0x7f7f;
    }
    CodedRow row(cols);
    EncodeFp8(x.data(), cols, row.data());
    for (int64_t span = 0; span < CeilDiv(cols, kCodeSpan); ++span) {
      const int64_t begin = span * kCodeSpan, end = std::min(begin + kCodeSpan, cols);
      float greatest = 0;
      for (int64_t i = begin; i < end; ++i)
        greatest = std::max(greatest, std::fabs(FromBf16(x[static_cast<size_t>(i)])));
      const float scale = greatest / 448.0f;
      ASSERT_EQ(row.scale(cols, span), scale);
      for (int64_t i = begin; i < begin + kCodeSpan; ++i) {
        const float number = i < end ? FromBf16(x[static_cast<size_t>(i)]) : 0.0f;
        const float expected = i < end && greatest > 0 ? FromE4M3(ToE4M3(number / scale)) : 0.0f;
        ASSERT_EQ(row.value(i), expected) << number << " of " << greatest;
      }
    }
  }
}

TEST(Fp8InputsTest, ZerosInfinitiesAndNan) {
  for (const uint16_t odd : {0x7f80, 0xff80, 0x7fc0, 0xffff}) {
    std::vector<uint16_t> x(300, 0x3f80);
    std::fill_n(x.begin(), 128, uint16_t{0x8000});
    x[200] = odd;
    CodedRow row(300);
    EncodeFp8(x.data(), 300, row.data());
    EXPECT_EQ(row.scale(300, 0), 0.0f);
    EXPECT_TRUE(std::isnan(row.scale(300, 1)));
    EXPECT_EQ(row.scale(300, 2), 1.0f / 448.0f);
    for (int64_t i = 0; i < 256; ++i) ASSERT_EQ(row.value(i), 0.0f);
    for (int64_t i = 256; i < 384; ++i) ASSERT_EQ(row.value(i), i < 300 ? 448.0f : 0.0f);
  }
}

// A matrix, inputs in codes, and what they mean.
struct Product {
  Product(int64_t of_rows, int64_t of_cols, int64_t of_tokens)
      : rows(of_rows), cols(of_cols), tokens(of_tokens), coded(of_cols, of_tokens) {
    std::mt19937 random(static_cast<uint32_t>(rows * 1009 + cols));
    std::vector<uint8_t> row_major(static_cast<size_t>(rows * cols));
    for (uint8_t& code : row_major) code = static_cast<uint8_t>(random() % 0x7f | (random() % 2) << 7);
    scales.resize(static_cast<size_t>(CeilDiv(rows, kScaleBlock) * CeilDiv(cols, kScaleBlock)));
    for (float& scale : scales) scale = 0.001f * static_cast<float>(1 + random() % 64);
    packed.resize(static_cast<size_t>(PackedBytes(kFp8, rows, cols) / kPackedAlignment));
    exceptions.resize(static_cast<size_t>(ExceptionWords(rows, cols)));
    for (int64_t row = 0; row < rows; row += kRowGroup) {
      uint8_t* const group = packed[0].bytes + row * PaddedCols(cols);
      PackRows(kFp8, row_major.data() + row * cols, cols, std::min(kRowGroup, rows - row), cols, group);
      FindExceptions(group, cols, exceptions.data() + ExceptionWords(row, cols));
    }
    for (int64_t i = 0; i < rows * cols; ++i) {
      const int64_t block = i / cols / kScaleBlock * CeilDiv(cols, kScaleBlock) + i % cols / kScaleBlock;
      weights.push_back(double{FromE4M3(row_major[static_cast<size_t>(i)])} * scales[static_cast<size_t>(block)]);
    }
    std::normal_distribution<float> normal;
    const int64_t bytes = CodedRowBytes(InputCoding::kFp8, cols);
    for (int64_t token = 0; token < tokens; ++token) {
      std::vector<uint16_t> x(static_cast<size_t>(cols));
      for (uint16_t& number : x) number = ToBf16(normal(random));
      EncodeFp8(x.data(), cols, coded.data() + token * bytes);
      CodedRow row(cols);
      std::memcpy(row.data(), coded.data() + token * bytes, static_cast<size_t>(bytes));
      for (int64_t i = 0; i < cols; ++i) inputs.push_back(double{row.value(i)} * row.scale(cols, i / kCodeSpan));
    }
  }
  PackedMatrix view() const {
    return {.dtype = kFp8,
            .rows = rows,
            .cols = cols,
            .data = packed[0].bytes,
            .scales = scales.data(),
            .exceptions = exceptions.data()};
  }

  int64_t rows, cols, tokens;
  std::vector<float> scales;
  std::vector<Line> packed;
  std::vector<uint32_t> exceptions;
  std::vector<double> weights;  // [rows, cols]
  CodedRow coded;
  std::vector<double> inputs;  // [tokens, cols]
};

class Fp8ProductTest : public KernelOrModelTest {};

// Roundings: a chain of 128 products, each exact, in F32; the weights' scale; one fused multiply-add a span; and of
// `add` one more.
TEST_P(Fp8ProductTest, AgainstDouble) {
  struct Case {
    int64_t rows, cols, tokens;
  };
  for (const auto& [rows, cols, tokens] : {Case{1, 1, 1}, Case{63, 127, 2}, Case{129, 260, 3}, Case{192, 516, 70}}) {
    Product product(rows, cols, tokens);
    std::vector<float> y(static_cast<size_t>(tokens * rows)), added(y.size(), 3.0f);
    MultiplyFp8(*kernels_, product.view(), product.coded.data(), tokens, y.data(), rows, 0, rows, false);
    MultiplyFp8(*kernels_, product.view(), product.coded.data(), tokens, added.data(), rows, 0, rows, true);
    const double roundings = 128 + 1 + static_cast<double>(CeilDiv(cols, kCodeSpan));
    for (int64_t at = 0; at < tokens * rows; ++at) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < cols; ++i) {
        const double term = product.weights[static_cast<size_t>(at % rows * cols + i)] *
                            product.inputs[static_cast<size_t>(at / rows * cols + i)];
        sum += term;
        magnitude += std::fabs(term);
      }
      const auto i = static_cast<size_t>(at);
      ASSERT_NEAR(y[i], sum, roundings * 0x1p-24 * 1.01 * magnitude) << rows << " x " << cols << ", output " << at;
      ASSERT_EQ(added[i], 3.0f + y[i]);
    }
  }
}

TEST_P(Fp8ProductTest, BitsDoNotDependOnOtherRows) {
  Product product(150, 300, 67);
  std::vector<float> all(static_cast<size_t>(product.tokens * product.rows));
  MultiplyFp8(*kernels_, product.view(), product.coded.data(), product.tokens, all.data(), product.rows, 0,
              product.rows, false);
  const int64_t bytes = CodedRowBytes(InputCoding::kFp8, product.cols);
  for (const int64_t token : {0, 5, 66}) {
    for (const IndexRange rows : {IndexRange{0, 64}, IndexRange{64, 150}}) {
      std::vector<float> few(static_cast<size_t>(rows.size()));
      MultiplyFp8(*kernels_, product.view(), product.coded.data() + token * bytes, 1, few.data(), rows.size(),
                  rows.begin, rows.end, false);
      EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin() + token * product.rows + rows.begin)) << token;
    }
  }
}

TEST_P(Fp8ProductTest, ATokenThatIsNotANumberSpoilsNoOther) {
  Product product(70, 200, 3);
  std::vector<uint16_t> x(200, 0x7f80);
  EncodeFp8(x.data(), 200, product.coded.data() + CodedRowBytes(InputCoding::kFp8, 200));
  std::vector<float> y(3 * 70);
  MultiplyFp8(*kernels_, product.view(), product.coded.data(), 3, y.data(), 70, 0, 70, false);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isnan(y[i]), i / 70 == 1) << i;
}

MOE_INSTANTIATE_PER_ISA(Fp8ProductTest);
MOE_INSTANTIATE_ON_MODEL(Fp8ProductTest);

}  // namespace
}  // namespace moestro
