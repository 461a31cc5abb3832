#include "common/engine/sim/sim_rank_kernels.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/roofline/shapes.h"
#include "tests/support/synthetic_segment.h"

namespace moestro::engine {
namespace {

constexpr int64_t kOwn = 10000, kAll = 2 * kOwn;

class SimRankKernelsTest : public testing::Test {
 protected:
  // What a launch of two experts costs when so many rows, or pairs, have been sorted, on a rank of two.
  device::KernelCost Experts(int64_t sorted, bool pairs, int64_t spare_bytes, const CostOptions& costs = {}) {
    const std::vector<model::EngineRow> rows(kOwn);
    RankShare share;
    share.rows = rows;
    share.stripes = {{{0, kOwn}, {}}};
    share.end = kAll;
    share.part_tokens = RoundUp(kOwn, kv::kPageTokens);
    share.rank_rows = {kOwn, kOwn};
    share.spare_bytes = spare_bytes;
    SimRankKernels kernels(spec_, weights_, costs);
    EXPECT_TRUE(kernels.Begin(share).ok());
    if (pairs) {
      (void)kernels.SortPairs(std::vector<int32_t>(static_cast<size_t>(sorted)));
    } else {
      const std::vector<model::ExpertChoice> choices(static_cast<size_t>(sorted * spec_.experts_per_token));
      (void)kernels.Sort(choices, spec_.experts_per_token);
    }
    const Module module{.layer = 2, .image = {}};
    const std::vector<StagedModule> experts(2, {.module = &module});
    return kernels.Experts(experts, nullptr, nullptr).cost;
  }

  const weights::ModelSpec spec_ = SmallSpec();
  const model::ModelWeights weights_ = roofline::ShapesOnly(spec_, DType::kF8E4M3);
};

// The rows that were sorted last are cut, those of the rank alone or all: each tile has launches and weights of its
// own.
TEST_F(SimRankKernelsTest, TilesAreOfTheRowsThatWereSorted) {
  const int64_t per_tile = Experts(100, false, 0).kernels;
  EXPECT_EQ(Experts(kCudaTileRows, false, 0).kernels, per_tile);
  EXPECT_EQ(Experts(kOwn, false, 0).kernels, 3 * per_tile);
  EXPECT_EQ(Experts(kAll, false, 0).kernels, 5 * per_tile);
  EXPECT_DOUBLE_EQ(Experts(kAll, false, 0).bf16_depth, 5 * Experts(100, false, 0).bf16_depth);
  EXPECT_EQ(Experts(kOwn, false, 0, {.cuts_rows = false}).kernels, per_tile);
  // As many pairs as the choices of such a tile.
  const int64_t tile_pairs = kCudaTileRows * spec_.experts_per_token;
  EXPECT_EQ(Experts(tile_pairs, true, 0).kernels, per_tile);
  EXPECT_EQ(Experts(tile_pairs + 1, true, 0).kernels, 2 * per_tile);
}

TEST_F(SimRankKernelsTest, SpareMemoryMakesTilesLonger) {
  const device::KernelCost few = Experts(kAll, false, int64_t{1} << 40), many = Experts(kAll, false, 0);
  EXPECT_EQ(many.kernels, 5 * few.kernels);
  EXPECT_GT(many.memory_bytes, few.memory_bytes);
  EXPECT_EQ(many.bf16_flops, few.bf16_flops);
}

}  // namespace
}  // namespace moestro::engine
