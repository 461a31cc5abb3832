#include "common/base/proportional_parts.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

ProportionalParts Of(const std::vector<int64_t>& shares) { return ProportionalParts(shares); }

TEST(ProportionalParts, EqualSharesAreEvenParts) {
  for (int64_t parts = 1; parts <= 8; ++parts) {
    for (const int64_t share : {1, 3, 1000}) {
      const ProportionalParts even = Of(std::vector<int64_t>(static_cast<size_t>(parts), share));
      for (int64_t count = 0; count <= 300; ++count) {
        for (int64_t part = 0; part < parts; ++part) {
          EXPECT_EQ(even.Part(count, part), EvenPart(count, part, parts));
          EXPECT_EQ(ProportionalParts::Even(parts).Part(count, part), EvenPart(count, part, parts));
        }
        for (int64_t i = 0; i < count; ++i) EXPECT_EQ(even.PartOf(i, count), EvenPartOf(i, count, parts));
      }
    }
  }
}

TEST(ProportionalParts, CoverEveryIndexOnceInOrderInProportion) {
  for (const std::vector<int64_t>& shares :
       {std::vector<int64_t>{3, 2}, {2, 3}, {1, 1000}, {5, 1, 1}, {1, 7, 2, 1, 9}, {1000, 1, 999, 1, 1, 1, 1, 500}}) {
    const ProportionalParts cut = Of(shares);
    ASSERT_EQ(cut.parts(), std::ssize(shares));
    for (int64_t count = 0; count <= 300; ++count) {
      int64_t end = 0;
      for (int64_t part = 0; part < cut.parts(); ++part) {
        const IndexRange range = cut.Part(count, part);
        EXPECT_EQ(range.begin, end);
        EXPECT_EQ(cut.share(part), shares[static_cast<size_t>(part)]);
        EXPECT_GE(range.size(), count * cut.share(part) / cut.total());
        EXPECT_LE(range.size(), CeilDiv(count * cut.share(part), cut.total()));
        for (int64_t i = range.begin; i < range.end; ++i) EXPECT_EQ(cut.PartOf(i, count), part);
        end = range.end;
      }
      EXPECT_EQ(end, count);
    }
  }
}

TEST(ProportionalParts, OnePartIsAll) {
  EXPECT_EQ(ProportionalParts().parts(), 1);
  EXPECT_EQ(ProportionalParts().Part(7, 0), (IndexRange{0, 7}));
  EXPECT_EQ(ProportionalParts().PartOf(6, 7), 0);
}

TEST(ProportionalParts, AsTheRuleSays) {
  const ProportionalParts cut = Of({3, 2});
  EXPECT_EQ(cut.Part(256, 0), (IndexRange{0, 153}));
  EXPECT_EQ(cut.Part(256, 1), (IndexRange{153, 256}));
}

}  // namespace
}  // namespace moestro
