#include "common/platform/cpu/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "common/platform/cpu/cpu_features.h"
#include "common/tensor/dtype.h"
#include "tests/common/kernels/amx/tile_model.h"

namespace moestro::amx {
namespace {

struct TileOperands {
  alignas(64) uint16_t a[16][32] = {};
  alignas(64) uint16_t b[16][32] = {};  // row k: inputs 2 k and 2 k + 1 of each column
  alignas(64) float sum[16][16] = {};
};

template <typename Tiles>
void RunProduct(TileOperands& operands) {
  Tiles::Configure();
  Tiles::template Load<0>(operands.sum, 64);
  Tiles::template Load<1>(operands.a, 64);
  Tiles::template Load<2>(operands.b, 64);
  Tiles::template AddProduct<0, 1, 2>();
  Tiles::template Store<0>(operands.sum, 64);
}

// Even inputs are in one chain, odd ones in another: 2^24 + 1 is 2^24 if both are in one chain; 1 survives if the great
// terms cancel first.
TEST(TileModel, SumsEvenAndOddInputsApartAndTheSumLast) {
  TileOperands operands;
  const uint16_t one = ToBf16(1.0f), great = ToBf16(0x1p24f), minus_great = ToBf16(-0x1p24f);
  for (auto& column : {0, 2, 4}) operands.a[0][column] = one;
  operands.b[0][0] = great;        // input 0
  operands.b[1][0] = one;          // input 2: lost
  operands.b[2][0] = minus_great;  // input 4
  operands.a[0][3] = one;
  operands.b[1][1] = one;  // input 3: in the other chain, kept
  operands.sum[0][0] = 0x1p24f;
  operands.sum[0][1] = 5;
  RunProduct<TileModel>(operands);
  EXPECT_EQ(operands.sum[0][0], 0x1p24f);  // 2^24 + (0 + 1) rounds to even
  EXPECT_EQ(operands.sum[0][1], 5);
  operands.sum[0][0] = 0;
  RunProduct<TileModel>(operands);
  EXPECT_EQ(operands.sum[0][0], 1);
}

TEST(TileModel, DenormalsAreZeros) {
  TileOperands operands;
  operands.a[0][0] = 0x0001;  // the smallest denormal
  operands.b[0][0] = ToBf16(0x1p100f);
  operands.a[1][0] = ToBf16(0x1p-70f);
  operands.b[0][2] = ToBf16(0x1p-70f);  // the product is denormal
  operands.sum[2][0] = std::numeric_limits<float>::denorm_min();
  RunProduct<TileModel>(operands);
  EXPECT_EQ(operands.sum[0][0], 0);
  EXPECT_EQ(operands.sum[1][1], 0);
  EXPECT_EQ(operands.sum[2][0], 0);
}

// All bit patterns of BF16 except NaN, so infinities and denormals too; NaN results may be any NaN.
TEST(Tiles, HaveTheBitsOfTheModel) {
  if (!DetectCpuFeatures().amx_bf16 || !AllowTiles()) GTEST_SKIP() << "this CPU or system has no tiles";
  std::mt19937 random(5);
  const auto any_bf16 = [&](uint16_t mask, uint16_t set) {
    uint16_t bits;
    do bits = static_cast<uint16_t>((random() & mask) | set);
    while ((bits & 0x7f80) == 0x7f80 && (bits & 0x7f) != 0);
    return bits;
  };
  for (int round = 0; round < 300; ++round) {
    // Of all magnitudes, or only those whose sums round.
    const uint16_t mask = round % 2 == 0 ? 0xffff : 0x83ff;
    const uint16_t set = round % 2 == 0 ? 0 : 0x3c00;
    TileOperands hardware;
    for (auto* matrix : {&hardware.a, &hardware.b}) {
      for (auto& row : *matrix) {
        for (uint16_t& x : row) x = any_bf16(mask, set);
      }
    }
    for (auto& row : hardware.sum) {
      for (float& x : row) x = FromBf16(any_bf16(mask, set));
    }
    TileOperands model = hardware;
    RunProduct<Tiles>(hardware);
    RunProduct<TileModel>(model);
    for (int i = 0; i < 256; ++i) {
      const float got = hardware.sum[i / 16][i % 16], expected = model.sum[i / 16][i % 16];
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(got));
      } else {
        ASSERT_EQ(std::memcmp(&got, &expected, sizeof got), 0) << got << " instead of " << expected;
      }
    }
  }
}

template <typename Tiles>
void RunByteProduct(TileOperands& operands) {
  Tiles::Configure();
  Tiles::template Load<0>(operands.sum, 64);
  Tiles::template Load<1>(operands.a, 64);
  Tiles::template Load<2>(operands.b, 64);
  Tiles::template AddByteProduct<0, 1, 2>();
  Tiles::template Store<0>(operands.sum, 64);
}

int32_t IntegerSum(const TileOperands& operands, int m, int n) {
  int32_t sum;
  std::memcpy(&sum, &operands.sum[m][n], sizeof sum);
  return sum;
}

TEST(TileModel, MultipliesUnsignedBySignedBytes) {
  TileOperands operands;
  std::memset(operands.a, 255, sizeof operands.a);
  std::memset(operands.b, 0x80, sizeof operands.b);
  auto* const b = reinterpret_cast<int8_t*>(operands.b);
  b[5 * 64 + 4 * 3 + 2] = 127;  // input 22 of column 3
  const int32_t before = 7;
  std::memcpy(&operands.sum[2][3], &before, sizeof before);
  RunByteProduct<TileModel>(operands);
  EXPECT_EQ(IntegerSum(operands, 1, 0), -64 * 255 * 128);
  EXPECT_EQ(IntegerSum(operands, 2, 3), 7 - 63 * 255 * 128 + 255 * 127);
}

TEST(Tiles, HaveTheBytesOfTheModel) {
  if (!DetectCpuFeatures().amx_int8 || !AllowTiles()) GTEST_SKIP() << "this CPU or system has no tiles of bytes";
  std::mt19937 random(6);
  for (int round = 0; round < 100; ++round) {
    TileOperands hardware;
    for (auto* matrix : {&hardware.a, &hardware.b}) {
      for (auto& row : *matrix) {
        for (uint16_t& x : row) x = static_cast<uint16_t>(random());
      }
    }
    for (auto& row : hardware.sum) {
      for (float& x : row) {
        const auto bits = static_cast<uint32_t>(random());
        std::memcpy(&x, &bits, sizeof x);
      }
    }
    TileOperands model = hardware;
    RunByteProduct<Tiles>(hardware);
    RunByteProduct<TileModel>(model);
    ASSERT_EQ(std::memcmp(hardware.sum, model.sum, sizeof model.sum), 0);
  }
}

// Other code on the thread may use tiles of other shapes in between, or release them.
TEST(Tiles, AreConfiguredAgainWhenOthersHaveUsedThem) {
  if (!DetectCpuFeatures().amx_bf16 || !AllowTiles()) GTEST_SKIP() << "this CPU or system has no tiles";
  TileOperands expected;
  for (auto& row : expected.a) std::fill(std::begin(row), std::end(row), ToBf16(2.0f));
  for (auto& row : expected.b) std::fill(std::begin(row), std::end(row), ToBf16(3.0f));
  const TileOperands input = expected;
  RunProduct<TileModel>(expected);
  TileConfig other = kTileConfig;
  other.rows[0] = 3;
  for (int turn = 0; turn < 2; ++turn) {
    if (turn == 0) {
      __asm__ volatile("tilerelease");
    } else {
      __asm__ volatile("ldtilecfg %0" : : "m"(other));
    }
    TileOperands hardware = input;
    RunProduct<Tiles>(hardware);
    EXPECT_EQ(std::memcmp(hardware.sum, expected.sum, sizeof expected.sum), 0) << turn;
  }
  __asm__ volatile("tilerelease");
}

}  // namespace
}  // namespace moestro::amx
