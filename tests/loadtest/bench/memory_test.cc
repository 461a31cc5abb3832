#include "loadtest/bench/memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "common/kernels/cpu/kernels.h"

namespace moestro::bench {
namespace {

TEST(HugeBuffer, IsZeroedAndMovable) {
  auto allocated = HugeBuffer::Allocate(1 << 20);
  ASSERT_TRUE(allocated.ok());
  HugeBuffer buffer = *std::move(allocated);
  EXPECT_EQ(buffer.size(), 1 << 20);
  EXPECT_EQ(buffer.data()[12345], 0);
  HugeBuffer other = std::move(buffer);
  other.data()[0] = 1;
  EXPECT_EQ(other.size(), 1 << 20);
}

TEST(HugeBuffer, MoreThanTheMachineHasIsRefused) {
  const auto buffer = HugeBuffer::Allocate(int64_t{1} << 50);
  EXPECT_TRUE(absl::IsResourceExhausted(buffer.status())) << buffer.status();
}

TEST(WeightPattern, CodesAreNumbersAndTheSameInEveryRun) {
  WorkerPool pool(2);
  const WeightPattern pattern(DType::kF8E4M3);
  constexpr int64_t kBytes = (20 << 20) + 64;
  const auto a = HugeBuffer::Allocate(kBytes);
  const auto b = HugeBuffer::Allocate(kBytes);
  ASSERT_TRUE(a.ok() && b.ok());
  pattern.Fill(pool, a->data(), kBytes);
  pattern.Fill(pool, b->data(), kBytes);
  int64_t nan = 0;
  int64_t differing = 0;
  for (int64_t i = 0; i < kBytes; ++i) {
    nan += (a->data()[i] & 0x7f) == 0x7f;
    differing += a->data()[i] != b->data()[i];
  }
  EXPECT_EQ(nan, 0);
  EXPECT_EQ(differing, 0);
}

// Blocks begin where a packed matrix has them, also behind the end of the pattern: all scales are the same.
TEST(WeightPattern, BlocksAreWhole) {
  WorkerPool pool(2);
  constexpr int64_t kBytes = 20 << 20;
  const auto buffer = HugeBuffer::Allocate(kBytes);
  ASSERT_TRUE(buffer.ok());
  for (DType dtype : {DType::kMXFP4, DType::kQ6K}) {
    WeightPattern(dtype).Fill(pool, buffer->data(), kBytes);
    const int64_t block_bytes = FormatOf(dtype).packed_block_bytes();
    for (int64_t at = 0; at + block_bytes <= kBytes; at += block_bytes) {
      const uint8_t* header = buffer->data() + at;
      ASSERT_EQ(header[0], dtype == DType::kMXFP4 ? 119 : 0x00) << at;
      ASSERT_EQ(header[127], dtype == DType::kMXFP4 ? 119 : 0x1c) << at;
    }
  }
}

TEST(WeightPattern, Bf16HasTheDeviationAskedFor) {
  WorkerPool pool(1);
  constexpr int64_t kCount = 1 << 18;
  const auto buffer = HugeBuffer::Allocate(kCount * 2);
  ASSERT_TRUE(buffer.ok());
  WeightPattern(DType::kBF16, 0.5).Fill(pool, buffer->data(), kCount * 2);
  double sum = 0;
  double squares = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const double value = FromBf16(reinterpret_cast<const uint16_t*>(buffer->data())[i]);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(std::sqrt(squares / kCount), 0.5, 0.01);
}

TEST(WeightPool, MatricesLieBehindOneAnother) {
  WorkerPool pool(1);
  WeightPool weights(pool, 1 << 20);
  ASSERT_TRUE(weights.Prepare(DType::kBF16).ok());
  EXPECT_EQ(weights.Count(64, 128), 64);
  const PackedMatrix second = weights.Matrix(1, 64, 128, nullptr);
  EXPECT_EQ(second.data - weights.data(), 64 * 128 * 2);
  EXPECT_EQ(second.dtype, DType::kBF16);
  weights.Release();
  ASSERT_TRUE(weights.Prepare(DType::kF8E4M3).ok());
  EXPECT_EQ(weights.Count(64, 128), 128);
}

// Some tables of kernels need the compensation and some do not: with the right one all give the same bits.
TEST(WeightPool, Int8MatricesWithTheirCompensationAreProductsInAllTables) {
  constexpr int64_t kRows = 128, kCols = 192;
  WorkerPool pool(2);
  WeightPool weights(pool, 4 * kRows * kCols);
  ASSERT_TRUE(weights.Prepare(DType::kI8).ok());
  EXPECT_EQ(weights.Count(kRows, kCols), 4);
  const std::vector<int32_t> compensation = CompensationOf(pool, weights.data(), 4 * kRows / kRowGroup, kCols);
  const std::vector<float> scales = MakeRowScales(kRows, 1);
  const std::vector<uint16_t> input = MakeInputs(kCols);
  PackedMatrix matrix = weights.Matrix(3, kRows, kCols, scales.data());
  matrix.compensation = compensation.data() + 3 * kRows;
  std::vector<float> reference;
  for (const CpuKernels* kernels : AvailableKernels()) {
    std::vector<float> output(kRows);
    kernels->linear(matrix, input.data(), kCols, 1, output.data(), kRows, 0, kRows);
    if (reference.empty()) reference = output;
    EXPECT_EQ(output, reference) << kernels->isa;
  }
  double squares = 0;
  for (const float value : reference) squares += double{value} * value;
  EXPECT_NEAR(std::sqrt(squares / kRows), std::sqrt(double{kCols}), 4);  // of weights and inputs of deviation 1
}

TEST(PageUse, CountsThisProcess) {
  const PageUse use = ReadPageUse();
  EXPECT_GT(use.anonymous_bytes, 0);
  EXPECT_LE(use.huge_bytes, use.anonymous_bytes);
}

}  // namespace
}  // namespace moestro::bench
