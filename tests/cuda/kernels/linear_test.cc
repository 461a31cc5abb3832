#include "common/kernels/cuda/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "common/base/math.h"
#include "common/kernels/cuda/elementwise.h"
#include "tests/cuda/kernels/matrix.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

// Inputs [tokens, stride] with NaN past `cols`; the buffer ends with the last token's last element.
struct PaddedInputs {
  PaddedInputs(int64_t tokens, int64_t cols)
      : stride(RoundUp(cols, 8) + 8), values(RandomBf16(tokens * stride, static_cast<uint32_t>(cols))) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (static_cast<int64_t>(i) % stride >= cols) values[i] = kBf16Nan;
    }
    values.resize(static_cast<size_t>((tokens - 1) * stride + cols));
    device = std::make_unique<DeviceArray<uint16_t>>(values);
  }
  int64_t stride;
  std::vector<uint16_t> values;
  std::unique_ptr<DeviceArray<uint16_t>> device;
};

struct ElementTruth {
  double y = 0;
  double tolerance = 0;
};

// Inputs that mma of 16 sum before the sum is scaled and added to the total: one fused multiply-add each, and one for
// mins. F16 weights are two numbers, with an mma for each.
double RoundingsOf(DType dtype, int64_t cols) {
  if (!IsBlockFormat(dtype)) {
    const double products = static_cast<double>(kScaleBlock / 16) * (dtype == DType::kF16 ? 2 : 1);
    return kMmaRoundings * products + static_cast<double>(CeilDiv(cols, kScaleBlock)) + 1;  // I8: a row's scale
  }
  const BlockFormat format = FormatOf(dtype);
  const int64_t chain = std::min<int64_t>(32, format.sub_block);
  return kMmaRoundings * static_cast<double>(chain / 16) +
         static_cast<double>(CeilDiv(cols, chain) * (format.has_mins ? 2 : 1));
}

ElementTruth ComputeTruth(const Matrix& m, const PaddedInputs& x, int64_t row, int64_t cols, int64_t token) {
  double sum = 0, magnitude = 0;
  for (int64_t i = 0; i < cols; ++i) {
    const auto at = static_cast<size_t>(row * cols + i);
    const double input = FromBf16(x.values[static_cast<size_t>(token * x.stride + i)]);
    sum += m.values[at] * input;
    magnitude += m.magnitudes[at] * std::fabs(input);
  }
  const double roundings = RoundingsOf(m.dtype, cols);
  return {sum, Gamma(roundings) * magnitude + roundings * 0x1p-149};  // scales may be subnormal
}

constexpr float kUntouched = -12345.0f;

void CheckDense(DType dtype, int64_t rows, int64_t cols, int64_t tokens) {
  SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " [" << rows << ", " << cols << "] x " << tokens);
  const Matrix m = RandomMatrix(dtype, rows, cols);
  const PaddedInputs x(tokens, cols);
  for (const int64_t y_stride : {rows + 3, RoundUp(rows, 4) + 4}) {  // by single elements, and by four
    const DeviceArray<float> y(std::vector<float>(static_cast<size_t>(tokens * y_stride), kUntouched));
    const LinearShape shape{.dtype = dtype,
                            .rows = rows,
                            .cols = cols,
                            .x = x.device->get(),
                            .x_stride = x.stride,
                            .y = y.get(),
                            .y_stride = y_stride};
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, nullptr)));
    const std::vector<float> got = y.Download();
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t row = 0; row < y_stride; ++row) {
        const float value = got[static_cast<size_t>(token * y_stride + row)];
        if (row >= rows) {
          ASSERT_EQ(value, kUntouched) << "written past the last row";
          continue;
        }
        const ElementTruth truth = ComputeTruth(m, x, row, cols, token);
        ASSERT_NEAR(value, truth.y, truth.tolerance) << "token " << token << " row " << row;
      }
    }
  }
}

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
  ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), kCols, nullptr)));
  const std::vector<float> got = y.Download();
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) {
      ASSERT_EQ(got[static_cast<size_t>(col * kRows + row)],
                static_cast<float>(m.values[static_cast<size_t>(row * kCols + col)]))
          << row << ", " << col;
    }
  }
}

// Row r holds code r in one column and zeros elsewhere: with inputs of 1, each output is the code's exact value.
void CheckAllFp8Codes() {
  constexpr int64_t kCols = 132, kStride = 136;
  for (const int64_t col : {0, 1, 2, 3, 70, 127, 128, 131}) {
    std::vector<uint8_t> row_major(256 * kCols, 0);
    for (int64_t row = 0; row < 256; ++row)
      row_major[static_cast<size_t>(row * kCols + col)] = static_cast<uint8_t>(row);
    const Matrix m = Pack(DType::kF8E4M3, 256, kCols, row_major, std::vector<float>(4, 1.0f));
    for (const int64_t tokens : {1, 9, 17}) {  // of each tile; NaN times an input of 0 is NaN, too
      std::vector<uint16_t> x(tokens * kStride, ToBf16(1.0f));
      if (tokens > 1) std::fill_n(x.begin() + (tokens - 1) * kStride, kStride, uint16_t{0});
      const DeviceArray<uint16_t> device_x(x);
      const DeviceArray<float> y(tokens * 256);
      const LinearShape shape{.dtype = DType::kF8E4M3,
                              .rows = 256,
                              .cols = kCols,
                              .x = device_x.get(),
                              .x_stride = kStride,
                              .y = y.get(),
                              .y_stride = 256};
      ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, nullptr)));
      const std::vector<float> got = y.Download();
      for (int64_t at = 0; at < tokens * 256; ++at) {
        const auto code = static_cast<uint8_t>(at % 256);
        const float input = FromBf16(x[at / 256 * kStride]);
        if ((code & 0x7f) == 0x7f) {
          ASSERT_TRUE(std::isnan(got[at])) << "code " << int{code} << ", token " << at / 256 << " of " << tokens;
        } else {
          ASSERT_EQ(got[at], FromE4M3(code) * input) << "code " << int{code} << " column " << col;
        }
      }
    }
  }
}

TEST(CudaLinearTest, AllFp8CodesAreExact) { CheckAllFp8Codes(); }

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
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), 1, nullptr)));
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

void CheckOutputs(int64_t tokens) {
  constexpr int64_t kRows = 70, kCols = 64;
  const Matrix m = RandomMatrix(DType::kF8E4M3, kRows, kCols);
  const PaddedInputs x(tokens, kCols);
  const std::vector<float> before = RandomFloats(tokens * 72, 3);
  for (const int64_t stride : {70, 72}) {
    const DeviceArray<float> plain(tokens * stride);
    const DeviceArray<float> sum(before);
    const DeviceArray<uint16_t> bf16(tokens * stride);
    LinearShape shape{.dtype = DType::kF8E4M3,
                      .rows = kRows,
                      .cols = kCols,
                      .x = x.device->get(),
                      .x_stride = x.stride,
                      .y = plain.get(),
                      .y_stride = stride};
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, nullptr)));
    shape.y = sum.get();
    shape.output = LinearOutput::kAddF32;
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, nullptr)));
    shape.y = bf16.get();
    shape.output = LinearOutput::kBf16;
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, nullptr)));
    const std::vector<float> y = plain.Download(), y_sum = sum.Download();
    const std::vector<uint16_t> y_bf16 = bf16.Download();
    for (int64_t i = 0; i < tokens * stride; ++i) {
      if (i % stride >= kRows) continue;
      const auto at = static_cast<size_t>(i);
      ASSERT_EQ(y_sum[at], before[at] + y[at]);
      ASSERT_EQ(y_bf16[at], ToBf16(y[at]));
    }
  }
}

TEST(CudaLinearTest, AddsAndRoundsAsAsked) { CheckOutputs(3); }

// Heads of 24 elements, of which 8 to 23 are rotated; the last tile of rows is not whole.
TEST(CudaLinearTest, RotatesHeads) {
  constexpr int64_t kHeads = 7, kHead = 24, kFirst = 8, kDims = 16, kRows = kHeads * kHead, kCols = 300;
  for (const DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF16, DType::kI8}) {
    const Matrix m = RandomMatrix(dtype, kRows, kCols);
    for (const int64_t tokens : {1, 3, 16}) {
      const PaddedInputs x(tokens, kCols);
      const DeviceArray<float> cosine(RandomFloats(tokens * kDims / 2, 5)), sine(RandomFloats(tokens * kDims / 2, 6));
      const DeviceArray<float> plain(tokens * kRows);
      const DeviceArray<uint16_t> expected(tokens * kRows), rotated(tokens * kRows);
      LinearShape shape{.dtype = dtype,
                        .rows = kRows,
                        .cols = kCols,
                        .x = x.device->get(),
                        .x_stride = x.stride,
                        .y = plain.get(),
                        .y_stride = kRows};
      ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, nullptr)));
      ASSERT_TRUE(Ran(LaunchRotateHeads(plain.get(), tokens, kHeads, kHead, kFirst, {cosine.get(), sine.get(), kDims},
                                        expected.get(), nullptr)));
      shape.y = rotated.get();
      shape.output = LinearOutput::kBf16;
      const HeadRotation rotation = {cosine.get(), sine.get(), kHead, kFirst, kDims};
      ASSERT_TRUE(RotatesOutputs(shape, rotation, tokens));
      ASSERT_TRUE(Ran(LaunchRotatedLinear(shape, rotation, m.pointers(), tokens, nullptr)));
      EXPECT_EQ(rotated.Download(), expected.Download()) << DTypeName(dtype) << ", " << tokens << " tokens";
    }
  }
}

TEST(CudaLinearTest, RefusesRotationsWithoutKernels) {
  const Matrix m = RandomMatrix(DType::kBF16, 48, 64);
  const PaddedInputs x(17, 64);
  const DeviceArray<float> angles(17 * 8);
  const DeviceArray<uint16_t> y(17 * 48);
  const LinearShape right{.dtype = DType::kBF16,
                          .rows = 48,
                          .cols = 64,
                          .x = x.device->get(),
                          .x_stride = x.stride,
                          .y = y.get(),
                          .y_stride = 48,
                          .output = LinearOutput::kBf16};
  const HeadRotation rotation = {angles.get(), angles.get(), 24, 8, 16};
  const auto check = [&](const LinearShape& shape, const HeadRotation& by, int64_t tokens) {
    EXPECT_FALSE(RotatesOutputs(shape, by, tokens));
    EXPECT_EQ(LaunchRotatedLinear(shape, by, m.pointers(), tokens, nullptr).error, kInvalidArgument);
  };
  EXPECT_TRUE(RotatesOutputs(right, rotation, 16));
  check(right, rotation, 17);
  LinearShape wrong = right;
  wrong.output = LinearOutput::kF32;
  check(wrong, rotation, 1);
  HeadRotation odd = rotation;
  odd.first = 6;
  check(right, odd, 1);
  odd.first = 12;
  check(right, odd, 1);
}

// Rows by expert, some experts without rows, rows of x in any order and repeated.
void CheckGrouped(DType dtype, int tile_tokens, const std::vector<int64_t>& counts, int64_t rows, int64_t cols) {
  constexpr int64_t kInputs = 19;
  const PaddedInputs x(kInputs, cols);
  std::vector<Matrix> matrices;
  MatrixList pointers;
  std::vector<int32_t> row_of;
  std::vector<int32_t> group_of;
  std::vector<TokenTile> tiles;
  std::mt19937 random(7);
  for (size_t group = 0; group < counts.size(); ++group) {
    // A group without rows has no matrix either, which must not be read.
    matrices.push_back(counts[group] == 0 ? Matrix{} : RandomMatrix(dtype, rows, cols, static_cast<uint32_t>(group)));
    if (counts[group] > 0) pointers.of[group] = matrices.back().pointers();
    for (int64_t i = 0; i < counts[group]; ++i) {
      if (i % tile_tokens == 0) {
        tiles.push_back({static_cast<int32_t>(group), static_cast<int32_t>(row_of.size()),
                         static_cast<int32_t>(std::min<int64_t>(tile_tokens, counts[group] - i))});
      }
      row_of.push_back(static_cast<int32_t>(random() % kInputs));
      group_of.push_back(static_cast<int32_t>(group));
    }
  }
  const auto total = static_cast<int64_t>(row_of.size());
  const DeviceArray<int32_t> device_rows(row_of);
  const auto count = static_cast<int32_t>(tiles.size());
  // As if the groups were numbers 5, 6, .. of more groups, with tiles around theirs.
  for (TokenTile& tile : tiles) tile.group += 5;
  tiles.insert(tiles.begin(), {4, 0, 1});
  tiles.push_back({5 + static_cast<int32_t>(counts.size()), 0, 1});
  const DeviceArray<int32_t> range(std::vector<int32_t>{1, 1 + count});
  const DeviceArray<TokenTile> device_tiles(tiles);
  const DeviceArray<float> y(total * rows);
  const LinearShape shape{.dtype = dtype,
                          .rows = rows,
                          .cols = cols,
                          .x = x.device->get(),
                          .x_stride = x.stride,
                          .y = y.get(),
                          .y_stride = rows};
  const LinearGroups groups{.matrices = pointers,
                            .first_group = 5,
                            .row_of = device_rows.get(),
                            .tiles = device_tiles.get(),
                            .first_tile = range.get(),
                            .end_tile = range.get() + 1,
                            .max_tiles = count + 3,
                            .tile_tokens = tile_tokens};
  ASSERT_TRUE(Ran(LaunchGroupedLinear(shape, groups, nullptr)));
  const std::vector<float> got = y.Download();
  for (int64_t i = 0; i < total; ++i) {
    for (int64_t row = 0; row < rows; ++row) {
      const auto at = static_cast<size_t>(i);
      const ElementTruth truth = ComputeTruth(matrices[static_cast<size_t>(group_of[at])], x, row, cols, row_of[at]);
      ASSERT_NEAR(got[static_cast<size_t>(i * rows + row)], truth.y, truth.tolerance) << "row " << i << ", " << row;
    }
  }
}

TEST(CudaLinearTest, GroupsOfAnySizeInSmallTiles) {
  CheckGrouped(DType::kF8E4M3, kSmallTile, {0, 1, 16, 0, 17, 3, 0}, 130, 136);
  CheckGrouped(DType::kBF16, kSmallTile, {5, 0, 18}, 64, 64);
}

TEST(CudaLinearTest, GroupsOfAnySizeInLargeTiles) {
  CheckGrouped(DType::kF8E4M3, kLargeTile, {0, 129, 0, 2, 0}, 68, 132);
  CheckGrouped(DType::kBF16, kLargeTile, {130}, 64, 64);
}

// More tiles than a launch has blocks, which compute several then; and room for many more that do not exist. The bits
// are those of all tokens through one matrix. count: of tiles, of one token each; gate and up have 7 row tiles of each.
void CheckSeveralTilesOfGroups(int32_t count) {
  constexpr int64_t kRows = 448, kCols = 4;
  const Matrix gate = RandomMatrix(DType::kF8E4M3, kRows, kCols, 1), up = RandomMatrix(DType::kF8E4M3, kRows, kCols, 2);
  const PaddedInputs x(count, kCols);
  std::vector<TokenTile> tiles;
  for (int32_t i = 0; i < count; ++i) tiles.push_back({0, i, 1});
  const DeviceArray<TokenTile> device_tiles(tiles);
  const DeviceArray<int32_t> range(std::vector<int32_t>{0, count});
  LinearGroups groups{.matrices = {},
                      .first_group = 0,
                      .tiles = device_tiles.get(),
                      .first_tile = range.get(),
                      .end_tile = range.get() + 1,
                      .max_tiles = 10 * count,
                      .tile_tokens = kLargeTile};
  groups.matrices.of[0] = gate.pointers();
  MatrixList ups;
  ups.of[0] = up.pointers();
  const DeviceArray<uint16_t> by_groups(count * kRows), at_once(count * kRows);
  LinearShape shape{.dtype = DType::kF8E4M3,
                    .rows = kRows,
                    .cols = kCols,
                    .x = x.device->get(),
                    .x_stride = x.stride,
                    .y = by_groups.get(),
                    .y_stride = kRows};
  ASSERT_TRUE(Ran(LaunchGroupedGateUp(shape, groups, ups, nullptr)));
  shape.y = at_once.get();
  ASSERT_TRUE(Ran(LaunchGateUp(shape, gate.pointers(), up.pointers(), count, nullptr)));
  EXPECT_EQ(by_groups.Download(), at_once.Download());
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

// The products have LaunchLinear's bits, and the result has LaunchSiluMul's.
void CheckGateUp(DType dtype, int64_t rows, int64_t cols, int64_t tokens) {
  SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << rows << " x " << cols << " x " << tokens);
  const Matrix gate = RandomMatrix(dtype, rows, cols, 1), up = RandomMatrix(dtype, rows, cols, 2);
  const PaddedInputs x(tokens, cols);
  const DeviceArray<float> gate_out(tokens * rows), up_out(tokens * rows);
  const int64_t stride = rows + 3;
  const DeviceArray<uint16_t> fused(tokens * stride), apart(tokens * stride);
  LinearShape shape{.dtype = dtype,
                    .rows = rows,
                    .cols = cols,
                    .x = x.device->get(),
                    .x_stride = x.stride,
                    .y = gate_out.get(),
                    .y_stride = rows};
  ASSERT_TRUE(Ran(LaunchLinear(shape, gate.pointers(), tokens, nullptr)));
  shape.y = up_out.get();
  ASSERT_TRUE(Ran(LaunchLinear(shape, up.pointers(), tokens, nullptr)));
  ASSERT_TRUE(Ran(LaunchSiluMul(gate_out.get(), up_out.get(), tokens, rows, rows, apart.get(), stride, nullptr)));
  shape.y = fused.get();
  shape.y_stride = stride;
  ASSERT_TRUE(Ran(LaunchGateUp(shape, gate.pointers(), up.pointers(), tokens, nullptr)));
  EXPECT_EQ(fused.Download(), apart.Download());
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
                                       second.pointers(), tokens, nullptr)));
      ASSERT_TRUE(Ran(LaunchLinear(shape(first, kFirst, alone_y), first.pointers(), tokens, nullptr)));
      ASSERT_TRUE(Ran(LaunchLinear(shape(second, kSecond, alone_z), second.pointers(), tokens, nullptr)));
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
    ASSERT_TRUE(Ran(LaunchLinear(shape, matrix.pointers(), tokens, nullptr)));
    shape.y = sum.get();
    ASSERT_TRUE(Ran(LaunchLinear(shape, biased, tokens, nullptr)));
    std::vector<float> expected = plain.Download();
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % static_cast<size_t>(rows)];
    EXPECT_EQ(sum.Download(), expected);
    shape.output = LinearOutput::kAddF32;
    ASSERT_TRUE(Ran(LaunchLinear(shape, biased, tokens, nullptr)));
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
      ASSERT_TRUE(Ran(LaunchLinear(shape, pointers[i], tokens, nullptr)));
    }
    const DeviceArray<uint16_t> out(tokens * rows);
    shape.y = out.get();
    ASSERT_TRUE(Ran(LaunchGateUp(shape, pointers[0], pointers[1], tokens, nullptr)));
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

// A row has the same bits in any tile: this makes prefill independent of its chunks.
void CheckTiles(DType dtype, int64_t cols) {
  constexpr int64_t kRows = 128, kTokens = 40;
  const Matrix m = RandomMatrix(dtype, kRows, cols);
  const PaddedInputs x(kTokens, cols);
  const DeviceArray<float> large(kTokens * kRows), small(kSmallTile * kRows);
  LinearShape shape{.dtype = dtype,
                    .rows = kRows,
                    .cols = cols,
                    .x = x.device->get(),
                    .x_stride = x.stride,
                    .y = large.get(),
                    .y_stride = kRows};
  ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), kTokens, nullptr)));
  const std::vector<float> all = large.Download();
  for (const auto& [token, count] : {std::pair<int64_t, int64_t>{0, 1}, {7, 1}, {39, 1}, {5, 9}}) {
    shape.x = x.device->get() + token * x.stride;
    shape.y = small.get();
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), count, nullptr)));
    const std::vector<float> few = small.Download();
    EXPECT_EQ(std::memcmp(few.data(), &all[static_cast<size_t>(token * kRows)], count * kRows * sizeof(float)), 0);
  }
}

TEST(CudaLinearTest, BitsDoNotDependOnTheTile) {
  for (const DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF16, DType::kI8}) {
    for (const int64_t cols : {300, 1301}) CheckTiles(dtype, cols);
  }
}
TEST_P(CudaLinearBlocksTest, BitsDoNotDependOnTheTile) { CheckTiles(GetParam(), RoundUp(800, unit())); }

// FP8 weights by products of groups of warps.
class CudaWarpGroupsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!SetWarpGroups(true)) GTEST_SKIP() << DeviceName() << " has no products of groups of warps";
  }
  void TearDown() override { SetWarpGroups(false); }
};

TEST_F(CudaWarpGroupsTest, AgainstDouble) {
  CheckDense(DType::kF8E4M3, 1, 1, 17);
  CheckDense(DType::kF8E4M3, 63, 127, 18);
  CheckDense(DType::kF8E4M3, 130, 4, 17);
  CheckDense(DType::kF8E4M3, 129, 260, 129);
  CheckDense(DType::kF8E4M3, 65, 1001, 19);  // more stages than in flight, and than in a round
}

TEST_F(CudaWarpGroupsTest, AllCodesAreExact) { CheckAllFp8Codes(); }

TEST_F(CudaWarpGroupsTest, AddsAndRoundsAsAsked) { CheckOutputs(20); }

TEST_F(CudaWarpGroupsTest, GroupsOfAnySize) { CheckGrouped(DType::kF8E4M3, kLargeTile, {0, 129, 0, 2, 0}, 68, 132); }

TEST_F(CudaWarpGroupsTest, ABlockComputesSeveralTilesOfGroups) {
  CheckSeveralTilesOfGroups(DeviceName() == "emulation" ? 3 : 150);
}

TEST_F(CudaWarpGroupsTest, GateAndUpTogether) {
  CheckGateUp(DType::kF8E4M3, 192, 260, 17);
  CheckGateUp(DType::kF8E4M3, 65, 132, 131);
}

// A small tile's products are those of warps.
TEST_F(CudaWarpGroupsTest, BitsDoNotDependOnTheTile) {
  for (const int64_t cols : {300, 1301}) CheckTiles(DType::kF8E4M3, cols);
}

TEST(CudaLinearTest, RefusesWhatItCannotRead) {
  const DeviceArray<uint16_t> x(64);
  const DeviceArray<uint8_t> w(64 * 64);
  const DeviceArray<float> y(64);
  const LinearShape good{.dtype = DType::kBF16, .rows = 1, .cols = 4, .x = x.get(), .x_stride = 8, .y = y.get()};
  LinearShape shape = good;
  shape.x_stride = 9;
  EXPECT_EQ(LaunchLinear(shape, {w.get(), nullptr}, 1, nullptr).error, kInvalidArgument);
  shape = good;
  shape.x = x.get() + 1;
  EXPECT_EQ(LaunchLinear(shape, {w.get(), nullptr}, 1, nullptr).error, kInvalidArgument);
  shape = good;
  shape.dtype = DType::kF32;
  EXPECT_EQ(LaunchLinear(shape, {w.get(), nullptr}, 1, nullptr).error, kInvalidArgument);
  EXPECT_TRUE(LaunchLinear(good, {w.get(), nullptr}, 0, nullptr).ok());
}

}  // namespace
}  // namespace moestro::cuda
