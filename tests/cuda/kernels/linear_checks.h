// Checks of LaunchLinear and its relatives that hold for all tiles and kernels of products, and their inputs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "common/base/math.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/linear.h"
#include "tests/cuda/kernels/matrix.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {

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
inline double RoundingsOf(DType dtype, int64_t cols) {
  if (!IsBlockFormat(dtype)) {
    const double products = static_cast<double>(kScaleBlock / 16) * (dtype == DType::kF16 ? 2 : 1);
    return kMmaRoundings * products + static_cast<double>(CeilDiv(cols, kScaleBlock)) + 1;  // I8: a row's scale
  }
  const BlockFormat format = FormatOf(dtype);
  const int64_t chain = std::min<int64_t>(32, format.sub_block);
  return kMmaRoundings * static_cast<double>(chain / 16) +
         static_cast<double>(CeilDiv(cols, chain) * (format.has_mins ? 2 : 1));
}

inline ElementTruth ComputeTruth(const Matrix& m, const PaddedInputs& x, int64_t row, int64_t cols, int64_t token) {
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

inline constexpr float kUntouched = -12345.0f;

inline void CheckDense(DType dtype, int64_t rows, int64_t cols, int64_t tokens) {
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
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, DeviceStream())));
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

// Row r holds code r in one column and zeros elsewhere: with inputs of 1, each output is the code's exact value.
inline void CheckAllFp8Codes() {
  constexpr int64_t kCols = 132, kStride = 136;
  for (const int64_t col : {0, 1, 2, 3, 70, 127, 128, 131}) {
    std::vector<uint8_t> row_major(256 * kCols, 0);
    for (int64_t row = 0; row < 256; ++row)
      row_major[static_cast<size_t>(row * kCols + col)] = static_cast<uint8_t>(row);
    const Matrix m = Pack(DType::kF8E4M3, 256, kCols, row_major, std::vector<float>(4, 1.0f));
    for (const int64_t tokens : {1, 5, 9, 17}) {  // of each tile; NaN times an input of 0 is NaN, too
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
      ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, DeviceStream())));
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

// NaN codes make their rows NaN, and no other: not the row whose greatest code lies right behind one.
inline void CheckNanRows() {
  constexpr int64_t kRows = 70;
  for (const int64_t cols : {300, 2100}) {
    std::vector<uint8_t> row_major(static_cast<size_t>(kRows * cols), 0);
    std::vector<bool> is_nan(kRows, false);
    const auto plant = [&](int64_t row, int64_t col, uint8_t code) {  // in rows of even numbers, inputs of odd ones
      row_major[static_cast<size_t>(row * cols + col)] = code;
      row_major[static_cast<size_t>((row + 1) * cols + col - 1)] = 0x7e;
      is_nan[static_cast<size_t>(row)] = true;
    };
    plant(0, 1, 0xff);
    plant(6, 131, 0x7f);
    plant(28, cols / kScaleBlock * kScaleBlock - 1, 0xff);  // the last of whole blocks of inputs
    plant(40, cols - 1, 0xff);
    plant(68, 255, 0xff);
    const Matrix m = Pack(DType::kF8E4M3, kRows, cols, row_major,
                          std::vector<float>(static_cast<size_t>(CeilDiv(cols, kScaleBlock)), 1.0f));
    for (const int64_t tokens : {1, 5, 9, 17}) {  // of each tile
      const PaddedInputs x(tokens, cols);
      const DeviceArray<float> y(tokens * kRows);
      const LinearShape shape{.dtype = DType::kF8E4M3,
                              .rows = kRows,
                              .cols = cols,
                              .x = x.device->get(),
                              .x_stride = x.stride,
                              .y = y.get(),
                              .y_stride = kRows};
      ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, DeviceStream())));
      const std::vector<float> got = y.Download();
      for (size_t at = 0; at < got.size(); ++at) {
        ASSERT_EQ(std::isnan(got[at]), is_nan[at % kRows]) << at << " of " << tokens << ", " << cols << " inputs";
      }
    }
  }
}

inline void CheckOutputs(int64_t tokens) {
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
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, DeviceStream())));
    shape.y = sum.get();
    shape.output = LinearOutput::kAddF32;
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, DeviceStream())));
    shape.y = bf16.get();
    shape.output = LinearOutput::kBf16;
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, DeviceStream())));
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

// Rows by expert, some experts without rows, rows of x in any order and repeated.
inline void CheckGrouped(DType dtype, int tile_tokens, const std::vector<int64_t>& counts, int64_t rows, int64_t cols) {
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
  ASSERT_TRUE(Ran(LaunchGroupedLinear(shape, groups, DeviceStream())));
  const std::vector<float> got = y.Download();
  for (int64_t i = 0; i < total; ++i) {
    for (int64_t row = 0; row < rows; ++row) {
      const auto at = static_cast<size_t>(i);
      const ElementTruth truth = ComputeTruth(matrices[static_cast<size_t>(group_of[at])], x, row, cols, row_of[at]);
      ASSERT_NEAR(got[static_cast<size_t>(i * rows + row)], truth.y, truth.tolerance) << "row " << i << ", " << row;
    }
  }
}

// More tiles than a launch has blocks, which compute several then; and room for many more that do not exist. The bits
// are those of all tokens through one matrix. count: of tiles, of one token each; gate and up have 7 row tiles of each.
inline void CheckSeveralTilesOfGroups(int32_t count) {
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
  ASSERT_TRUE(Ran(LaunchGroupedGateUp(shape, groups, ups, DeviceStream())));
  shape.y = at_once.get();
  ASSERT_TRUE(Ran(LaunchGateUp(shape, gate.pointers(), up.pointers(), count, DeviceStream())));
  EXPECT_EQ(by_groups.Download(), at_once.Download());
}

// The products have LaunchLinear's bits, and the result has LaunchSiluMul's.
inline void CheckGateUp(DType dtype, int64_t rows, int64_t cols, int64_t tokens) {
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
  ASSERT_TRUE(Ran(LaunchLinear(shape, gate.pointers(), tokens, DeviceStream())));
  shape.y = up_out.get();
  ASSERT_TRUE(Ran(LaunchLinear(shape, up.pointers(), tokens, DeviceStream())));
  ASSERT_TRUE(
      Ran(LaunchSiluMul(gate_out.get(), up_out.get(), tokens, rows, rows, apart.get(), stride, DeviceStream())));
  shape.y = fused.get();
  shape.y_stride = stride;
  ASSERT_TRUE(Ran(LaunchGateUp(shape, gate.pointers(), up.pointers(), tokens, DeviceStream())));
  EXPECT_EQ(fused.Download(), apart.Download());
}

// A row has the same bits in any tile: this makes prefill independent of its chunks.
inline void CheckTiles(DType dtype, int64_t cols) {
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
  ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), kTokens, DeviceStream())));
  const std::vector<float> all = large.Download();
  for (const auto& [token, count] : {std::pair<int64_t, int64_t>{0, 1}, {7, 1}, {39, 1}, {2, 4}, {3, 5}, {5, 9}}) {
    shape.x = x.device->get() + token * x.stride;
    shape.y = small.get();
    ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), count, DeviceStream())));
    const std::vector<float> few = small.Download();
    EXPECT_EQ(std::memcmp(few.data(), &all[static_cast<size_t>(token * kRows)], count * kRows * sizeof(float)), 0);
  }
}

}  // namespace moestro::cuda
