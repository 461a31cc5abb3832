#include "common/base/math.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(EvenPart, CoversEveryIndexOnceInOrderWithEvenSizes) {
  for (int64_t parts = 1; parts <= 7; ++parts) {
    for (int64_t count = 0; count <= 40; ++count) {
      int64_t end = 0;
      for (int64_t part = 0; part < parts; ++part) {
        const IndexRange range = EvenPart(count, part, parts);
        EXPECT_EQ(range.begin, end);
        EXPECT_GE(range.size(), count / parts);
        EXPECT_LE(range.size(), CeilDiv(count, parts));
        for (int64_t i = range.begin; i < range.end; ++i) EXPECT_EQ(EvenPartOf(i, count, parts), part);
        end = range.end;
      }
      EXPECT_EQ(end, count);
    }
  }
}

}  // namespace
}  // namespace moestro
