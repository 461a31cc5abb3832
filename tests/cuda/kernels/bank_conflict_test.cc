// Kernels lay out shared memory so that lanes served together hit different banks. Tests of results cannot see this, so
// the emulated device counts conflicts.
#include <gtest/gtest.h>

#include "common/kernels/cuda/attention.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/fp8_inputs.h"
#include "common/kernels/cuda/int8_inputs.h"
#include "common/kernels/cuda/linear.h"
#include "common/tensor/packed_matrix.h"
#include "tests/cuda/emulation/machine.h"
#include "tests/cuda/emulation/planted_bugs.h"
#include "tests/cuda/kernels/numbers.h"
#include "tests/support/random_blocks.h"

namespace moestro::cuda {
namespace {

template <typename LaunchFunction>
emulation::BankUse Count(const LaunchFunction& launch) {
  emulation::BankUse use;
  emulation::CountBankConflicts(&use);
  const LaunchResult result = launch();
  emulation::CountBankConflicts(nullptr);
  EXPECT_TRUE(Ran(result));
  return use;
}

// The count itself: 64 threads in two warps write and read elements `stride` apart.
TEST(BankConflictTest, CountsThoseOfAStride) {
  const DeviceArray<float> out(64);
  for (const auto& [stride, conflicts] : {std::pair{1, 0}, {2, 1}, {3, 0}, {8, 7}, {32, 31}}) {
    const emulation::BankUse use = Count([&] { return LaunchStrided(stride, out.get()); });
    EXPECT_EQ(use.accesses, 4) << "a write and a read of each warp";
    EXPECT_EQ(use.conflicts, 4 * conflicts) << "stride " << stride;
  }
}

void CheckLinear(const std::vector<DType>& types) {
  constexpr int64_t kRows = 128, kCols = 256;
  for (const DType dtype : types) {
    for (const int64_t tokens : {16, 128}) {
      const DeviceArray<uint8_t> weights(
          std::vector<uint8_t>(static_cast<size_t>(PackedBytes(dtype, kRows, kCols)), 56));
      const DeviceArray<float> scales(std::vector<float>(kRows, 1.0f)), y(tokens * kRows);
      const DeviceArray<uint16_t> x(RandomBf16(tokens * kCols, 1));
      const LinearShape shape{.dtype = dtype,
                              .rows = kRows,
                              .cols = kCols,
                              .x = x.get(),
                              .x_stride = kCols,
                              .y = y.get(),
                              .y_stride = kRows};
      const emulation::BankUse use = Count([&] {
        return LaunchLinear(shape, {weights.get(), scales.get()}, tokens, nullptr);
      });
      EXPECT_GE(use.accesses, 64);
      EXPECT_EQ(use.conflicts, 0) << DTypeName(dtype) << " " << tokens << " tokens";
      const emulation::BankUse gate_up = Count([&] {
        return LaunchGateUp(shape, {weights.get(), scales.get()}, {weights.get(), scales.get()}, tokens, nullptr);
      });
      EXPECT_GT(gate_up.accesses, use.accesses);
      EXPECT_EQ(gate_up.conflicts, 0) << "gate and up, " << DTypeName(dtype) << " " << tokens << " tokens";
    }
  }
}

TEST(BankConflictTest, LinearHasNone) {
  std::vector<DType> types = {DType::kF8E4M3, DType::kBF16, DType::kF16, DType::kI8};
  types.insert(types.end(), std::begin(moestro::testing::kBlockFormats), std::end(moestro::testing::kBlockFormats));
  CheckLinear(types);
}

TEST(BankConflictTest, LinearOfWarpGroupsHasNone) {
  SetWarpGroups(true);
  CheckLinear({DType::kF8E4M3});
  ResetWarpGroups();
}

// Of products of groups of warps, if on.
class LinearOfCodesTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { SetWarpGroups(GetParam()); }
  void TearDown() override { ResetWarpGroups(); }
};
INSTANTIATE_TEST_SUITE_P(Of, LinearOfCodesTest, ::testing::Bool(),
                         [](const auto& groups) { return groups.param ? "WarpGroups" : "Warps"; });

TEST_P(LinearOfCodesTest, HasNone) {
  constexpr int64_t kRows = 128, kCols = 256;
  const DeviceArray<uint8_t> weights(std::vector<uint8_t>(kRows * kCols, 56));
  const DeviceArray<float> scales(std::vector<float>(2, 1.0f));
  for (const int64_t tokens : {16, 128}) {
    const DeviceArray<uint8_t> codes(std::vector<uint8_t>(static_cast<size_t>(tokens * Fp8RowBytes(kCols)), 56));
    const DeviceArray<float> y(tokens * kRows);
    const LinearShape shape{
        .dtype = DType::kF8E4M3, .rows = kRows, .cols = kCols, .codes = codes.get(), .y = y.get(), .y_stride = kRows};
    const MatrixPointers matrix{weights.get(), scales.get()};
    const emulation::BankUse use = Count([&] { return LaunchLinear(shape, matrix, tokens, nullptr); });
    EXPECT_GE(use.accesses, 64);
    EXPECT_EQ(use.conflicts, 0) << tokens << " tokens";
    EXPECT_EQ(Count([&] { return LaunchGateUp(shape, matrix, matrix, tokens, nullptr); }).conflicts, 0);
  }
}

TEST(BankConflictTest, Int8LinearHasNone) {
  constexpr int64_t kRows = 128, kCols = 256, kStride = Int8Stride(kCols);
  for (const int64_t tokens : {16, 128}) {
    const DeviceArray<uint8_t> weights(
        std::vector<uint8_t>(static_cast<size_t>(PackedBytes(DType::kI8, kRows, kCols)), 56));
    const DeviceArray<float> scales(std::vector<float>(kRows, 1.0f)), y(tokens * kRows);
    const DeviceArray<uint16_t> x(std::vector<uint16_t>(static_cast<size_t>(tokens * kStride), 0x0102));
    const LinearShape shape{.dtype = DType::kI8,
                            .rows = kRows,
                            .cols = kCols,
                            .x = x.get(),
                            .x_stride = kStride,
                            .y = y.get(),
                            .y_stride = kRows,
                            .int8_inputs = true};
    const MatrixPointers matrix{weights.get(), scales.get()};
    const emulation::BankUse use = Count([&] { return LaunchLinear(shape, matrix, tokens, nullptr); });
    EXPECT_GE(use.accesses, 64);
    EXPECT_EQ(use.conflicts, 0) << tokens << " tokens";
    const emulation::BankUse gate_up = Count([&] { return LaunchGateUp(shape, matrix, matrix, tokens, nullptr); });
    EXPECT_EQ(gate_up.conflicts, 0) << "gate and up, " << tokens << " tokens";
  }
}

TEST(BankConflictTest, AttentionHasNone) {
  constexpr int64_t kTokens = 64;
  for (const int64_t key_dim : {64, 128, 192}) {
    const int64_t value_dim = key_dim == 64 ? 64 : 128;
    const DeviceArray<uint16_t> kv(RandomBf16(kTokens * 256, 1)), queries(RandomBf16(kTokens * key_dim, 2)),
        out(kTokens * 128);
    const KvVectors vectors{kv.get(), nullptr, kTokens * 256, 256, 0};
    const emulation::BankUse use = Count([&] {
      return LaunchPrefillAttention({.heads = 1,
                                     .kv_heads = 1,
                                     .key_dim = key_dim,
                                     .value_dim = value_dim,
                                     .scale = 0.1f,
                                     .keys = vectors,
                                     .shared_keys = key_dim == 192 ? vectors : KvVectors{},
                                     .values = vectors,
                                     .rows = kTokens,
                                     .queries = queries.get(),
                                     .query_stride = key_dim,
                                     .out = out.get(),
                                     .out_stride = 128},
                                    nullptr);
    });
    EXPECT_GE(use.accesses, 100);
    EXPECT_EQ(use.conflicts, 0) << "key_dim " << key_dim;
  }
}

TEST(BankConflictTest, DecodeAttentionHasNone) {
  constexpr int64_t kTokens = 65, kHeads = 32, kLatent = 512, kRope = 64, kKeyDim = kLatent + kRope;
  const DeviceArray<uint16_t> pool(RandomBf16(2 * 64 * kKeyDim, 1)), queries(RandomBf16(kHeads * kKeyDim, 2)),
      out(kHeads * kLatent);
  const DeviceArray<uint32_t> list(std::vector<uint32_t>{0, 1});
  const DeviceArray<int32_t> position(std::vector<int32_t>{kTokens - 1}), first_page(std::vector<int32_t>{0});
  const DeviceArray<float> partial(kMaxSplits * kHeads * kLatent), log_sum(kMaxSplits * kHeads);
  const emulation::BankUse use = Count([&] {
    return LaunchDecodeAttention({.rows = 1,
                                  .heads = kHeads,
                                  .latent = kLatent,
                                  .scale = 0.1f,
                                  .latent_queries = {queries.get(), 0, kKeyDim},
                                  .rotated_queries = {queries.get() + kLatent, 0, kKeyDim},
                                  .pages = {.pages = reinterpret_cast<uint8_t*>(pool.get()),
                                            .list = list.get(),
                                            .page_bytes = 64 * kKeyDim * 2,
                                            .kv_dim = kKeyDim},
                                  .positions = position.get(),
                                  .first_page = first_page.get(),
                                  .partial = partial.get(),
                                  .log_sum = log_sum.get(),
                                  .out = out.get()},
                                 nullptr);
  });
  EXPECT_GE(use.accesses, 100);
  EXPECT_EQ(use.conflicts, 0);
}

}  // namespace
}  // namespace moestro::cuda
