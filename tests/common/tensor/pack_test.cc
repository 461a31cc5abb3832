#include "common/tensor/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace moestro {
namespace {

std::vector<uint8_t> PackGroup(DType dtype, const std::vector<uint8_t>& src, int64_t rows, int64_t cols) {
  std::vector<uint8_t> packed(static_cast<size_t>(PackedBytes(dtype, rows, cols)), 0xee);
  PackRows(dtype, src.data(), cols * DTypeBytes(dtype), rows, cols, packed.data());
  return packed;
}

// Bytes of the layout written by hand: 2 rows x 6 inputs, then zeros.
TEST(PackRows, GoldenFp8) {
  const std::vector<uint8_t> packed =
      PackGroup(DType::kF8E4M3, {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16}, 2, 6);
  std::vector<uint8_t> expected(512, 0);
  const uint8_t inputs_0_to_3[] = {0x01, 0x02, 0x11, 0x12, 0, 0, 0, 0, 0x03, 0x04, 0x13, 0x14, 0, 0, 0, 0};
  const uint8_t inputs_4_and_5[] = {0x05, 0x06, 0x15, 0x16};
  std::copy(std::begin(inputs_0_to_3), std::end(inputs_0_to_3), expected.begin());
  std::copy(std::begin(inputs_4_and_5), std::end(inputs_4_and_5), expected.begin() + 256);
  EXPECT_EQ(packed, expected);
}

// 18 rows x 2 inputs: row r is (r + 1, 0x41 + r). 4 rows a lane, 16 rows a tile.
TEST(PackRows, GoldenFp8LanesAndTiles) {
  std::vector<uint8_t> src;
  for (uint8_t row = 0; row < 18; ++row)
    src.insert(src.end(), {static_cast<uint8_t>(row + 1), static_cast<uint8_t>(0x41 + row)});
  const std::vector<uint8_t> packed = PackGroup(DType::kF8E4M3, src, 18, 2);
  std::vector<uint8_t> expected = {
      0x01, 0x41, 0x02, 0x42, 0x03, 0x43, 0x04, 0x44, 0, 0, 0, 0, 0, 0, 0, 0,  // tile 0, rows 0..3
      0x05, 0x45, 0x06, 0x46, 0x07, 0x47, 0x08, 0x48, 0, 0, 0, 0, 0, 0, 0, 0,  // rows 4..7
      0x09, 0x49, 0x0a, 0x4a, 0x0b, 0x4b, 0x0c, 0x4c, 0, 0, 0, 0, 0, 0, 0, 0,  // rows 8..11
      0x0d, 0x4d, 0x0e, 0x4e, 0x0f, 0x4f, 0x10, 0x50, 0, 0, 0, 0, 0, 0, 0, 0,  // rows 12..15
      0x11, 0x51, 0x12, 0x52};                                                 // tile 1, rows 16 and 17
  expected.resize(256, 0);
  EXPECT_EQ(packed, expected);
}

// 2 rows x 3 inputs, padded to 4; little-endian.
TEST(PackRows, GoldenBf16) {
  const std::vector<uint8_t> packed =
      PackGroup(DType::kBF16, {0x01, 0xa1, 0x02, 0xa2, 0x03, 0xa3, 0x11, 0xb1, 0x12, 0xb2, 0x13, 0xb3}, 2, 3);
  std::vector<uint8_t> expected(512, 0);
  const uint8_t inputs_0_and_1[] = {0x01, 0xa1, 0x02, 0xa2, 0x11, 0xb1, 0x12, 0xb2};
  const uint8_t input_2[] = {0x03, 0xa3, 0, 0, 0x13, 0xb3, 0, 0};
  std::copy(std::begin(inputs_0_and_1), std::end(inputs_0_and_1), expected.begin());
  std::copy(std::begin(input_2), std::end(input_2), expected.begin() + 256);
  EXPECT_EQ(packed, expected);
}

// 2 rows x 5 inputs, padded to 64: 4 inputs of a row lie together, the second and third exchanged.
TEST(PackRows, GoldenI8) {
  const std::vector<uint8_t> packed =
      PackGroup(DType::kI8, {0x01, 0x02, 0x03, 0x04, 0x85, 0x11, 0x12, 0x13, 0x14, 0x15}, 2, 5);
  std::vector<uint8_t> expected(64 * 64, 0);
  const uint8_t inputs_0_to_3[] = {0x01, 0x03, 0x02, 0x04, 0x11, 0x13, 0x12, 0x14};
  const uint8_t input_4[] = {0x85, 0, 0, 0, 0x15};
  std::copy(std::begin(inputs_0_to_3), std::end(inputs_0_to_3), expected.begin());
  std::copy(std::begin(input_4), std::end(input_4), expected.begin() + 256);
  EXPECT_EQ(packed, expected);
  std::vector<int32_t> compensation(64, 1);
  FindCompensation(packed.data(), 5, compensation.data());
  std::vector<int32_t> expected_compensation(64, 0);
  expected_compensation[0] = -128 * (1 + 2 + 3 + 4 - 123);
  expected_compensation[1] = -128 * (0x11 + 0x12 + 0x13 + 0x14 + 0x15);
  EXPECT_EQ(compensation, expected_compensation);
}

// Every element where PackedOffset puts it, zeros elsewhere. The source ends with its last row, also at odd addresses:
// the address sanitizer would see a read past it.
void CheckShape(DType dtype, int64_t rows, int64_t cols, int64_t misalignment) {
  const int64_t element = DTypeBytes(dtype);
  const int64_t stride = (cols + 3) * element;
  std::vector<uint8_t> src(static_cast<size_t>(misalignment + (rows - 1) * stride + cols * element));
  std::mt19937 random(static_cast<uint32_t>(rows * 1009 + cols));
  for (uint8_t& byte : src) byte = static_cast<uint8_t>(1 + random() % 255);
  const uint8_t* begin = src.data() + misalignment;

  std::vector<uint8_t> expected(static_cast<size_t>(PackedBytes(dtype, rows, cols)), 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const int64_t offset = PackedOffset(dtype, cols, row, col);
      ASSERT_EQ(expected[static_cast<size_t>(offset)], 0) << "two elements share an offset";
      std::memcpy(&expected[static_cast<size_t>(offset)], begin + row * stride + col * element,
                  static_cast<size_t>(element));
    }
  }
  std::vector<uint8_t> packed(expected.size(), 0xee);
  for (int64_t row = 0; row < rows; row += kRowGroup) {
    PackRows(dtype, begin + row * stride, stride, std::min(kRowGroup, rows - row), cols,
             packed.data() + row * PaddedCols(cols) * element);
  }
  EXPECT_EQ(packed, expected) << DTypeName(dtype) << " [" << rows << ", " << cols << "]";
}

TEST(PackRows, OddShapesGoWhereTheOffsetSays) {
  for (DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF16}) {
    for (int64_t rows : {1, 3, 15, 16, 17, 63, 64, 65, 128, 130}) {
      for (int64_t cols : {1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200}) {
        CheckShape(dtype, rows, cols, (rows + cols) % 3);
      }
    }
  }
}

constexpr uint8_t kNormal = 0x38;

// Each code alone among ones, in a row group of three blocks, the last with one step: only its own bit is set.
TEST(FindExceptions, NamesTheStepOfEachCodeThatIsNotNormal) {
  constexpr int64_t kCols = 260;
  std::vector<uint8_t> packed(static_cast<size_t>(PackedBytes(DType::kF8E4M3, kRowGroup, kCols)), kNormal);
  for (int code = 0; code < 256; ++code) {
    const bool is_nan = (code & 0x7f) == 0x7f;
    const bool is_normal = !is_nan && (code & 0x78) != 0;
    for (size_t at = static_cast<size_t>(code); at < packed.size(); at += 1021) {
      packed[at] = static_cast<uint8_t>(code);
      uint32_t words[4] = {7, 7, 7, 7};
      EXPECT_EQ(FindExceptions(packed.data(), kCols, words), is_nan) << code << " at " << at;
      const size_t step = at / 256;
      for (size_t word = 0; word < 3; ++word) {
        const uint32_t expected = !is_normal && word == step / 32 ? 1u << (step % 32) : 0;
        EXPECT_EQ(words[word], expected) << code << " at " << at << ", word " << word;
      }
      EXPECT_EQ(words[3], 7u) << "written past the last word";
      packed[at] = kNormal;
    }
  }
}

TEST(FindExceptions, PaddingIsNotNormal) {
  std::vector<uint8_t> src(63 * 6, kNormal);
  std::vector<uint8_t> packed(static_cast<size_t>(PackedBytes(DType::kF8E4M3, kRowGroup, 6)));
  uint32_t word = 0;
  PackRows(DType::kF8E4M3, src.data(), 6, 63, 6, packed.data());
  EXPECT_FALSE(FindExceptions(packed.data(), 6, &word));
  EXPECT_EQ(word, 3u) << "an absent row is in every step";
  src.resize(64 * 6, kNormal);
  PackRows(DType::kF8E4M3, src.data(), 6, 64, 6, packed.data());
  EXPECT_FALSE(FindExceptions(packed.data(), 6, &word));
  EXPECT_EQ(word, 2u) << "absent columns are in the last step";
}

}  // namespace
}  // namespace moestro
