#include "services/prefill/distributed/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/kv/format.h"
#include "services/prefill/distributed/expert_exchange.h"

namespace moestro::prefill {
namespace {

ProportionalParts Parts(const std::vector<int64_t>& shares) { return ProportionalParts(shares); }

const std::vector<std::vector<int64_t>> kShares = {{1},    {1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1, 1},
                                                   {3, 2}, {1, 3}, {5, 2, 1}, {1, 1000},    {2, 1, 7, 3}};

TEST(ZigZagSplit, EveryPositionBelongsToOneRankAndEveryBlockToo) {
  for (const std::vector<int64_t>& shares : kShares) {
    const auto ranks = static_cast<int>(shares.size());
    for (const int64_t begin : {0, 1, 63, 64, 200}) {
      for (const int64_t tokens : {1, 2, 63, 64, 65, 500, 1000, 4097}) {
        const ZigZagSplit split(begin, begin + tokens, Parts(shares));
        EXPECT_EQ(split.ranks(), ranks);
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
  const ZigZagSplit split(70, 700, Parts({3, 1, 2}));
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
      EXPECT_LT(ZigZagSplit(0, tokens, ProportionalParts::Even(ranks)).Imbalance(), 1.02)
          << tokens << " tokens on " << ranks << " ranks";
    }
  }
  EXPECT_EQ(ZigZagSplit(0, 20480, ProportionalParts::Even(2)).Imbalance(), 1);
}

// Rows and what they see are in proportion to the shares, whatever is cached. A block of a stripe of 40 is 2.5 %.
TEST(ZigZagSplit, ARanksWorkIsInProportionToItsShare) {
  for (const std::vector<int64_t>& shares : {std::vector<int64_t>{3, 2}, {2, 3}, {10, 7, 4}, {1, 2, 4, 1}}) {
    for (const int64_t begin : {0, 20000}) {
      const ZigZagSplit split(begin, begin + 40960, Parts(shares));
      const auto fraction = [&](int64_t part, int64_t of) {
        return static_cast<double>(part) / static_cast<double>(of);
      };
      const ZigZagSplit whole(begin, begin + 40960, ProportionalParts());
      for (int rank = 0; rank < split.ranks(); ++rank) {
        const double expected = fraction(split.parts().share(rank), split.parts().total());
        EXPECT_NEAR(fraction(split.Rows(rank), split.tokens()) / expected, 1, 0.025);
        EXPECT_NEAR(fraction(split.VisiblePairs(rank), whole.VisiblePairs(0)) / expected, 1, 0.025);
      }
      EXPECT_LT(split.Imbalance(), 1.025);
    }
  }
}

// What a share gets does not depend on how shares are written, and equal ones give the cut of even parts.
TEST(ZigZagSplit, EqualSharesAreTheEvenCut) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const int64_t begin : {0, 1, 64, 200}) {
      for (const int64_t tokens : {1, 65, 500, 1000, 4097}) {
        const IndexRange blocks = BlocksOf({begin, begin + tokens});
        const ZigZagSplit split(begin, begin + tokens, Parts(std::vector<int64_t>(static_cast<size_t>(ranks), 7)));
        for (int rank = 0; rank < ranks; ++rank) {
          const int64_t stripes[] = {rank, 2 * ranks - 1 - rank};
          for (size_t i = 0; i < 2; ++i) {
            const IndexRange part = EvenPart(blocks.size(), stripes[i], int64_t{2} * ranks);
            IndexRange expected;
            if (part.size() > 0) {
              expected = {std::max(begin, (blocks.begin + part.begin) * kv::kPageTokens),
                          std::min(begin + tokens, (blocks.begin + part.end) * kv::kPageTokens)};
            }
            EXPECT_EQ(split.Stripes(rank)[i], expected);
          }
        }
      }
    }
  }
}

TEST(ZigZagSplit, AsInThePapersExample) {  // Fig. 2: the first and the last of four stripes, and those between
  const ZigZagSplit split(0, 4 * kv::kPageTokens, ProportionalParts::Even(2));
  EXPECT_EQ(split.Stripes(0)[0], (IndexRange{0, 64}));
  EXPECT_EQ(split.Stripes(0)[1], (IndexRange{192, 256}));
  EXPECT_EQ(split.Stripes(1)[0], (IndexRange{64, 128}));
  EXPECT_EQ(split.Stripes(1)[1], (IndexRange{128, 192}));
}

TEST(ZigZagSplit, StripesOfUnequalShares) {
  const ZigZagSplit split(0, 8 * kv::kPageTokens, Parts({3, 1}));
  EXPECT_EQ(split.Stripes(0)[0], (IndexRange{0, 192}));
  EXPECT_EQ(split.Stripes(1)[0], (IndexRange{192, 256}));
  EXPECT_EQ(split.Stripes(1)[1], (IndexRange{256, 320}));
  EXPECT_EQ(split.Stripes(0)[1], (IndexRange{320, 512}));
}

// So a small device expands no more of the context at once than it has itself; equal ones all of the largest part.
TEST(RankRun, AttendsToAsMuchAtOnceAsItsShareAllows) {
  const auto part_tokens = [](const std::vector<int64_t>& shares, int rank) {
    const ZigZagSplit split(0, 20 * kv::kPageTokens, Parts(shares));
    return RankRun{.split = &split, .rank = rank, .rows = {}}.share().part_tokens;
  };
  EXPECT_EQ(part_tokens({4, 1}, 0), 16 * kv::kPageTokens);
  EXPECT_EQ(part_tokens({4, 1}, 1), 4 * kv::kPageTokens);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(part_tokens({1, 1, 1}, rank), 7 * kv::kPageTokens);
  EXPECT_EQ(part_tokens({1, 1000}, 0), kv::kPageTokens) << "a rank without rows";
}

}  // namespace
}  // namespace moestro::prefill
