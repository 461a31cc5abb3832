// Products of FP8 weights with inputs in FP8 codes, and the codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "common/base/math.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/fp8_inputs.h"
#include "common/kernels/cuda/linear.h"
#include "tests/cuda/kernels/matrix.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

constexpr DType kFp8 = DType::kF8E4M3;
constexpr float kUntouchedRow = -12345.0f;

// As fp8_inputs.h defines the codes and scales of a row.
struct CodedRow {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};
CodedRow Encode(const uint16_t* x, int64_t cols) {
  CodedRow row;
  for (int64_t begin = 0; begin < cols; begin += kFp8Span) {
    const int64_t end = std::min(begin + kFp8Span, cols);
    float greatest = 0;
    bool finite = true;
    for (int64_t i = begin; i < end; ++i) {
      finite = finite && std::isfinite(FromBf16(x[i]));
      greatest = std::max(greatest, std::fabs(FromBf16(x[i])));
    }
    row.scales.push_back(finite ? greatest / 448.0f : std::nanf(""));
    for (int64_t i = begin; i < begin + kFp8Span; ++i) {
      row.codes.push_back(i < end && finite && greatest > 0 ? ToE4M3(FromBf16(x[i]) / row.scales.back()) : 0);
    }
  }
  return row;
}

// Rows in BF16 and in codes on the device; `values` are what the codes mean.
struct CodedInputs {
  CodedInputs(int64_t tokens, int64_t cols) : CodedInputs(tokens, cols, RandomBf16(tokens * RoundUp(cols, 8), 5)) {}
  CodedInputs(int64_t tokens, int64_t cols, const std::vector<uint16_t>& bf16) : codes(tokens * Fp8RowBytes(cols)) {
    const DeviceArray<uint16_t> x(bf16);
    EXPECT_TRUE(Ran(
        LaunchEncodeFp8({.x = x.get(), .x_stride = RoundUp(cols, 8), .rows = tokens, .cols = cols, .out = codes.get()},
                        DeviceStream())));
    for (int64_t token = 0; token < tokens; ++token) {
      const CodedRow row = Encode(&bf16[static_cast<size_t>(token * RoundUp(cols, 8))], cols);
      for (int64_t i = 0; i < cols; ++i) {
        values.push_back(double{FromE4M3(row.codes[static_cast<size_t>(i)])} * row.scales[i / kFp8Span]);
      }
    }
  }
  DeviceArray<uint8_t> codes;
  std::vector<double> values;  // [tokens, cols]
};

LinearShape ShapeOf(int64_t rows, int64_t cols, const CodedInputs& x, void* y, int64_t y_stride) {
  return {.dtype = kFp8, .rows = rows, .cols = cols, .codes = x.codes.get(), .y = y, .y_stride = y_stride};
}

// Four mma sum a block; then two scales are multiplied and the sum is added. Groups of warps multiply the greatest
// input by a 448th of the weights' scale: two more. A mma of the model is exact but for its result; chips may keep as
// few as 14 bits (ptx_test.cc).
double Roundings(int64_t cols) {
  const double of_mma = DeviceName() == "emulation" ? 2 * 34 : 33 << 11;
  return 4 * of_mma + 3 + static_cast<double>(Fp8Spans(cols));
}

void ExpectProduct(float got, const Matrix& m, const CodedInputs& x, int64_t row, int64_t cols, int64_t token) {
  double sum = 0, magnitude = 0;
  for (int64_t i = 0; i < cols; ++i) {
    const double term = m.values[static_cast<size_t>(row * cols + i)] * x.values[static_cast<size_t>(token * cols + i)];
    sum += term;
    magnitude += std::fabs(term);
  }
  ASSERT_NEAR(got, sum, Gamma(Roundings(cols)) * magnitude) << "token " << token << " row " << row;
}

class CudaFp8Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasFp8Mma()) GTEST_SKIP() << DeviceName() << " has no products of FP8";
  }
};

// With the products of warps, and with those of groups of warps.
class CudaFp8ProductTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!HasFp8Mma() || !SetWarpGroups(GetParam())) GTEST_SKIP() << DeviceName() << " has no such products of FP8";
  }
  void TearDown() override { ResetWarpGroups(); }
};
INSTANTIATE_TEST_SUITE_P(Of, CudaFp8ProductTest, ::testing::Bool(),
                         [](const auto& groups) { return groups.param ? "WarpGroups" : "Warps"; });

// Rows of every kind: zeros of both signs, subnormals, one large number, ties, infinities and NaN.
std::vector<uint16_t> RowsOfAllKinds(int64_t rows, int64_t stride) {
  std::vector<uint16_t> x = RandomBf16(rows * stride, 1);
  std::mt19937 random(2);
  for (int64_t row = 0; row < rows; ++row) {
    uint16_t* const at = &x[static_cast<size_t>(row * stride)];
    switch (row % 8) {
      case 1:
        for (int64_t i = 0; i < stride; ++i) at[i] = i % 2 == 0 ? 0 : 0x8000;
        break;
      case 2:
        for (int64_t i = 0; i < stride; ++i) at[i] = static_cast<uint16_t>(random() % 0x100 | (random() % 2) << 15);
        break;
      case 3:
        at[row % stride] = 0x7f7f;  // the largest: the others become zeros
        break;
      case 4:  // the scale is 1, and codes are ties
        at[0] = ToBf16(448.0f);
        for (int64_t i = 1; i < stride; ++i)
          at[i] = ToBf16(static_cast<float>(static_cast<int>(random() % 65) - 32) / 32);
        break;
      case 5:
        at[stride / 2] = 0x7f80;
        break;
      case 6:
        at[0] = 0xffc1;
        break;
      default:
        for (int64_t i = 0; i < stride; ++i) {  // of all exponents
          do at[i] = static_cast<uint16_t>(random());
          while ((at[i] & 0x7f80) == 0x7f80);
        }
    }
  }
  return x;
}

TEST_F(CudaFp8Test, CodesAndScalesAreExact) {
  for (const int64_t cols : {1, 2, 127, 128, 130, 259, 1000}) {
    constexpr int64_t kRows = 17;
    const int64_t stride = RoundUp(cols, 4) + 4, spans = Fp8Spans(cols);
    const std::vector<uint16_t> x = RowsOfAllKinds(kRows, stride);
    const DeviceArray<uint16_t> device_x(x);
    const DeviceArray<uint8_t> out(kRows * Fp8RowBytes(cols));
    ASSERT_TRUE(Ran(LaunchEncodeFp8(
        {.x = device_x.get(), .x_stride = stride, .rows = kRows, .cols = cols, .out = out.get()}, DeviceStream())));
    const std::vector<uint8_t> got = out.Download();
    for (int64_t row = 0; row < kRows; ++row) {
      const CodedRow expected = Encode(&x[static_cast<size_t>(row * stride)], cols);
      const uint8_t* const codes = &got[static_cast<size_t>(row * Fp8RowBytes(cols))];
      for (size_t i = 0; i < expected.codes.size(); ++i) {
        ASSERT_EQ(codes[i], expected.codes[i]) << cols << " columns, row " << row << ", input " << i;
      }
      for (int64_t span = 0; span < spans; ++span) {
        float scale;
        std::memcpy(&scale, codes + spans * kFp8Span + span * 4, sizeof scale);
        const float of_row = expected.scales[static_cast<size_t>(span)];
        if (std::isnan(of_row)) {
          ASSERT_TRUE(std::isnan(scale));
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(scale), std::bit_cast<uint32_t>(of_row)) << "row " << row;
        }
      }
    }
  }
}

TEST_F(CudaFp8Test, EncodesTheRowsThatTheDeviceNames) {
  constexpr int64_t kRows = 9, kCols = 200, kBytes = Fp8RowBytes(kCols);
  const std::vector<uint16_t> x = RandomBf16(kRows * kCols, 1);
  const DeviceArray<uint16_t> device_x(x);
  const DeviceArray<int32_t> range(std::vector<int32_t>{2, 7});
  const std::vector<uint8_t> before(kRows * kBytes, 0xab);
  const DeviceArray<uint8_t> out(before), all(before);
  EncodeFp8Args args{.x = device_x.get(), .x_stride = kCols, .rows = kRows, .cols = kCols, .out = all.get()};
  ASSERT_TRUE(Ran(LaunchEncodeFp8(args, DeviceStream())));
  args.out = out.get();
  args.begin = range.get();
  args.end = range.get() + 1;
  ASSERT_TRUE(Ran(LaunchEncodeFp8(args, DeviceStream())));
  std::vector<uint8_t> expected = all.Download();
  std::fill_n(expected.begin(), 2 * kBytes, uint8_t{0xab});
  std::fill(expected.begin() + 7 * kBytes, expected.end(), uint8_t{0xab});
  EXPECT_EQ(out.Download(), expected);
}

void CheckFp8Dense(int64_t rows, int64_t cols, int64_t tokens) {
  SCOPED_TRACE(::testing::Message() << "[" << rows << ", " << cols << "] x " << tokens);
  const Matrix m = RandomMatrix(kFp8, rows, cols);
  const CodedInputs x(tokens, cols);
  for (const int64_t y_stride : {rows + 3, RoundUp(rows, 4) + 4}) {  // by single elements, and by four
    const DeviceArray<float> y(std::vector<float>(static_cast<size_t>(tokens * y_stride), kUntouchedRow));
    ASSERT_TRUE(Ran(LaunchLinear(ShapeOf(rows, cols, x, y.get(), y_stride), m.pointers(), tokens, DeviceStream())));
    const std::vector<float> got = y.Download();
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t row = 0; row < rows; ++row) {
        ExpectProduct(got[static_cast<size_t>(token * y_stride + row)], m, x, row, cols, token);
      }
      for (int64_t row = rows; row < y_stride; ++row) {
        ASSERT_EQ(got[static_cast<size_t>(token * y_stride + row)], kUntouchedRow) << "written past the last row";
      }
    }
  }
}

TEST_P(CudaFp8ProductTest, AgainstDouble) {
  CheckFp8Dense(128, 128, 3);
  CheckFp8Dense(1, 1, 1);
  CheckFp8Dense(63, 127, 2);
  CheckFp8Dense(65, 129, 16);
  CheckFp8Dense(130, 4, 17);
  CheckFp8Dense(129, 260, 129);
  CheckFp8Dense(192, 516, 5);
  CheckFp8Dense(65, 1000, 2);  // more stages than are in flight, in both tiles
  CheckFp8Dense(65, 1000, 18);
}

// Row r holds code r in one column and zeros elsewhere; all inputs are 448, whose scale is 1: an output is exact, and
// shows which input a weight was multiplied by.
TEST_P(CudaFp8ProductTest, AllCodesAreExact) {
  constexpr int64_t kCols = 132, kRows = 256;
  for (const int64_t col : {0, 1, 2, 3, 70, 127, 128, 131}) {
    std::vector<uint8_t> row_major(kRows * kCols, 0);
    for (int64_t row = 0; row < kRows; ++row) {
      row_major[static_cast<size_t>(row * kCols + col)] = static_cast<uint8_t>(row);
    }
    const Matrix m = Pack(kFp8, kRows, kCols, row_major, std::vector<float>(4, 0.5f));
    for (const int64_t tokens : {1, 9, 17}) {
      std::vector<uint16_t> bf16(static_cast<size_t>(tokens * 136), ToBf16(1.0f));
      for (int64_t token = 0; token < tokens; ++token) {
        bf16[static_cast<size_t>(token * 136)] = bf16[static_cast<size_t>(token * 136 + 128)] = ToBf16(448.0f);
        bf16[static_cast<size_t>(token * 136 + col)] = ToBf16(static_cast<float>(token % 8 + 8));
        if (col % 128 == 0) bf16[static_cast<size_t>(token * 136 + col + 1)] = ToBf16(448.0f);
      }
      const CodedInputs x(tokens, kCols, bf16);
      const DeviceArray<float> y(tokens * kRows);
      ASSERT_TRUE(Ran(LaunchLinear(ShapeOf(kRows, kCols, x, y.get(), kRows), m.pointers(), tokens, DeviceStream())));
      const std::vector<float> got = y.Download();
      for (int64_t at = 0; at < tokens * kRows; ++at) {
        const auto code = static_cast<uint8_t>(at % kRows);
        if ((code & 0x7f) == 0x7f) {
          ASSERT_TRUE(std::isnan(got[static_cast<size_t>(at)])) << "code " << int{code};
        } else {
          ASSERT_EQ(got[static_cast<size_t>(at)], FromE4M3(code) * 0.5f * static_cast<float>(at / kRows % 8 + 8))
              << "code " << int{code} << ", column " << col;
        }
      }
    }
  }
}

// A row of zeros gives zeros; one with an infinity or NaN gives NaN, and leaves its neighbours alone.
TEST_P(CudaFp8ProductTest, RowsThatAreNotNumbers) {
  constexpr int64_t kRows = 70, kCols = 260, kStride = 264;
  const Matrix m = RandomMatrix(kFp8, kRows, kCols);
  for (const int64_t tokens : {5, 20}) {
    std::vector<uint16_t> bf16 = RandomBf16(tokens * kStride, 3);
    std::fill_n(bf16.begin() + kStride, kStride, uint16_t{0});
    bf16[2 * kStride + 130] = 0x7f80;
    bf16[4 * kStride + 259] = kBf16Nan;
    const CodedInputs x(tokens, kCols, bf16);
    const DeviceArray<float> y(tokens * kRows);
    ASSERT_TRUE(Ran(LaunchLinear(ShapeOf(kRows, kCols, x, y.get(), kRows), m.pointers(), tokens, DeviceStream())));
    const std::vector<float> got = y.Download();
    for (int64_t at = 0; at < tokens * kRows; ++at) {
      const int64_t token = at / kRows;
      const float value = got[static_cast<size_t>(at)];
      if (token == 2 || token == 4) {
        ASSERT_TRUE(std::isnan(value)) << at;
      } else if (token == 1) {
        ASSERT_EQ(value, 0) << at;
      } else {
        ExpectProduct(value, m, x, at % kRows, kCols, token);
      }
    }
  }
}

// Rows by expert, some experts without rows, rows of x in any order and repeated.
void CheckFp8Groups(int tile_tokens, const std::vector<int64_t>& counts, int64_t rows, int64_t cols) {
  constexpr int64_t kInputs = 19;
  const CodedInputs x(kInputs, cols);
  std::vector<Matrix> matrices;
  LinearGroups groups;
  std::vector<int32_t> row_of;
  std::vector<size_t> group_of;
  std::vector<TokenTile> tiles = {{4, 0, 1}};  // of a group before, as those behind
  std::mt19937 random(7);
  for (size_t group = 0; group < counts.size(); ++group) {
    // A group without rows has no matrix either, which must not be read.
    matrices.push_back(counts[group] == 0 ? Matrix{} : RandomMatrix(kFp8, rows, cols, static_cast<uint32_t>(group)));
    if (counts[group] > 0) groups.matrices.of[group] = matrices.back().pointers();
    for (int64_t i = 0; i < counts[group]; ++i) {
      if (i % tile_tokens == 0) {
        tiles.push_back({static_cast<int32_t>(group + 5), static_cast<int32_t>(row_of.size()),
                         static_cast<int32_t>(std::min<int64_t>(tile_tokens, counts[group] - i))});
      }
      row_of.push_back(static_cast<int32_t>(random() % kInputs));
      group_of.push_back(group);
    }
  }
  const auto end = static_cast<int32_t>(tiles.size());
  tiles.push_back({static_cast<int32_t>(5 + counts.size()), 0, 1});
  const DeviceArray<int32_t> device_rows(row_of), range(std::vector<int32_t>{1, end});
  const DeviceArray<TokenTile> device_tiles(tiles);
  const DeviceArray<float> y(static_cast<int64_t>(row_of.size()) * rows);
  groups.first_group = 5;
  groups.row_of = device_rows.get();
  groups.tiles = device_tiles.get();
  groups.first_tile = range.get();
  groups.end_tile = range.get() + 1;
  groups.max_tiles = end + 3;
  groups.tile_tokens = tile_tokens;
  ASSERT_TRUE(Ran(LaunchGroupedLinear(ShapeOf(rows, cols, x, y.get(), rows), groups, DeviceStream())));
  const std::vector<float> got = y.Download();
  for (size_t i = 0; i < row_of.size(); ++i) {
    for (int64_t row = 0; row < rows; ++row) {
      ExpectProduct(got[i * static_cast<size_t>(rows) + static_cast<size_t>(row)], matrices[group_of[i]], x, row, cols,
                    row_of[i]);
    }
  }
}

TEST_P(CudaFp8ProductTest, GroupsOfAnySize) {
  CheckFp8Groups(kSmallTile, {0, 1, 16, 0, 17, 3, 0}, 130, 136);
  CheckFp8Groups(kLargeTile, {0, 129, 0, 2, 0}, 68, 132);
}

// The products have LaunchLinear's bits, and the result has LaunchSiluMul's.
TEST_P(CudaFp8ProductTest, GateAndUpTogether) {
  struct Case {
    int64_t rows, cols, tokens;
  };
  for (const auto& [rows, cols, tokens] : {Case{1, 4, 1}, Case{72, 160, 16}, Case{192, 260, 17}, Case{65, 132, 131}}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << cols << " x " << tokens);
    const Matrix gate = RandomMatrix(kFp8, rows, cols, 1), up = RandomMatrix(kFp8, rows, cols, 2);
    const CodedInputs x(tokens, cols);
    const DeviceArray<float> gate_out(tokens * rows), up_out(tokens * rows);
    const int64_t stride = rows + 3;
    const DeviceArray<uint16_t> fused(tokens * stride), apart(tokens * stride);
    ASSERT_TRUE(
        Ran(LaunchLinear(ShapeOf(rows, cols, x, gate_out.get(), rows), gate.pointers(), tokens, DeviceStream())));
    ASSERT_TRUE(Ran(LaunchLinear(ShapeOf(rows, cols, x, up_out.get(), rows), up.pointers(), tokens, DeviceStream())));
    ASSERT_TRUE(
        Ran(LaunchSiluMul(gate_out.get(), up_out.get(), tokens, rows, rows, apart.get(), stride, DeviceStream())));
    ASSERT_TRUE(Ran(LaunchGateUp(ShapeOf(rows, cols, x, fused.get(), stride), gate.pointers(), up.pointers(), tokens,
                                 DeviceStream())));
    EXPECT_EQ(fused.Download(), apart.Download());
  }
}

// A row has the same bits in any tile: this makes prefill independent of its chunks.
TEST_P(CudaFp8ProductTest, BitsDoNotDependOnTheTile) {
  constexpr int64_t kRows = 128, kTokens = 40;
  for (const int64_t cols : {300, 1301}) {
    const Matrix m = RandomMatrix(kFp8, kRows, cols);
    const CodedInputs x(kTokens, cols);
    const DeviceArray<float> large(kTokens * kRows), small(kSmallTile * kRows);
    LinearShape shape = ShapeOf(kRows, cols, x, large.get(), kRows);
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), kTokens, DeviceStream())));
    const std::vector<float> all = large.Download();
    for (const auto& [token, count] : {std::pair<int64_t, int64_t>{0, 1}, {7, 1}, {39, 1}, {5, 9}}) {
      shape.codes = x.codes.get() + token * Fp8RowBytes(cols);
      shape.y = small.get();
      ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), count, DeviceStream())));
      const std::vector<float> few = small.Download();
      EXPECT_EQ(std::memcmp(few.data(), &all[static_cast<size_t>(token * kRows)],
                            static_cast<size_t>(count * kRows) * sizeof(float)),
                0);
    }
  }
}

TEST_F(CudaFp8Test, RefusesWhatItCannotRead) {
  const DeviceArray<uint16_t> x(64);
  const DeviceArray<uint8_t> codes(512), w(64 * 64);
  const DeviceArray<float> y(64);
  const LinearShape shape{.dtype = DType::kBF16, .rows = 1, .cols = 4, .codes = codes.get(), .y = y.get()};
  EXPECT_EQ(LaunchLinear(shape, {w.get(), nullptr}, 1, DeviceStream()).error, kInvalidArgument) << "BF16 weights";
  LinearShape unaligned = shape;
  unaligned.dtype = kFp8;
  unaligned.codes = codes.get() + 8;
  EXPECT_EQ(LaunchLinear(unaligned, {w.get(), y.get()}, 1, DeviceStream()).error, kInvalidArgument);
  const EncodeFp8Args good{.x = x.get(), .x_stride = 8, .rows = 1, .cols = 4, .out = codes.get()};
  EncodeFp8Args args = good;
  args.x_stride = 6;
  EXPECT_EQ(LaunchEncodeFp8(args, DeviceStream()).error, kInvalidArgument);
  args = good;
  args.end = reinterpret_cast<const int32_t*>(y.get());
  EXPECT_EQ(LaunchEncodeFp8(args, DeviceStream()).error, kInvalidArgument);
}

}  // namespace
}  // namespace moestro::cuda
