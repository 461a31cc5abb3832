#include "common/tensor/block_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "common/tensor/packed_matrix.h"
#include "tests/support/packed_block_reader.h"
#include "tests/support/random_blocks.h"

namespace moestro {
namespace {

using testing::HalvesOf;
using testing::RandomBlocks;

uint16_t Load16(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}
uint32_t Load32(const uint8_t* p) {
  uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}
void Put16(uint8_t* p, uint16_t bits) { std::memcpy(p, &bits, sizeof bits); }

std::vector<uint8_t> RandomRows(DType type, int64_t rows, int64_t cols) {
  return RandomBlocks(type, rows, cols, static_cast<uint32_t>(rows * 1009 + cols));
}

class BlockRows : public ::testing::TestWithParam<DType> {};

// tests/golden/blocks/make_blocks.py: six blocks, then the weights that gguf and compressed-tensors make of them.
TEST_P(BlockRows, StandForWhatOtherSoftwareReads) {
  const BlockFormat format = FormatOf(GetParam());
  const std::string path = std::string("tests/golden/blocks/") + DTypeName(GetParam()) + ".bin";
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const int64_t cols = 6 * format.row_block, row_bytes = RowBytes(GetParam(), cols);
  ASSERT_EQ(std::ssize(bytes), row_bytes + 4 * cols) << path;
  std::vector<float> weights(static_cast<size_t>(cols), -1);
  const auto* row = reinterpret_cast<const uint8_t*>(bytes.data());
  DequantizeRow(GetParam(), row, cols, weights.data());
  EXPECT_EQ(FindBadScale(GetParam(), row, cols), nullptr);
  for (int64_t i = 0; i < cols; ++i) {
    const float expected = std::bit_cast<float>(Load32(row + row_bytes + 4 * i));
    ASSERT_EQ(weights[static_cast<size_t>(i)], expected) << i;  // ggml's MXFP4 has no -0
  }
}

TEST_P(BlockRows, ScalesAreFinite) {
  const BlockFormat format = FormatOf(GetParam());
  const int64_t cols = 3 * format.row_block;
  const bool is_bf16 = GetParam() == DType::kI4G32 || GetParam() == DType::kI4G128;
  const std::vector<uint16_t> bad =
      is_bf16 ? std::vector<uint16_t>{0x7f80, 0xff80, 0x7fc0} : std::vector<uint16_t>{0x7c00, 0xfc00, 0x7e00};
  for (int64_t block = 0; block < 3; ++block) {
    std::vector<uint8_t> row = RandomRows(GetParam(), 1, cols);
    uint8_t* const at = row.data() + block * format.row_block_bytes;
    EXPECT_EQ(FindBadScale(GetParam(), row.data(), cols), nullptr);
    for (const int64_t half : HalvesOf(GetParam())) {
      const uint16_t good = Load16(at + half);
      for (const uint16_t bits : bad) {
        Put16(at + half, bits);
        EXPECT_STREQ(FindBadScale(GetParam(), row.data(), cols),
                     half == 2 ? "a min that is not finite" : "a scale that is not finite");
      }
      Put16(at + half, good);
    }
    if (HasZeroPoints(GetParam())) {
      for (const float scale : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN(), 0x1p125f}) {
        const uint32_t word = ScaleAndZero(scale, 15);
        std::memcpy(at, &word, sizeof word);
        EXPECT_STREQ(FindBadScale(GetParam(), row.data(), cols),
                     std::isfinite(scale) ? "a min that is not finite" : "a scale that is not finite");
      }
    }
    if (GetParam() != DType::kMXFP4) continue;
    *at = 255;
    EXPECT_STREQ(FindBadScale(GetParam(), row.data(), cols), "a scale that is not finite");
  }
}

// Packs in pieces of `piece` inputs, from rows that end with their last byte: a sanitizer would see a read past it.
std::vector<uint8_t> Pack(DType type, const std::vector<uint8_t>& rows, int64_t count, int64_t cols, int64_t piece) {
  std::vector<uint8_t> packed(static_cast<size_t>(PackedGroupBytes(type, cols)), 0xee);
  for (int64_t first = 0; first < cols; first += piece) {
    PackBlockRows(type, rows.data(), RowBytes(type, cols), count, first, std::min(piece, cols - first), packed.data());
  }
  return packed;
}

TEST_P(BlockRows, PackedWeightsAreThoseOfTheRows) {
  const BlockFormat format = FormatOf(GetParam());
  for (const int64_t count : {1, 15, 17, 63, 64}) {
    for (int64_t cols : {format.row_block, format.block, format.block + format.row_block, 5 * format.block}) {
      const std::vector<uint8_t> rows = RandomRows(GetParam(), count, cols);
      const std::vector<uint8_t> packed = Pack(GetParam(), rows, count, cols, 2 * format.block);
      EXPECT_EQ(packed, Pack(GetParam(), rows, count, cols, cols)) << "in one piece";
      const testing::PackedBlockReader reader(GetParam(), packed.data());
      std::vector<float> expected(static_cast<size_t>(cols));
      for (int64_t row = 0; row < count; ++row) {
        DequantizeRow(GetParam(), rows.data() + row * RowBytes(GetParam(), cols), cols, expected.data());
        for (int64_t i = 0; i < cols; ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(reader.Weight(row, i)),
                    std::bit_cast<uint32_t>(expected[static_cast<size_t>(i)]))
              << "[" << row << ", " << i << "] of [" << count << ", " << cols << "]";
        }
      }
    }
  }
}

// All bits of rows and inputs that are missing: no weight of the others changes when they are set to zero.
TEST_P(BlockRows, PaddingIsZero) {
  const BlockFormat format = FormatOf(GetParam());
  const int64_t cols = format.block + format.row_block, count = 21;
  std::vector<uint8_t> rows = RandomRows(GetParam(), kRowGroup, 2 * format.block);
  std::vector<uint8_t> zeros(rows.size());
  const int64_t stride = RowBytes(GetParam(), 2 * format.block);
  for (int64_t row = 0; row < count; ++row) {
    std::memcpy(zeros.data() + row * stride, rows.data() + row * stride,
                static_cast<size_t>(RowBytes(GetParam(), cols)));
  }
  std::vector<uint8_t> packed(static_cast<size_t>(PackedGroupBytes(GetParam(), cols)), 0xee);
  PackBlockRows(GetParam(), rows.data(), stride, count, 0, cols, packed.data());
  EXPECT_EQ(packed, Pack(GetParam(), zeros, kRowGroup, 2 * format.block, 2 * format.block));
}

INSTANTIATE_TEST_SUITE_P(All, BlockRows, ::testing::ValuesIn(testing::kBlockFormats),
                         [](const auto& type) { return DTypeName(type.param); });

// Bytes of the layout written by hand.
TEST(PackBlockRows, GoldenQ8_0) {
  std::vector<uint8_t> rows = {0x34, 0x12};
  for (int i = 0; i < 32; ++i) rows.push_back(static_cast<uint8_t>(0x80 + i));
  const std::vector<uint8_t> packed = Pack(DType::kQ8_0, rows, 1, 32, 128);
  std::vector<uint8_t> expected(512 + 8192, 0);
  expected[0] = 0x34, expected[1] = 0x12;
  for (size_t word = 0; word < 8; ++word) {
    const auto code = static_cast<uint8_t>(0x80 + 4 * word);
    const uint8_t bytes[] = {code, static_cast<uint8_t>(code + 2), static_cast<uint8_t>(code + 1),
                             static_cast<uint8_t>(code + 3)};
    std::copy(std::begin(bytes), std::end(bytes), expected.begin() + static_cast<int64_t>(512 + 256 * word));
  }
  EXPECT_EQ(packed, expected);
}

// Codes 1 to 8 of the first 8 inputs of row 17: nibbles 1 3 5 7 2 4 6 8.
TEST(PackBlockRows, GoldenI4) {
  std::vector<uint8_t> rows(18 * 66);
  const uint8_t row[] = {0x80, 0x3f, 0x21, 0x43, 0x65, 0x87};
  std::copy(std::begin(row), std::end(row), rows.begin() + 17 * 66);
  std::vector<uint8_t> expected(128 + 4096, 0);
  expected[32 + 2] = 0x80, expected[32 + 3] = 0x3f;
  const uint8_t word[] = {0x31, 0x75, 0x42, 0x86};
  std::copy(std::begin(word), std::end(word), expected.begin() + 128 + 64 + 4);
  EXPECT_EQ(Pack(DType::kI4G128, rows, 18, 128, 128), expected);
}

// The same codes, scale 1.5 and zero point 9 of sub-block 2 of row 17.
TEST(PackBlockRows, GoldenI4Z) {
  std::vector<uint8_t> rows(18 * 80);
  const uint8_t block[] = {0x09, 0x00, 0xc0, 0x3f, 0x21, 0x43, 0x65, 0x87};
  std::copy(std::begin(block), std::end(block), rows.begin() + 17 * 80 + 2 * 20);
  std::vector<uint8_t> expected(1024 + 4096, 0);
  std::copy(block, block + 4, expected.begin() + (1 * 4 + 2) * 64 + 4);
  const uint8_t word[] = {0x31, 0x75, 0x42, 0x86};
  std::copy(std::begin(word), std::end(word), expected.begin() + 1024 + 64 / 8 * 256 + 64 + 4);
  EXPECT_EQ(Pack(DType::kI4Z32, rows, 18, 128, 128), expected);
}

// Fifth bits of inputs 0, 9 and 31 only.
TEST(PackBlockRows, GoldenQ5_0) {
  std::vector<uint8_t> rows = {0, 0x3c, 0x01, 0x02, 0, 0x80};
  rows.resize(22);
  std::vector<uint8_t> expected(512 + 5120, 0);
  expected[1] = 0x3c;
  const uint32_t fifth = 1u << 0 | 1u << (16 + 4) | 1u << (16 + 12 + 3);
  std::memcpy(&expected[512 + 256], &fifth, sizeof fifth);
  EXPECT_EQ(Pack(DType::kQ5_0, rows, 1, 32, 128), expected);
}

// Codes 3 << 4 of inputs 1 and 10, which is input 2 of the second eight.
TEST(PackBlockRows, GoldenQ6K) {
  std::vector<uint8_t> rows(210);
  rows[128 + 1] = 3, rows[128 + 10] = 3;
  rows[192] = 0xfe, rows[209] = 0x3c;
  std::vector<uint8_t> expected(1152 + 12288, 0);
  expected[1] = 0x3c, expected[128] = 0xfe;
  const uint32_t high = 3u << (8 * 2) | 3u << (2 * 3);  // nibbles 4 and 1: bytes 2 and 0, fields 0 and 3
  std::memcpy(&expected[1152 + 128], &high, sizeof high);
  EXPECT_EQ(Pack(DType::kQ6K, rows, 1, 256, 256), expected);
}

// Element (70, 300) of a Q4_K matrix [130, 512]: row 6 of group 1.
TEST(PackBlockRows, WorkedExampleOfTheFormatDocument) {
  constexpr int64_t kStride = 2 * 144;
  std::vector<uint8_t> rows(64 * kStride);
  uint8_t* const block = rows.data() + 6 * kStride + 144;
  block[16 + 12] = 0xa0;  // input 44: the high half of byte 12
  block[0] = 0x12, block[4 + 1] = 0x15;
  const std::vector<uint8_t> packed = Pack(DType::kQ4K, rows, 64, 512, 512);
  std::vector<uint8_t> expected(18432, 0);
  expected[29977 - 18432] = 0x0a;
  expected[27660 - 18432] = 0x12;
  expected[27737 - 18432] = 0x15;
  EXPECT_EQ(packed, expected);
  EXPECT_EQ(PackedBytes(DType::kQ4K, 130, 512), 55296);
}

}  // namespace
}  // namespace moestro
