#include "tests/common/kernels/linear_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/base/math.h"
#include "common/tensor/pack.h"
#include "tests/common/kernels/amx/model_test.h"

namespace moestro {
namespace {

// A random matrix: row-major values as doubles for the truth, packed for the kernels.
struct PackedTestMatrix {
  std::vector<double> values;  // [rows, cols], scales applied
  std::vector<Line> packed;
  std::vector<float> scales;
  std::vector<uint32_t> exceptions;
  PackedMatrix view;
};

PackedTestMatrix Pack(DType dtype, int64_t rows, int64_t cols, const std::vector<uint8_t>& row_major,
                      std::vector<float> scales) {
  PackedTestMatrix m;
  m.scales = std::move(scales);
  m.packed.resize(static_cast<size_t>(PackedBytes(dtype, rows, cols) / kPackedAlignment));
  uint8_t* packed = m.packed[0].bytes;
  const int64_t row_bytes = cols * DTypeBytes(dtype);
  for (int64_t row = 0; row < rows; row += kRowGroup) {
    PackRows(dtype, row_major.data() + row * row_bytes, row_bytes, std::min(kRowGroup, rows - row), cols,
             packed + row * PaddedCols(cols) * DTypeBytes(dtype));
  }
  m.view = {dtype, rows, cols, packed};
  if (dtype == DType::kF8E4M3) {
    m.exceptions.resize(static_cast<size_t>(ExceptionWords(rows, cols)));
    for (int64_t row = 0; row < rows; row += kRowGroup) {
      FindExceptions(packed + row * PaddedCols(cols), cols, m.exceptions.data() + ExceptionWords(row, cols));
    }
    m.view.scales = m.scales.data();
    m.view.exceptions = m.exceptions.data();
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const size_t i = static_cast<size_t>(row * cols + col);
      if (dtype == DType::kF8E4M3) {
        const int64_t block = row / kScaleBlock * CeilDiv(cols, kScaleBlock) + col / kScaleBlock;
        m.values.push_back(double{FromE4M3(row_major[i])} * m.scales[static_cast<size_t>(block)]);
      } else {
        uint16_t bits;
        std::memcpy(&bits, &row_major[2 * i], 2);
        m.values.push_back(FromBf16(bits));
      }
    }
  }
  return m;
}

constexpr float kMaxScale = 0.02f;

PackedTestMatrix RandomMatrix(DType dtype, int64_t rows, int64_t cols) {
  std::mt19937 random(static_cast<uint32_t>(rows * 10007 + cols));
  std::vector<uint8_t> row_major(static_cast<size_t>(rows * cols * DTypeBytes(dtype)));
  std::vector<float> scales(static_cast<size_t>(CeilDiv(rows, kScaleBlock) * CeilDiv(cols, kScaleBlock)));
  for (float& scale : scales) scale = kMaxScale * static_cast<float>(1 + random() % 64) / 64;
  if (dtype == DType::kF8E4M3) {
    // Any code but NaN in every third quad of inputs, a different third in each row group; normal numbers elsewhere.
    for (int64_t i = 0; i < rows * cols; ++i) {
      uint8_t& code = row_major[static_cast<size_t>(i)];
      const bool only_normal = (i / cols / kRowGroup + i % cols / 4) % 3 != 0;
      do code = static_cast<uint8_t>(random());
      while ((code & 0x7f) == 0x7f || (only_normal && (code & 0x78) == 0));
    }
  } else {
    const std::vector<uint16_t> bf16 = RandomBf16(rows * cols, static_cast<uint32_t>(rows * 31 + cols));
    std::memcpy(row_major.data(), bf16.data(), row_major.size());
  }
  return Pack(dtype, rows, cols, row_major, std::move(scales));
}

struct LinearTruth {
  std::vector<double> y;          // [tokens, rows]
  std::vector<double> tolerance;  // [tokens, rows]
};

// The tolerance of one output. A product of two numbers with 8-bit mantissas is exact in F32. So within a block of n
// inputs, only the n additions round; each of the B blocks adds one fused multiply-add:
//     |y - truth| <= Gamma(n + B) * sum |scale * w * x|.
// `amx` adds two chains of 16 products for every 32 inputs; BF16 weights' go to one sum over all blocks. That is at
// most 15 + 1 + cols / 32 roundings: fewer up to 4,600 inputs, more than any test here has. vdpbf16ps also treats
// denormal operands as zero and flushes denormal sums. Each costs at most the smallest normal F32, for an operand times
// the greatest |w| (448), once per input and once per sum, times the scale. Kernels that hold weights times 2^-8 round
// denormal sums to multiples of 2^-149, 2^-141 after rescaling: less than that.
LinearTruth ComputeTruth(const PackedTestMatrix& m, const Activations& a, int64_t tokens) {
  const int64_t rows = m.view.rows, cols = m.view.cols;
  const double roundings = static_cast<double>(std::min(cols, kScaleBlock) + CeilDiv(cols, kScaleBlock));
  const double max_scale = m.view.scales == nullptr ? 1.0 : *std::max_element(m.scales.begin(), m.scales.end());
  const double flushed = static_cast<double>(cols) * (448 + 2) * kSmallestNormal * max_scale;
  LinearTruth truth;
  std::vector<double> x(static_cast<size_t>(cols));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < cols; ++i) x[static_cast<size_t>(i)] = FromBf16(a.x[static_cast<size_t>(t * a.stride + i)]);
    for (int64_t row = 0; row < rows; ++row) {
      const double* w = &m.values[static_cast<size_t>(row * cols)];
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < cols; ++i) {
        const double term = w[i] * x[static_cast<size_t>(i)];
        sum += term;
        magnitude += std::fabs(term);
      }
      truth.y.push_back(sum);
      truth.tolerance.push_back(Gamma(roundings) * magnitude + flushed);
    }
  }
  return truth;
}

class LinearTest : public KernelOrModelTest {
 protected:
  void CheckShape(DType dtype, int64_t rows, int64_t cols);
  void CheckAgainstTruth(const PackedTestMatrix& m, const Activations& a, const std::vector<float>& y, int64_t tokens);
};
MOE_INSTANTIATE_PER_ISA(LinearTest);
MOE_INSTANTIATE_ON_MODEL(LinearTest);

constexpr int64_t kMaxTokens = 33;

void LinearTest::CheckAgainstTruth(const PackedTestMatrix& m, const Activations& a, const std::vector<float>& y,
                                   int64_t tokens) {
  const LinearTruth truth = ComputeTruth(m, a, tokens);
  const int64_t rows = m.view.rows;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t row = 0; row < rows; ++row) {
      const size_t i = static_cast<size_t>(t * rows + row);
      ASSERT_NEAR(y[static_cast<size_t>(t * (rows + 3) + row)], truth.y[i], truth.tolerance[i])
          << "token " << t << " row " << row;
    }
    for (int64_t extra = rows; extra < rows + 3; ++extra) {
      ASSERT_EQ(y[static_cast<size_t>(t * (rows + 3) + extra)], kUntouched) << "written past the last row";
    }
  }
}

void LinearTest::CheckShape(DType dtype, int64_t rows, int64_t cols) {
  SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " [" << rows << ", " << cols << "]");
  const PackedTestMatrix m = RandomMatrix(dtype, rows, cols);
  const Activations a = RandomActivations(kMaxTokens, cols);
  const std::vector<float> batch = RunLinear(*kernels_, m.view, a, kMaxTokens, 0, rows);
  ASSERT_NO_FATAL_FAILURE(CheckAgainstTruth(m, a, batch, kMaxTokens));

  for (int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    const std::vector<float> few = RunLinear(*kernels_, m.view, a, tokens, 0, rows);
    ASSERT_TRUE(SameBits(few.data(), batch.data(), tokens * (rows + 3))) << tokens << " tokens: other bits";
  }
  PackedMatrix cached = m.view;
  cached.cached = true;
  PackedMatrix unknown = m.view;
  unknown.exceptions = nullptr;
  for (int64_t tokens : {int64_t{1}, int64_t{2}, int64_t{13}, kMaxTokens}) {
    const std::vector<float> from_cache = RunLinear(*kernels_, cached, a, tokens, 0, rows);
    ASSERT_TRUE(SameBits(from_cache.data(), batch.data(), tokens * (rows + 3))) << "the hint changes bits";
    const std::vector<float> by_table = RunLinear(*kernels_, unknown, a, tokens, 0, rows);
    ASSERT_TRUE(SameBits(by_table.data(), batch.data(), tokens * (rows + 3))) << "knowing exceptions changes bits";
  }
  for (int64_t begin = 0; begin < rows; begin += kRowGroup) {
    const int64_t end = std::min(rows, begin + kRowGroup);
    const std::vector<float> part = RunLinear(*kernels_, m.view, a, 1, begin, end);
    ASSERT_TRUE(SameBits(&part[static_cast<size_t>(begin)], &batch[static_cast<size_t>(begin)], end - begin));
    ASSERT_EQ(std::count(part.begin(), part.end(), kUntouched), rows + 3 - (end - begin));
  }
}

TEST_P(LinearTest, Fp8AgainstDoubleAndSameBitsForAnyBatchAndSplit) {
  for (int64_t rows : {1, 15, 16, 63, 64, 65, 128, 129, 576}) {
    for (int64_t cols : {1, 2, 3, 4, 63, 64, 127, 128, 129, 255, 256, 512, 1000}) {
      ASSERT_NO_FATAL_FAILURE(CheckShape(DType::kF8E4M3, rows, cols));
    }
  }
}

TEST_P(LinearTest, Bf16AgainstDoubleAndSameBitsForAnyBatchAndSplit) {
  for (int64_t rows : {1, 15, 16, 63, 64, 65, 128, 129, 576}) {
    for (int64_t cols : {1, 2, 3, 4, 63, 64, 127, 128, 129, 255, 256, 512, 1000}) {
      ASSERT_NO_FATAL_FAILURE(CheckShape(DType::kBF16, rows, cols));
    }
  }
}

// More tokens than any kernel keeps totals for, and more inputs than any kernel multiplies at once.
TEST_P(LinearTest, ManyTokensHaveTheBitsOfSingleOnes) {
  for (DType dtype : {DType::kF8E4M3, DType::kBF16}) {
    for (const auto& [rows, cols, tokens] :
         {std::tuple<int64_t, int64_t, int64_t>(65, 131, 601), {129, 2100, 290}, {300, 260, 265}}) {
      const PackedTestMatrix m = RandomMatrix(dtype, rows, cols);
      const Activations a = RandomActivations(tokens, cols);
      const std::vector<float> batch = RunLinear(*kernels_, m.view, a, tokens, 0, rows);
      PackedMatrix cached = m.view;
      cached.cached = true;
      const std::vector<float> from_cache = RunLinear(*kernels_, cached, a, tokens, 0, rows);
      EXPECT_TRUE(SameBits(from_cache.data(), batch.data(), tokens * (rows + 3))) << "the hint changes bits";
      for (int64_t t : {0, 31, 32, 63, 64, 255, 263, 264, 265, 289, 527, 528, 600}) {
        if (t >= tokens) break;
        std::vector<float> one(static_cast<size_t>(rows));
        kernels_->linear(m.view, a.x.data() + t * a.stride, a.stride, 1, one.data(), rows, 0, rows);
        EXPECT_TRUE(SameBits(one.data(), &batch[static_cast<size_t>(t * (rows + 3))], rows))
            << DTypeName(dtype) << " [" << rows << ", " << cols << "], token " << t;
      }
    }
  }
}

TEST_P(LinearTest, NoTokensWriteNothing) {
  for (DType dtype : {DType::kF8E4M3, DType::kBF16}) {
    const PackedTestMatrix m = RandomMatrix(dtype, 64, 128);
    float y = kUntouched;
    kernels_->linear(m.view, nullptr, 128, 0, &y, 64, 0, 64);
    EXPECT_EQ(y, kUntouched);
  }
}

// Row r holds code r in one column and zeros elsewhere: with activations of 1, each output is the code's exact value.
TEST_P(LinearTest, AllFp8CodesAreExact) {
  constexpr int64_t kCols = 132;
  for (int64_t tokens : {1, 6, 40}) {
    for (int64_t col : {0, 1, 2, 3, 126, 127, 128, 131}) {
      std::vector<uint8_t> row_major(256 * kCols, 0);
      for (int64_t row = 0; row < 256; ++row)
        row_major[static_cast<size_t>(row * kCols + col)] = static_cast<uint8_t>(row);
      const PackedTestMatrix m = Pack(DType::kF8E4M3, 256, kCols, row_major, std::vector<float>(4, 1.0f));
      const Activations a{kCols, std::vector<uint16_t>(static_cast<size_t>(tokens * kCols), ToBf16(1.0f))};
      const std::vector<float> y = RunLinear(*kernels_, m.view, a, tokens, 0, 256);
      for (int64_t i = 0; i < tokens * 256; ++i) {
        const uint8_t code = static_cast<uint8_t>(i % 256);
        const float got = y[static_cast<size_t>(i / 256 * 259 + i % 256)];
        if ((code & 0x7f) == 0x7f) {
          ASSERT_TRUE(std::isnan(got)) << "code " << int{code};
        } else {
          ASSERT_EQ(got, FromE4M3(code)) << "code " << int{code} << " column " << col;
        }
      }
    }
  }
}

// The same without exceptions: row r holds a normal number in all columns, of which the activations select one.
TEST_P(LinearTest, NormalFp8CodesAreExactAmongNormalOnes) {
  constexpr int64_t kCols = 132;
  constexpr int64_t kRows = 256;
  std::vector<uint8_t> codes;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x78) != 0 && (code & 0x7f) != 0x7f) codes.push_back(static_cast<uint8_t>(code));
  }
  std::vector<uint8_t> row_major;
  for (size_t row = 0; row < kRows; ++row) row_major.insert(row_major.end(), kCols, codes[row % codes.size()]);
  const PackedTestMatrix m = Pack(DType::kF8E4M3, kRows, kCols, row_major, std::vector<float>(4, 1.0f));
  for (const uint32_t word : m.exceptions) ASSERT_EQ(word, 0u);
  for (bool cached : {false, true}) {
    PackedMatrix view = m.view;
    view.cached = cached;
    for (int64_t tokens : {1, 6, 40}) {
      for (int64_t col : {0, 1, 2, 3, 64, 126, 127, 128, 131}) {
        Activations a{kCols, std::vector<uint16_t>(static_cast<size_t>(tokens * kCols), 0)};
        for (int64_t t = 0; t < tokens; ++t) a.x[static_cast<size_t>(t * kCols + col)] = ToBf16(1.0f);
        const std::vector<float> y = RunLinear(*kernels_, view, a, tokens, 0, kRows);
        for (int64_t i = 0; i < tokens * kRows; ++i) {
          const uint8_t code = codes[static_cast<size_t>(i % kRows) % codes.size()];
          ASSERT_EQ(y[static_cast<size_t>(i / kRows * (kRows + 3) + i % kRows)], FromE4M3(code))
              << "code " << int{code} << " column " << col << ", " << tokens << " tokens";
        }
      }
    }
  }
}

// Activations down to the denormals of BF16: flushed values stay within the derived bound.
TEST_P(LinearTest, TinyActivations) {
  const PackedTestMatrix m = RandomMatrix(DType::kF8E4M3, 64, 128);
  Activations a{128, {}};
  for (uint16_t i = 0; i < 128; ++i) a.x.push_back(static_cast<uint16_t>(i % 2 == 0 ? i : 0x8000 | (i * 3)));
  ASSERT_NO_FATAL_FAILURE(CheckAgainstTruth(m, a, RunLinear(*kernels_, m.view, a, 1, 0, 64), 1));
}

TEST_P(LinearTest, InfinityAndNanActivationsReachTheOutput) {
  const PackedTestMatrix m = RandomMatrix(DType::kBF16, 16, 128);
  Activations a = RandomActivations(1, 128);
  a.x[77] = kBf16Nan;
  for (float y : RunLinear(*kernels_, m.view, a, 1, 0, 16)) EXPECT_TRUE(std::isnan(y) || y == kUntouched);
  a.x[77] = ToBf16(std::numeric_limits<float>::infinity());
  for (float y : RunLinear(*kernels_, m.view, a, 1, 0, 16)) EXPECT_TRUE(std::isinf(y) || y == kUntouched);
}

// Two implementations within the tolerance of the truth are within twice that tolerance of each other.
TEST_P(LinearTest, AgreesWithTheReference) {
  const PackedTestMatrix m = RandomMatrix(DType::kF8E4M3, 129, 1000);
  const Activations a = RandomActivations(3, 1000);
  const LinearTruth truth = ComputeTruth(m, a, 3);
  const std::vector<float> y = RunLinear(*kernels_, m.view, a, 3, 0, 129);
  const std::vector<float> reference = RunLinear(*FindKernels("ref"), m.view, a, 3, 0, 129);
  for (size_t i = 0; i < truth.y.size(); ++i) {
    const size_t at = i / 129 * 132 + i % 129;
    EXPECT_NEAR(y[at], reference[at], 2 * truth.tolerance[i]);
  }
}

// Adds exactly the sum that linear gives, or (`amx`, BF16 weights) starts the sum from the output. Touches no other
// output, and a token's bits do not depend on the rest of the call.
TEST_P(LinearTest, LinearAddAddsTheSameSum) {
  constexpr int64_t kTokens = 35;
  for (DType dtype : {DType::kF8E4M3, DType::kBF16}) {
    for (int64_t cols : {3, 64, 128, 300}) {
      for (int64_t rows : {1, 64, 65, 330}) {
        SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " [" << rows << ", " << cols << "]");
        const PackedTestMatrix m = RandomMatrix(dtype, rows, cols);
        const Activations a = RandomActivations(kTokens, cols);
        const LinearTruth truth = ComputeTruth(m, a, kTokens);
        const bool begins_with_y = dtype == DType::kBF16 && kernels_->isa.starts_with("amx");
        const double roundings = static_cast<double>(CeilDiv(cols, 32));  // of the initial value of the sum
        std::vector<float> all;
        for (int64_t tokens : {kTokens, int64_t{16}, int64_t{14}, int64_t{6}, int64_t{2}, int64_t{1}}) {
          const std::vector<float> sum = RunLinear(*kernels_, m.view, a, tokens, 0, rows);
          const std::vector<float> before = RandomFloats(static_cast<int64_t>(sum.size()), 9);
          std::vector<float> y = before;
          DirtyStack();
          kernels_->linear_add(m.view, a.x.data(), a.stride, tokens, y.data(), rows + 3, 0, rows);
          for (size_t i = 0; i < y.size(); ++i) {
            const auto row = static_cast<int64_t>(i) % (rows + 3);
            if (row >= rows) {
              ASSERT_EQ(y[i], before[i]) << i;
            } else if (begins_with_y) {
              const size_t at =
                  i / static_cast<size_t>(rows + 3) * static_cast<size_t>(rows) + static_cast<size_t>(row);
              ASSERT_NEAR(y[i], before[i] + truth.y[at], truth.tolerance[at] + Gamma(roundings) * std::fabs(before[i]));
            } else {
              ASSERT_EQ(y[i], before[i] + sum[i]) << i;
            }
          }
          if (all.empty()) all = y;
          ASSERT_TRUE(SameBits(y.data(), all.data(), static_cast<int64_t>(y.size()))) << tokens << " tokens";
        }
      }
    }
  }
}

// The model of the tiles behaves as the tiles.
TEST(AmxLinear, HasTheBitsOfTheModel) {
  const CpuKernels* amx = FindKernels("amx");
  if (amx == nullptr) GTEST_SKIP() << "this CPU lacks the instructions of amx";
  for (DType dtype : {DType::kF8E4M3, DType::kBF16}) {
    for (int64_t cols : {32, 100, 300, 1000}) {
      const PackedTestMatrix m = RandomMatrix(dtype, 129, cols);
      for (int64_t tokens : {1, 5, 16, 33, 70}) {
        Activations a = RandomActivations(tokens, cols);
        for (size_t i = 0; i < a.x.size(); i += 7) a.x[i] = static_cast<uint16_t>(a.x[i] & 0x807f);  // denormals
        const std::vector<float> y = RunLinear(*amx, m.view, a, tokens, 0, 129);
        const std::vector<float> model = RunLinear(*AmxOnModel(), m.view, a, tokens, 0, 129);
        ASSERT_TRUE(SameBits(y.data(), model.data(), static_cast<int64_t>(y.size())))
            << DTypeName(dtype) << " [129, " << cols << "], " << tokens << " tokens";
      }
    }
  }
}

}  // namespace
}  // namespace moestro
