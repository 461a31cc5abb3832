#include "common/kernels/cuda/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/math.h"
#include "common/kernels/cuda/elementwise.h"
#include "tests/cuda/kernels/linear_checks.h"
#include "tests/cuda/kernels/matrix.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

TEST(CudaLinearTest, Fp8AgainstDouble) {
  CheckDense(DType::kF8E4M3, 128, 128, 3);
  CheckDense(DType::kF8E4M3, 1, 1, 1);
  CheckDense(DType::kF8E4M3, 63, 127, 2);
  CheckDense(DType::kF8E4M3, 65, 129, 16);
  CheckDense(DType::kF8E4M3, 130, 4, 17);
  CheckDense(DType::kF8E4M3, 129, 260, 129);
  CheckDense(DType::kF8E4M3, 192, 516, 5);
  CheckDense(DType::kF8E4M3, 65, 1000, 2);  // more stages than are in flight, in both tiles
  CheckDense(DType::kF8E4M3, 65, 1000, 18);
  CheckDense(DType::kF8E4M3, 65, 1301, 9);  // more blocks of inputs than warps
  CheckDense(DType::kF8E4M3, 65, 1301, 8);
}

TEST(CudaLinearTest, Bf16AgainstDouble) {
  CheckDense(DType::kBF16, 128, 128, 3);
  CheckDense(DType::kBF16, 1, 1, 1);
  CheckDense(DType::kBF16, 63, 127, 2);
  CheckDense(DType::kBF16, 65, 129, 16);
  CheckDense(DType::kBF16, 130, 4, 17);
  CheckDense(DType::kBF16, 129, 260, 129);
  CheckDense(DType::kBF16, 65, 1000, 2);
  CheckDense(DType::kBF16, 65, 1301, 9);
}

TEST(CudaLinearTest, F16AgainstDouble) {
  CheckDense(DType::kF16, 128, 128, 3);
  CheckDense(DType::kF16, 1, 1, 1);
  CheckDense(DType::kF16, 63, 127, 2);
  CheckDense(DType::kF16, 65, 129, 16);
  CheckDense(DType::kF16, 130, 4, 17);
  CheckDense(DType::kF16, 65, 1301, 2);
}

// With BF16 inputs (W8A16).
TEST(CudaLinearTest, Int8AgainstDouble) {
  CheckDense(DType::kI8, 1, 1, 1);
  CheckDense(DType::kI8, 63, 127, 2);
  CheckDense(DType::kI8, 65, 129, 16);
  CheckDense(DType::kI8, 130, 68, 17);
  CheckDense(DType::kI8, 129, 260, 129);
  CheckDense(DType::kI8, 65, 1301, 9);
}

class CudaLinearBlocksTest : public ::testing::TestWithParam<DType> {
 protected:
  static int64_t unit() { return FormatOf(GetParam()).row_block; }
};
INSTANTIATE_TEST_SUITE_P(Formats, CudaLinearBlocksTest, ::testing::ValuesIn(moestro::testing::kBlockFormats),
                         [](const auto& format) { return DTypeName(format.param); });

TEST_P(CudaLinearBlocksTest, AgainstDouble) {
  CheckDense(GetParam(), 1, unit(), 1);
  CheckDense(GetParam(), 63, RoundUp(160, unit()), 2);
  CheckDense(GetParam(), 65, RoundUp(96, unit()), 16);
  CheckDense(GetParam(), 129, RoundUp(288, unit()), 17);
  // More stages than are in flight, and more blocks than headers.
  CheckDense(GetParam(), 65, RoundUp(1120, unit()), 2);
  CheckDense(GetParam(), 70, RoundUp(1120, unit()), 130);
}

// A weight of all codes and scales: with one input of 1, an output is the weight.
TEST_P(CudaLinearBlocksTest, WeightsAreExact) {
  constexpr int64_t kRows = 128, kCols = 256;
  const Matrix m = RandomMatrix(GetParam(), kRows, kCols);
  std::vector<uint16_t> x(kCols * kCols, 0);
  for (size_t i = 0; i < kCols; ++i) x[i * kCols + i] = ToBf16(1.0f);
  const DeviceArray<uint16_t> device_x(x);
  const DeviceArray<float> y(kCols * kRows);
  const LinearShape shape{.dtype = GetParam(),
                          .rows = kRows,
                          .cols = kCols,
                          .x = device_x.get(),
                          .x_stride = kCols,
                          .y = y.get(),
                          .y_stride = kRows};
  ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), kCols, DeviceStream())));
  const std::vector<float> got = y.Download();
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) {
      ASSERT_EQ(got[static_cast<size_t>(col * kRows + row)],
                static_cast<float>(m.values[static_cast<size_t>(row * kCols + col)]))
          << row << ", " << col;
    }
  }
}

TEST(CudaLinearTest, AllFp8CodesAreExact) { CheckAllFp8Codes(); }
TEST(CudaLinearTest, NanCodesMakeTheirRowsNan) { CheckNanRows(); }

// With few tokens, matrices of few rows have smaller tiles than those whose tiles fill any GPU. The bits are the same.
TEST(CudaLinearTest, BitsDoNotDependOnTheNumberOfRows) {
  constexpr int64_t kRows = 300 * kRowGroup, kFew = 70, kCols = 132;
  const Matrix m = RandomMatrix(DType::kF8E4M3, kRows, kCols);
  const PaddedInputs x(3, kCols);
  for (const int64_t tokens : {1, 3}) {
    const DeviceArray<float> all(tokens * kRows), few(tokens * kFew);
    LinearShape shape{.dtype = DType::kF8E4M3,
                      .rows = kRows,
                      .cols = kCols,
                      .x = x.device->get(),
                      .x_stride = x.stride,
                      .y = all.get(),
                      .y_stride = kRows};
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, DeviceStream())));
    shape.rows = shape.y_stride = kFew;
    shape.y = few.get();
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, DeviceStream())));
    const std::vector<float> of_all = all.Download(), of_few = few.Download();
    for (int64_t token = 0; token < tokens; ++token) {
      EXPECT_EQ(std::memcmp(&of_all[static_cast<size_t>(token * kRows)], &of_few[static_cast<size_t>(token * kFew)],
                            kFew * sizeof(float)),
                0);
    }
  }
}

// As above, a launch for each upper byte. Infinities and NaN too.
TEST(CudaLinearTest, AllF16WeightsAreExact) {
  constexpr int64_t kRows = 256, kCols = 4;
  const DeviceArray<uint16_t> ones(std::vector<uint16_t>(8, ToBf16(1.0f)));
  for (uint32_t upper = 0; upper < 256; ++upper) {
    std::vector<uint8_t> row_major(2 * kRows * kCols, 0);
    for (uint32_t lower = 0; lower < kRows; ++lower) {
      const auto bits = static_cast<uint16_t>(upper << 8 | lower);
      std::memcpy(&row_major[2 * (kCols * lower + upper % kCols)], &bits, 2);
    }
    const Matrix m = Pack(DType::kF16, kRows, kCols, row_major, {});
    const DeviceArray<float> y(kRows);
    const LinearShape shape{.dtype = DType::kF16,
                            .rows = kRows,
                            .cols = kCols,
                            .x = ones.get(),
                            .x_stride = 8,
                            .y = y.get(),
                            .y_stride = kRows};
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), 1, DeviceStream())));
    const std::vector<float> got = y.Download();
    for (uint32_t lower = 0; lower < kRows; ++lower) {
      const float weight = FromF16(static_cast<uint16_t>(upper << 8 | lower));
      if (std::isnan(weight)) {
        ASSERT_TRUE(std::isnan(got[lower])) << upper << ", " << lower;
      } else {
        ASSERT_EQ(got[lower], weight) << upper << ", " << lower;
      }
    }
  }
}

TEST(CudaLinearTest, AddsAndRoundsAsAsked) { CheckOutputs(3); }

TEST(CudaLinearTest, GroupsOfAnySizeInSmallTiles) {
  CheckGrouped(DType::kF8E4M3, kSmallTile, {0, 1, 16, 0, 17, 3, 0}, 130, 136);
  CheckGrouped(DType::kBF16, kSmallTile, {5, 0, 18}, 64, 64);
}

TEST(CudaLinearTest, GroupsOfAnySizeInLargeTiles) {
  CheckGrouped(DType::kF8E4M3, kLargeTile, {0, 129, 0, 2, 0}, 68, 132);
  CheckGrouped(DType::kBF16, kLargeTile, {130}, 64, 64);
}

TEST(CudaLinearTest, ABlockComputesSeveralTilesOfGroups) { CheckSeveralTilesOfGroups(150); }

TEST(CudaLinearTest, GroupsOfInt8) {
  CheckGrouped(DType::kI8, kSmallTile, {5, 0, 18}, 66, 68);
  CheckGrouped(DType::kI8, kLargeTile, {0, 130}, 64, 64);
}

TEST(CudaLinearTest, GroupsOfF16) {
  CheckGrouped(DType::kF16, kSmallTile, {5, 0, 18}, 66, 68);
  CheckGrouped(DType::kF16, kLargeTile, {0, 130}, 64, 64);
}

TEST_P(CudaLinearBlocksTest, Groups) {
  CheckGrouped(GetParam(), kSmallTile, {0, 1, 16, 0, 17, 3, 0}, 130, RoundUp(160, unit()));
  CheckGrouped(GetParam(), kLargeTile, {0, 129, 0, 2, 0}, 68, RoundUp(160, unit()));
}

// One launch or two, of one type or of two: the bits of single products.
TEST(CudaLinearTest, APairOfProducts) {
  constexpr int64_t kCols = 1000, kFirst = 70, kSecond = 133, kStride = 1008;
  for (const auto& [type, other] : {std::pair(DType::kF8E4M3, DType::kF8E4M3),
                                    {DType::kBF16, DType::kBF16},
                                    {DType::kF16, DType::kF16},
                                    {DType::kF8E4M3, DType::kBF16}}) {
    const Matrix first = RandomMatrix(type, kFirst, kCols), second = RandomMatrix(other, kSecond, kCols);
    for (const int64_t tokens : {1, 8, 9, 16, 17}) {
      const DeviceArray<uint16_t> x(RandomBf16(tokens * kStride, 51));
      const auto shape = [&](const Matrix& m, int64_t rows, const DeviceArray<float>& y) {
        return LinearShape{.dtype = m.dtype,
                           .rows = rows,
                           .cols = kCols,
                           .x = x.get(),
                           .x_stride = kStride,
                           .y = y.get(),
                           .y_stride = rows};
      };
      const DeviceArray<float> y(tokens * kFirst), z(tokens * kSecond), alone_y(tokens * kFirst),
          alone_z(tokens * kSecond);
      ASSERT_TRUE(Ran(LaunchLinearPair(shape(first, kFirst, y), first.pointers(), shape(second, kSecond, z),
                                       second.pointers(), tokens, DeviceStream())));
      ASSERT_TRUE(Ran(LaunchLinear(shape(first, kFirst, alone_y), first.pointers(), tokens, DeviceStream())));
      ASSERT_TRUE(Ran(LaunchLinear(shape(second, kSecond, alone_z), second.pointers(), tokens, DeviceStream())));
      EXPECT_EQ(y.Download(), alone_y.Download()) << DTypeName(type) << " " << tokens;
      EXPECT_EQ(z.Download(), alone_z.Download()) << DTypeName(other) << " " << tokens;
    }
  }
}

TEST(CudaLinearTest, GateAndUpTogether) {
  for (const DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF16, DType::kI8}) {
    CheckGateUp(dtype, 1, 4, 1);
    CheckGateUp(dtype, 72, 160, 16);
    CheckGateUp(dtype, 192, 260, 17);
    CheckGateUp(dtype, 65, 132, 131);
  }
}

TEST_P(CudaLinearBlocksTest, GateAndUpTogether) {
  CheckGateUp(GetParam(), 1, unit(), 1);
  CheckGateUp(GetParam(), 192, RoundUp(288, unit()), 16);
  CheckGateUp(GetParam(), 65, RoundUp(1120, unit()), 5);
  CheckGateUp(GetParam(), 65, RoundUp(160, unit()), 131);
}

// A bias is added with one rounding, to what is added to y, too.
TEST(CudaLinearTest, Biases) {
  constexpr int64_t kCols = 132;
  for (const auto& [rows, tokens] : {std::pair<int64_t, int64_t>{65, 5}, {130, 131}}) {
    const Matrix matrix = RandomMatrix(DType::kBF16, rows, kCols, 1);
    const std::vector<float> bias = RandomFloats(rows, 2);
    const DeviceArray<float> device_bias(bias);
    MatrixPointers biased = matrix.pointers();
    biased.bias = device_bias.get();
    const PaddedInputs x(tokens, kCols);
    const DeviceArray<float> plain(tokens * rows), sum(tokens * rows);
    LinearShape shape{.dtype = DType::kBF16,
                      .rows = rows,
                      .cols = kCols,
                      .x = x.device->get(),
                      .x_stride = x.stride,
                      .y = plain.get(),
                      .y_stride = rows};
    ASSERT_TRUE(Ran(LaunchLinear(shape, matrix.pointers(), tokens, DeviceStream())));
    shape.y = sum.get();
    ASSERT_TRUE(Ran(LaunchLinear(shape, biased, tokens, DeviceStream())));
    std::vector<float> expected = plain.Download();
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % static_cast<size_t>(rows)];
    EXPECT_EQ(sum.Download(), expected);
    shape.output = LinearOutput::kAddF32;
    ASSERT_TRUE(Ran(LaunchLinear(shape, biased, tokens, DeviceStream())));
    for (float& value : expected) value += value;
    EXPECT_EQ(sum.Download(), expected);
  }
}

// From products whose bits are LaunchLinear's: the biases' rounding; alpha * g, which shifts the exponential; the
// exponential itself, within 2^-22; sum, quotient, u + 1, product; and BF16's.
TEST(CudaLinearTest, GateAndUpWithBiasesAndAClamp) {
  constexpr int64_t kCols = 132;
  constexpr float kLimit = 1.5f, kAlpha = 1.702f;
  for (const auto& [rows, tokens] : {std::pair<int64_t, int64_t>{65, 5}, {72, 131}}) {
    const Matrix gate = RandomMatrix(DType::kBF16, rows, kCols, 1), up = RandomMatrix(DType::kBF16, rows, kCols, 2);
    const std::vector<float> biases[2] = {RandomFloats(rows, 3), RandomFloats(rows, 4)};
    const DeviceArray<float> gate_bias(biases[0]), up_bias(biases[1]);
    MatrixPointers pointers[2] = {gate.pointers(), up.pointers()};
    pointers[0].bias = gate_bias.get();
    pointers[1].bias = up_bias.get();
    const PaddedInputs x(tokens, kCols);
    const DeviceArray<float> products[2] = {DeviceArray<float>(tokens * rows), DeviceArray<float>(tokens * rows)};
    LinearShape shape{.dtype = DType::kBF16,
                      .rows = rows,
                      .cols = kCols,
                      .x = x.device->get(),
                      .x_stride = x.stride,
                      .y_stride = rows,
                      .swiglu_limit = kLimit,
                      .swiglu_alpha = kAlpha};
    for (int i = 0; i < 2; ++i) {
      shape.y = products[i].get();
      ASSERT_TRUE(Ran(LaunchLinear(shape, pointers[i], tokens, DeviceStream())));
    }
    const DeviceArray<uint16_t> out(tokens * rows);
    shape.y = out.get();
    ASSERT_TRUE(Ran(LaunchGateUp(shape, pointers[0], pointers[1], tokens, DeviceStream())));
    const std::vector<float> gates = products[0].Download(), ups = products[1].Download();
    const std::vector<uint16_t> got = out.Download();
    int clamped = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      clamped += gates[i] > kLimit || std::fabs(ups[i]) > kLimit ? 1 : 0;
      const double g = std::min(gates[i], kLimit), u = std::clamp(ups[i], -kLimit, kLimit);
      const double truth = (u + 1) * g / (1 + std::exp(-double{kAlpha} * g));
      const double off = Gamma(6) + 0x1p-21 + std::expm1(2 * std::fabs(kAlpha * g) * kUnitF32);
      ASSERT_NEAR(FromBf16(got[i]), truth, (kUnitBf16 + off) * (1 + kUnitBf16) * std::fabs(truth) + 0x1p-126);
    }
    EXPECT_GT(clamped, 0);
  }
}

TEST(CudaLinearTest, BitsDoNotDependOnTheTile) {
  for (const DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF16, DType::kI8}) {
    for (const int64_t cols : {300, 1301}) CheckTiles(dtype, cols);
  }
}
TEST_P(CudaLinearBlocksTest, BitsDoNotDependOnTheTile) { CheckTiles(GetParam(), RoundUp(800, unit())); }

TEST(CudaLinearTest, RefusesWhatItCannotRead) {
  const DeviceArray<uint16_t> x(64);
  const DeviceArray<uint8_t> w(64 * 64);
  const DeviceArray<float> y(64);
  const LinearShape good{.dtype = DType::kBF16, .rows = 1, .cols = 4, .x = x.get(), .x_stride = 8, .y = y.get()};
  LinearShape shape = good;
  shape.x_stride = 9;
  EXPECT_EQ(LaunchLinear(shape, {w.get(), nullptr}, 1, DeviceStream()).error, kInvalidArgument);
  shape = good;
  shape.x = x.get() + 1;
  EXPECT_EQ(LaunchLinear(shape, {w.get(), nullptr}, 1, DeviceStream()).error, kInvalidArgument);
  shape = good;
  shape.dtype = DType::kF32;
  EXPECT_EQ(LaunchLinear(shape, {w.get(), nullptr}, 1, DeviceStream()).error, kInvalidArgument);
  EXPECT_TRUE(LaunchLinear(good, {w.get(), nullptr}, 0, DeviceStream()).ok());
}

}  // namespace
}  // namespace moestro::cuda
