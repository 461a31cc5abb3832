// Products whose heads are rotated on their way out.
#include <gtest/gtest.h>

#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/linear.h"
#include "tests/cuda/kernels/linear_checks.h"

namespace moestro::cuda {
namespace {

// Heads of 24 elements, of which 8 to 23 are rotated; the last tile of rows is not whole.
TEST(CudaRotatedLinearTest, RotatesHeads) {
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
      ASSERT_TRUE(Ran(LaunchLinear(shape, m.pointers(), tokens, DeviceStream())));
      ASSERT_TRUE(Ran(LaunchRotateHeads(plain.get(), tokens, kHeads, kHead, kFirst, {cosine.get(), sine.get(), kDims},
                                        expected.get(), DeviceStream())));
      shape.y = rotated.get();
      shape.output = LinearOutput::kBf16;
      const HeadRotation rotation = {cosine.get(), sine.get(), kHead, kFirst, kDims};
      ASSERT_TRUE(RotatesOutputs(shape, rotation, tokens));
      ASSERT_TRUE(Ran(LaunchRotatedLinear(shape, rotation, m.pointers(), tokens, DeviceStream())));
      EXPECT_EQ(rotated.Download(), expected.Download()) << DTypeName(dtype) << ", " << tokens << " tokens";
    }
  }
}

TEST(CudaRotatedLinearTest, RefusesRotationsWithoutKernels) {
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
    EXPECT_EQ(LaunchRotatedLinear(shape, by, m.pointers(), tokens, DeviceStream()).error, kInvalidArgument);
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

}  // namespace
}  // namespace moestro::cuda
