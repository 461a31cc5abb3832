#include "common/kernels/cuda/head_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/cuda/kernels/matrix.h"

namespace moestro::cuda {
namespace {

struct HeadShape {
  int64_t heads, head_rows, first_row, out_rows, cols;
};

constexpr uint16_t kUntouchedHead = 0xffff;

// Inputs and outputs of heads and rows have gaps; these contain NaN and stay unchanged.
struct Product {
  Product(const HeadShape& s, DType dtype, int64_t rows)
      : shape(s),
        matrix(RandomMatrix(dtype, s.heads * s.head_rows, s.cols)),
        x_head(s.cols + 4),
        y_head(s.out_rows + 3),
        x(RandomBf16(rows * s.heads * x_head, 3)) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (static_cast<int64_t>(i) % x_head >= s.cols) x[i] = kBf16Nan;
    }
  }
  std::vector<uint16_t> Run(DType dtype, int64_t first, int64_t rows) const {
    const DeviceArray<uint16_t> device_x(x), y(rows * shape.heads * y_head);
    const HeadLinearArgs args{.dtype = dtype,
                              .matrix = matrix.pointers(),
                              .heads = shape.heads,
                              .head_rows = shape.head_rows,
                              .first_row = shape.first_row,
                              .out_rows = shape.out_rows,
                              .cols = shape.cols,
                              .x = device_x.get() + first * shape.heads * x_head,
                              .x_row_stride = shape.heads * x_head,
                              .x_head_stride = x_head,
                              .y = y.get(),
                              .y_row_stride = shape.heads * y_head,
                              .y_head_stride = y_head};
    EXPECT_TRUE(Ran(LaunchHeadLinear(args, rows, DeviceStream())));
    return y.Download();
  }

  const HeadShape shape;
  const Matrix matrix;
  const int64_t x_head, y_head;
  std::vector<uint16_t> x;
};

void Check(const HeadShape& s, DType dtype, int64_t rows) {
  SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << s.heads << " heads [" << s.head_rows << ", " << s.cols
                                    << "] x " << rows);
  const Product product(s, dtype, rows);
  const std::vector<uint16_t> got = product.Run(dtype, 0, rows);
  for (int64_t at = 0; at < rows * s.heads; ++at) {
    for (int64_t i = 0; i < product.y_head; ++i) {
      const uint16_t y = got[static_cast<size_t>(at * product.y_head + i)];
      if (i >= s.out_rows) {
        ASSERT_EQ(y, kUntouchedHead);
        continue;
      }
      const int64_t weight_row = at % s.heads * s.head_rows + s.first_row + i;
      double truth = 0, magnitude = 0;
      for (int64_t c = 0; c < s.cols; ++c) {
        const double term = product.matrix.values[static_cast<size_t>(weight_row * s.cols + c)] *
                            FromBf16(product.x[static_cast<size_t>(at * product.x_head + c)]);
        truth += term;
        magnitude += std::fabs(term);
      }
      // A part's inputs of a block of 128, its blocks, and 16 parts.
      const double roundings = 8 + static_cast<double>(s.cols) / 128 + 1 + 16;
      ASSERT_NEAR(FromBf16(y), truth, Gamma(roundings) * magnitude + kUnitBf16 * std::fabs(truth) * (1 + kUnitBf16))
          << "row " << at / s.heads << " head " << at % s.heads << " output " << i;
    }
  }
}

TEST(CudaHeadLinearTest, AbsorbsQueries) {
  for (const DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 7, 8, 9}) Check({2, 512, 0, 512, 128}, dtype, rows);
  }
}

TEST(CudaHeadLinearTest, ProjectsValues) {
  for (const DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 6}) Check({3, 256, 128, 128, 512}, dtype, rows);
  }
}

// Heads that begin inside a row group, and incomplete blocks of inputs.
TEST(CudaHeadLinearTest, OddSizes) {
  for (const DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF16}) {
    Check({5, 24, 0, 24, 36}, dtype, 3);
    Check({7, 76, 12, 60, 132}, dtype, 2);
    Check({1, 4, 0, 4, 4}, dtype, 1);
  }
}

TEST(CudaHeadLinearTest, ARowsBitsDoNotDependOnTheBatch) {
  const Product product({3, 72, 8, 64, 200}, DType::kF8E4M3, 11);
  const std::vector<uint16_t> all = product.Run(DType::kF8E4M3, 0, 11);
  for (int64_t row = 0; row < 11; ++row) {
    for (const int64_t count : {1, 2, 4, 5}) {
      if (row + count > 11) continue;
      const std::vector<uint16_t> few = product.Run(DType::kF8E4M3, row, count);
      EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin() + row * std::ssize(few) / count))
          << row << " " << count;
    }
  }
}

TEST(CudaHeadLinearTest, RefusesWhatItDoesNotDo) {
  const DeviceArray<uint16_t> numbers(64);
  const HeadLinearArgs good{.matrix = {reinterpret_cast<const uint8_t*>(numbers.get()), nullptr},
                            .heads = 1,
                            .head_rows = 8,
                            .first_row = 4,
                            .out_rows = 4,
                            .cols = 8,
                            .x = numbers.get(),
                            .y = numbers.get()};
  const auto expect_refused = [&](auto change) {
    HeadLinearArgs args = good;
    change(args);
    EXPECT_EQ(LaunchHeadLinear(args, 1, DeviceStream()).error, kInvalidArgument);
  };
  expect_refused([](HeadLinearArgs& a) { a.cols = 10; });
  expect_refused([](HeadLinearArgs& a) { a.out_rows = 8; });
  expect_refused([](HeadLinearArgs& a) { a.first_row = 2; });
  expect_refused([](HeadLinearArgs& a) { a.dtype = DType::kF32; });
  expect_refused([](HeadLinearArgs& a) { a.x_row_stride = 2; });
  EXPECT_TRUE(LaunchHeadLinear(good, 0, DeviceStream()).ok());
}

}  // namespace
}  // namespace moestro::cuda
