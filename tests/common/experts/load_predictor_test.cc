#include "common/experts/load_predictor.h"

#include <gtest/gtest.h>

namespace moestro::experts {
namespace {

using Rows = std::vector<int32_t>;

TEST(LoadPredictor, IsTheMovingAverageOfThePaper) {
  LoadPredictor predictor(2, 3);
  EXPECT_FALSE(predictor.Knows(1));
  predictor.Update(1, Rows{10, 0, 700});
  EXPECT_FALSE(predictor.Knows(0));
  ASSERT_TRUE(predictor.Knows(1));
  EXPECT_EQ(predictor.At(1, 2), 700) << "the first pass is the first average";
  double average = 10;
  for (const int32_t load : {20, 0, 3, 3, 3, 3}) {
    predictor.Update(1, Rows{load, 0, 700});
    average = 0.3 * load + 0.7 * average;
    EXPECT_NEAR(predictor.At(1, 0), average, average * 0x1p-9) << load;
    EXPECT_EQ(predictor.At(1, 1), 0);
  }
}

TEST(LoadPredictor, TakesTwoBytesForAnExpert) { EXPECT_EQ(LoadPredictor(60, 160).bytes(), 2 * 60 * 160); }

TEST(LoadPredictor, TheLargestPassIsNoInfinity) {
  LoadPredictor predictor(1, 1);
  for (int i = 0; i < 3; ++i) predictor.Update(0, Rows{1 << 16});
  EXPECT_EQ(predictor.At(0, 0), 65504);
}

}  // namespace
}  // namespace moestro::experts
