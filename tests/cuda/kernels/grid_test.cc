// How many blocks launches have. Results do not tell: kernels whose blocks loop are right with one, and a block without
// work changes nothing.
#include <gtest/gtest.h>

#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/fp8_inputs.h"
#include "tests/cuda/emulation/machine.h"
#include "tests/cuda/kernels/numbers.h"
#include "tests/support/random_blocks.h"

namespace moestro::cuda {
namespace {

TEST(GridTest, EightSpansOfFp8InputsHaveABlock) {
  constexpr int64_t kCols = 2 * kFp8Span + 4, kSpans = 3;
  for (const int64_t rows : {1, 8, 17}) {
    const DeviceArray<uint16_t> x(RandomBf16(rows * kCols, 1));
    const DeviceArray<uint8_t> out(rows * Fp8RowBytes(kCols));
    ASSERT_TRUE(Ran(
        LaunchEncodeFp8({.x = x.get(), .x_stride = kCols, .rows = rows, .cols = kCols, .out = out.get()}, nullptr)));
    EXPECT_EQ(emulation::LastShape("encode_fp8").grid.x, (rows * kSpans + 7) / 8);
  }
}

TEST(GridTest, EachSplitOfDecodeAttentionHasABlock) {
  constexpr int64_t kRows = 2, kHeads = 3, kLatent = 64, kRope = 16, kKeyDim = kLatent + kRope, kSplits = 3;
  const DeviceArray<uint16_t> pool(RandomBf16(2 * 64 * kKeyDim, 1)), queries(RandomBf16(kRows * kHeads * kKeyDim, 2)),
      out(kRows * kHeads * kLatent);
  const DeviceArray<uint32_t> list(std::vector<uint32_t>{0, 1});
  const DeviceArray<int32_t> positions(std::vector<int32_t>{64, 127}), first_page(std::vector<int32_t>{0, 0});
  const DeviceArray<float> partial(kRows * kMaxSplits * kHeads * kLatent), log_sum(kRows * kMaxSplits * kHeads);
  ASSERT_TRUE(Ran(LaunchDecodeAttention({.rows = kRows,
                                         .heads = kHeads,
                                         .latent = kLatent,
                                         .scale = 0.1f,
                                         .latent_queries = {queries.get(), kHeads * kKeyDim, kKeyDim},
                                         .rotated_queries = {queries.get() + kLatent, kHeads * kKeyDim, kKeyDim},
                                         .splits = kSplits,
                                         .pages = {.pages = reinterpret_cast<uint8_t*>(pool.get()),
                                                   .list = list.get(),
                                                   .page_bytes = 64 * kKeyDim * 2,
                                                   .kv_dim = kKeyDim},
                                         .positions = positions.get(),
                                         .first_page = first_page.get(),
                                         .partial = partial.get(),
                                         .log_sum = log_sum.get(),
                                         .out = out.get()},
                                        nullptr)));
  const emulation::Extent3 grid = emulation::LastShape("decode_attention").grid;
  EXPECT_EQ(grid.x, 1u);
  EXPECT_EQ(grid.y, kSplits);
  EXPECT_EQ(grid.z, kRows);
  const emulation::Extent3 merge = emulation::LastShape("merge_splits").grid;
  EXPECT_EQ(merge.x, kHeads);
  EXPECT_EQ(merge.y, kRows);
}

}  // namespace
}  // namespace moestro::cuda
