#include "services/prefill/distributed/split.h"

#include <gtest/gtest.h>

#include "common/kv/format.h"

namespace moestro::prefill {
namespace {

TEST(ZigZagSplit, EveryPositionBelongsToOneRankAndEveryBlockToo) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const int64_t begin : {0, 1, 63, 64, 200}) {
      for (const int64_t tokens : {1, 2, 63, 64, 65, 500, 1000, 4097}) {
        const ZigZagSplit split(begin, begin + tokens, ranks);
        std::vector<int> owner(static_cast<size_t>(begin + tokens), -1);
        for (int rank = 0; rank < ranks; ++rank) {
          int64_t rows = 0;
          for (const IndexRange& stripe : split.Stripes(rank)) {
            rows += stripe.size();
            for (int64_t p = stripe.begin; p < stripe.end; ++p) {
              EXPECT_EQ(owner[static_cast<size_t>(p)], -1);
              owner[static_cast<size_t>(p)] = rank;
            }
          }
          EXPECT_EQ(split.Rows(rank), rows);
          EXPECT_EQ(split.FirstRow(rank) + rows, split.FirstRow(rank + 1));
        }
        EXPECT_EQ(split.FirstRow(ranks), tokens);
        for (int64_t p = begin; p < begin + tokens; ++p) {
          EXPECT_GE(owner[static_cast<size_t>(p)], 0);
          if (p > begin && p % kv::kPageTokens != 0) {
            EXPECT_EQ(owner[static_cast<size_t>(p)], owner[static_cast<size_t>(p - 1)]);
          }
        }
      }
    }
  }
}

TEST(ZigZagSplit, VisiblePairsAreCounted) {
  const ZigZagSplit split(70, 700, 3);
  int64_t sum = 0;
  for (int rank = 0; rank < 3; ++rank) {
    int64_t pairs = 0;
    for (const IndexRange& stripe : split.Stripes(rank)) {
      for (int64_t p = stripe.begin; p < stripe.end; ++p) pairs += p + 1;
    }
    EXPECT_EQ(split.VisiblePairs(rank), pairs);
    sum += pairs;
  }
  EXPECT_EQ(sum, (71 + 700) * int64_t{630} / 2);
}

// Whole blocks are dealt out: the longer the prompt, the less one block matters.
TEST(ZigZagSplit, LongPromptsAreBalanced) {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (const int64_t tokens : {20000, 20480, 32768, 45000}) {
      EXPECT_LT(ZigZagSplit(0, tokens, ranks).Imbalance(), 1.02) << tokens << " tokens on " << ranks << " ranks";
    }
  }
  EXPECT_EQ(ZigZagSplit(0, 20480, 2).Imbalance(), 1);
}

TEST(ZigZagSplit, AsInThePapersExample) {  // Fig. 2: the first and the last of four stripes, and those between
  const ZigZagSplit split(0, 4 * kv::kPageTokens, 2);
  EXPECT_EQ(split.Stripes(0)[0], (IndexRange{0, 64}));
  EXPECT_EQ(split.Stripes(0)[1], (IndexRange{192, 256}));
  EXPECT_EQ(split.Stripes(1)[0], (IndexRange{64, 128}));
  EXPECT_EQ(split.Stripes(1)[1], (IndexRange{128, 192}));
}

}  // namespace
}  // namespace moestro::prefill
