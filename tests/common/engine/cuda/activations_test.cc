#include "common/engine/cuda/activations.h"

#include <gtest/gtest.h>

#include "tests/support/synthetic_segment.h"

namespace moestro::engine {
namespace {

CudaSizes WithTiles(CudaSizes sizes, int64_t most_tile_rows) {
  sizes.most_tile_rows = most_tile_rows;
  return sizes;
}

// Of a pass, and of a share whose experts get rows of other ranks, too: tiles double as long as they fit, up to all
// rows that experts get.
TEST(CudaActivations, TilesAreAsLongAsTheSpareMemoryAllows) {
  const weights::ModelSpec spec = SmallSpec();
  CudaSizes share = CudaSizes::OfPass(6000);
  share.use = CudaUse::kShare;
  share.expert_rows = 10000;
  for (const CudaSizes& least : {CudaSizes::OfPass(10000), share}) {
    const auto tile_rows = [&](int64_t spare_bytes) {
      const CudaSizes sizes = CudaActivations::WithSpare(spec, least, /*earlier_tokens=*/0, spare_bytes);
      EXPECT_LE(CudaActivations::Bytes(spec, sizes), CudaActivations::Bytes(spec, least) + spare_bytes);
      return CudaActivations::TileRows(sizes);
    };
    const int64_t more = CudaActivations::Bytes(spec, WithTiles(least, 2 * kCudaTileRows)) -
                         CudaActivations::Bytes(spec, WithTiles(least, kCudaTileRows));
    ASSERT_GT(more, 0);
    EXPECT_EQ(tile_rows(0), kCudaTileRows);
    EXPECT_EQ(tile_rows(more - 1), kCudaTileRows);
    EXPECT_EQ(tile_rows(more), 2 * kCudaTileRows);
    EXPECT_EQ(tile_rows(int64_t{1} << 40), 10000);
  }
}

TEST(CudaActivations, TokensBeforeAPassComeBeforeLongerTiles) {
  const weights::ModelSpec spec = SmallSpec();
  const CudaSizes least = CudaSizes::OfPass(10000);
  CudaSizes with_earlier = least;
  with_earlier.earlier_tokens = 50000;
  const int64_t needed = CudaActivations::Bytes(spec, with_earlier) - CudaActivations::Bytes(spec, least);
  const CudaSizes sizes = CudaActivations::WithSpare(spec, least, 50000, needed);
  EXPECT_EQ(sizes.earlier_tokens, 50000);
  EXPECT_EQ(sizes.most_tile_rows, kCudaTileRows);
  EXPECT_EQ(CudaActivations::WithSpare(spec, least, 50000, needed - 1).earlier_tokens, 0);
}

}  // namespace
}  // namespace moestro::engine
