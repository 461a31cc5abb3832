#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/math.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/int8_inputs.h"
#include "common/kernels/cuda/linear.h"
#include "tests/cuda/kernels/matrix.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

// A row of inputs as the host codes it.
struct HostCodes {
  float scale = 0;
  std::vector<int32_t> codes;
};
HostCodes CodesOf(const uint16_t* x, int64_t cols) {
  HostCodes row;
  for (int64_t i = 0; i < cols; ++i) row.scale = std::max(row.scale, std::fabs(FromBf16(x[i])));
  row.scale /= 127.0f;
  for (int64_t i = 0; i < cols; ++i) {
    row.codes.push_back(row.scale == 0 ? 0 : static_cast<int32_t>(std::nearbyint(FromBf16(x[i]) / row.scale)));
  }
  return row;
}

// Inputs [tokens, stride] with NaN past `cols`, and their coded rows on the device.
struct Int8Inputs {
  Int8Inputs(int64_t tokens, int64_t its_cols, float scale = 1.0f)
      : cols(its_cols),
        stride(RoundUp(cols, 8) + 8),
        values(RandomBf16(tokens * stride, static_cast<uint32_t>(cols), scale)),
        coded(tokens * Int8Stride(cols)) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (static_cast<int64_t>(i) % stride >= cols) values[i] = kBf16Nan;
    }
    const DeviceArray<uint16_t> x(values);
    EXPECT_TRUE(Ran(LaunchEncodeInt8({.x = x.get(),
                                      .x_stride = stride,
                                      .cols = cols,
                                      .out = coded.get(),
                                      .out_stride = Int8Stride(cols),
                                      .rows = tokens},
                                     DeviceStream())));
  }
  HostCodes Host(int64_t token) const { return CodesOf(&values[static_cast<size_t>(token * stride)], cols); }
  LinearShape Shape(int64_t rows, void* y, int64_t y_stride) const {
    return {.dtype = DType::kI8,
            .rows = rows,
            .cols = cols,
            .x = coded.get(),
            .x_stride = Int8Stride(cols),
            .y = y,
            .y_stride = y_stride,
            .int8_inputs = true};
  }

  int64_t cols, stride;
  std::vector<uint16_t> values;
  DeviceArray<uint16_t> coded;
};

// I8 weights with their codes and scales on the host.
struct Int8Matrix {
  Int8Matrix(int64_t its_rows, int64_t its_cols, uint32_t seed) : rows(its_rows), cols(its_cols) {
    std::mt19937 random(seed);
    codes.resize(static_cast<size_t>(rows * cols));
    for (uint8_t& code : codes) code = random() % 16 == 0 ? uint8_t{0x80} : static_cast<uint8_t>(random());
    scales = RandomFloats(PaddedRows(rows), seed, 0.02f);
    packed = Pack(DType::kI8, rows, cols, codes, scales);
  }
  float Output(int64_t row, const HostCodes& x) const {
    int64_t sum = 0;
    for (int64_t i = 0; i < cols; ++i) {
      sum += int64_t{static_cast<int8_t>(codes[static_cast<size_t>(row * cols + i)])} * x.codes[static_cast<size_t>(i)];
    }
    return static_cast<float>(static_cast<int32_t>(sum)) * x.scale * scales[static_cast<size_t>(row)];
  }

  int64_t rows, cols;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  Matrix packed;
};

TEST(CudaEncodeInt8Test, CodesLieAsTheHostModelHasThem) {
  for (const int64_t cols : {1, 2, 3, 15, 16, 130, 1301}) {
    SCOPED_TRACE(cols);
    constexpr int64_t kTokens = 3;
    for (const float magnitude : {1.0f, 1e-38f, 1e37f}) {
      const Int8Inputs x(kTokens, cols, magnitude);
      const std::vector<uint16_t> got = x.coded.Download();
      const auto* bytes = reinterpret_cast<const uint8_t*>(got.data());
      for (int64_t token = 0; token < kTokens; ++token) {
        const uint8_t* row = bytes + token * Int8Stride(cols) * 2;
        const HostCodes expected = x.Host(token);
        float scale;
        std::memcpy(&scale, row, sizeof scale);
        EXPECT_EQ(scale, expected.scale);
        for (int64_t i = 0; i < RoundUp(cols, 16); ++i) {
          constexpr int64_t kPlaces[] = {0, 2, 1, 3};
          const auto code = static_cast<int8_t>(row[kInt8Header + i / 4 * 4 + kPlaces[i % 4]]);
          ASSERT_EQ(code, i < cols ? expected.codes[static_cast<size_t>(i)] : 0) << "token " << token << " input " << i;
        }
      }
    }
  }
}

// In the place of the inputs; rows of tiles alone, of which a range is meant.
TEST(CudaEncodeInt8Test, RowsOfTilesInPlace) {
  constexpr int64_t kCols = 100, kStride = 104, kRows = 45;
  std::vector<uint16_t> x = RandomBf16(kRows * kStride, 1);
  const DeviceArray<uint16_t> device(x);
  const DeviceArray<TokenTile> tiles(std::vector<TokenTile>{{0, 0, 2}, {1, 3, 16}, {2, 20, 1}, {3, 30, 15}});
  const DeviceArray<int32_t> range(std::vector<int32_t>{1, 3});
  ASSERT_TRUE(Ran(LaunchEncodeInt8({.x = device.get(),
                                    .x_stride = kStride,
                                    .cols = kCols,
                                    .out = device.get(),
                                    .out_stride = kStride,
                                    .tiles = tiles.get(),
                                    .first_tile = range.get(),
                                    .end_tile = range.get() + 1,
                                    .max_tiles = 5},
                                   DeviceStream())));
  const std::vector<uint16_t> got = device.Download();
  for (int64_t row = 0; row < kRows; ++row) {
    const uint16_t* const before = &x[static_cast<size_t>(row * kStride)];
    const uint16_t* const after = &got[static_cast<size_t>(row * kStride)];
    if ((row >= 3 && row < 19) || row == 20) {
      float scale;
      std::memcpy(&scale, after, sizeof scale);
      EXPECT_EQ(scale, CodesOf(before, kCols).scale) << row;
    } else {
      EXPECT_TRUE(std::equal(before, before + kStride, after)) << row;
    }
  }
}

TEST(CudaEncodeInt8Test, RefusesWhatItCannotWrite) {
  const DeviceArray<uint16_t> x(64), out(64);
  const EncodeInt8Args good{.x = x.get(), .x_stride = 16, .cols = 16, .out = out.get(), .out_stride = 16, .rows = 4};
  EXPECT_TRUE(Ran(LaunchEncodeInt8({.rows = 0}, DeviceStream())));
  for (int i = 0; i < 5; ++i) {
    EncodeInt8Args bad = good;
    if (i == 0) bad.x_stride = 12;
    if (i == 1) bad.out_stride = 8;
    if (i == 2) bad.out = out.get() + 1;
    if (i == 3) bad.cols = 200000;
    if (i == 4) bad.out = x.get(), bad.x_stride = 24;
    EXPECT_EQ(LaunchEncodeInt8(bad, DeviceStream()).error, kInvalidArgument) << i;
  }
}

TEST(CudaInt8LinearTest, SumsAreExact) {
  for (const auto& [rows, cols, tokens] : {std::array<int64_t, 3>{1, 1, 1},
                                           {63, 127, 2},
                                           {65, 129, 16},
                                           {130, 16, 17},
                                           {129, 260, 129},
                                           {65, 1301, 9},
                                           {65, 1301, 18}}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << cols << " x " << tokens);
    const Int8Matrix m(rows, cols, static_cast<uint32_t>(cols));
    const Int8Inputs x(tokens, cols);
    for (const int64_t y_stride : {rows + 3, RoundUp(rows, 4) + 4}) {  // by single elements, and by four
      constexpr float kUntouched = -12345.0f;
      const DeviceArray<float> y(std::vector<float>(static_cast<size_t>(tokens * y_stride), kUntouched));
      ASSERT_TRUE(Ran(LaunchLinear(x.Shape(rows, y.get(), y_stride), m.packed.pointers(), tokens, DeviceStream())));
      const std::vector<float> got = y.Download();
      for (int64_t token = 0; token < tokens; ++token) {
        const HostCodes codes = x.Host(token);
        for (int64_t row = 0; row < y_stride; ++row) {
          ASSERT_EQ(got[static_cast<size_t>(token * y_stride + row)], row < rows ? m.Output(row, codes) : kUntouched)
              << "token " << token << " row " << row;
        }
      }
    }
  }
}

TEST(CudaInt8LinearTest, Groups) {
  constexpr int64_t kInputs = 19;
  for (const int tile_tokens : {kSmallTile, kLargeTile}) {
    const int64_t rows = 130, cols = 136;
    const Int8Inputs x(kInputs, cols);
    const std::vector<int64_t> counts = {0, 1, 16, 0, 17, 3};
    std::vector<Int8Matrix> matrices;
    LinearGroups groups{.matrices = {}, .first_group = 0, .tile_tokens = tile_tokens};
    std::vector<int32_t> row_of, group_of;
    std::vector<TokenTile> tiles;
    for (size_t group = 0; group < counts.size(); ++group) {
      matrices.emplace_back(rows, cols, static_cast<uint32_t>(group));
      if (counts[group] > 0) groups.matrices.of[group] = matrices.back().packed.pointers();
      for (int64_t i = 0; i < counts[group]; ++i) {
        if (i % tile_tokens == 0) {
          tiles.push_back({static_cast<int32_t>(group), static_cast<int32_t>(row_of.size()),
                           static_cast<int32_t>(std::min<int64_t>(tile_tokens, counts[group] - i))});
        }
        row_of.push_back(static_cast<int32_t>((7 * row_of.size()) % kInputs));
        group_of.push_back(static_cast<int32_t>(group));
      }
    }
    const DeviceArray<int32_t> device_rows(row_of);
    const DeviceArray<int32_t> range(std::vector<int32_t>{0, static_cast<int32_t>(tiles.size())});
    const DeviceArray<TokenTile> device_tiles(tiles);
    groups.row_of = device_rows.get();
    groups.tiles = device_tiles.get();
    groups.first_tile = range.get();
    groups.end_tile = range.get() + 1;
    groups.max_tiles = std::ssize(tiles) + 2;
    const DeviceArray<float> y(std::ssize(row_of) * rows);
    ASSERT_TRUE(Ran(LaunchGroupedLinear(x.Shape(rows, y.get(), rows), groups, DeviceStream())));
    const std::vector<float> got = y.Download();
    for (size_t i = 0; i < row_of.size(); ++i) {
      const HostCodes codes = x.Host(row_of[i]);
      for (int64_t row = 0; row < rows; ++row) {
        ASSERT_EQ(got[i * static_cast<size_t>(rows) + static_cast<size_t>(row)],
                  matrices[static_cast<size_t>(group_of[i])].Output(row, codes))
            << i << ", " << row;
      }
    }
  }
}

// The products have LaunchLinear's bits, and the result has LaunchSiluMul's. Biases, and outputs of all kinds.
TEST(CudaInt8LinearTest, GateUpAndOutputs) {
  for (const auto& [rows, cols, tokens] :
       {std::array<int64_t, 3>{1, 4, 1}, {72, 160, 16}, {192, 260, 17}, {65, 132, 131}}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << cols << " x " << tokens);
    const Int8Matrix gate(rows, cols, 1), up(rows, cols, 2);
    const Int8Inputs x(tokens, cols);
    const DeviceArray<float> bias(RandomFloats(rows, 3)), gates(tokens * rows), ups(tokens * rows), sum(tokens * rows);
    const DeviceArray<uint16_t> together(tokens * rows), apart(tokens * rows), rounded(tokens * rows);
    MatrixPointers biased = gate.packed.pointers();
    biased.bias = bias.get();
    ASSERT_TRUE(Ran(LaunchLinear(x.Shape(rows, gates.get(), rows), biased, tokens, DeviceStream())));
    ASSERT_TRUE(Ran(LaunchLinear(x.Shape(rows, ups.get(), rows), up.packed.pointers(), tokens, DeviceStream())));
    ASSERT_TRUE(Ran(LaunchSiluMul(gates.get(), ups.get(), tokens, rows, rows, apart.get(), rows, DeviceStream())));
    ASSERT_TRUE(
        Ran(LaunchGateUp(x.Shape(rows, together.get(), rows), biased, up.packed.pointers(), tokens, DeviceStream())));
    EXPECT_EQ(together.Download(), apart.Download());

    LinearShape shape = x.Shape(rows, sum.get(), rows);
    ASSERT_TRUE(Ran(LaunchLinear(shape, biased, tokens, DeviceStream())));
    shape.output = LinearOutput::kAddF32;
    ASSERT_TRUE(Ran(LaunchLinear(shape, biased, tokens, DeviceStream())));
    shape.y = rounded.get();
    shape.output = LinearOutput::kBf16;
    ASSERT_TRUE(Ran(LaunchLinear(shape, biased, tokens, DeviceStream())));
    const std::vector<float> plain = gates.Download(), twice = sum.Download();
    const std::vector<uint16_t> bf16 = rounded.Download();
    for (size_t i = 0; i < plain.size(); ++i) {
      ASSERT_EQ(twice[i], plain[i] + plain[i]);
      ASSERT_EQ(bf16[i], ToBf16(plain[i]));
    }
  }
}

TEST(CudaInt8LinearTest, OnlyInt8WeightsTakeCodes) {
  const Int8Inputs x(1, 64);
  const Int8Matrix m(64, 64, 1);
  const DeviceArray<float> y(64);
  LinearShape shape = x.Shape(64, y.get(), 64);
  shape.dtype = DType::kBF16;
  EXPECT_EQ(LaunchLinear(shape, m.packed.pointers(), 1, DeviceStream()).error, kInvalidArgument);
  shape = x.Shape(64, y.get(), 64);
  shape.x_stride = 32;
  EXPECT_EQ(LaunchLinear(shape, m.packed.pointers(), 1, DeviceStream()).error, kInvalidArgument);
}

}  // namespace
}  // namespace moestro::cuda
