#include "common/telemetry/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace moestro {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(QuantileTest, IsLinearWithinABucket) {
  const HistogramCounts counts{.at_most = {{1, 4}, {2, 8}, {4, 8}, {8, 10}, {kInfinity, 10}}};
  EXPECT_DOUBLE_EQ(*Quantile(counts, 0.2), 0.5);
  EXPECT_DOUBLE_EQ(*Quantile(counts, 0.4), 1);
  EXPECT_DOUBLE_EQ(*Quantile(counts, 0.5), 1.25);
  EXPECT_DOUBLE_EQ(*Quantile(counts, 0.8), 2);
  EXPECT_DOUBLE_EQ(*Quantile(counts, 0.9), 6);  // an empty bucket lies between
  EXPECT_DOUBLE_EQ(*Quantile(counts, 1), 8);
}

TEST(QuantileTest, AboveAllBoundsIsTheLargest) {
  const HistogramCounts counts{.at_most = {{1, 1}, {2, 1}, {kInfinity, 4}}};
  EXPECT_DOUBLE_EQ(*Quantile(counts, 0.9), 2);
}

TEST(QuantileTest, NothingWithoutObservations) {
  EXPECT_FALSE(Quantile({}, 0.5).has_value());
  EXPECT_FALSE(Quantile({.at_most = {{1, 0}, {kInfinity, 0}}}, 0.5).has_value());
}

TEST(SinceTest, IsTheDifference) {
  const HistogramCounts before{.at_most = {{1, 2}, {kInfinity, 3}}};
  const HistogramCounts now{.at_most = {{1, 2}, {kInfinity, 5}}};
  EXPECT_THAT(Since(now, before).at_most, ElementsAre(Pair(1, 0), Pair(kInfinity, 2)));
  EXPECT_THAT(Since(now, {}).at_most, ElementsAre(Pair(1, 2), Pair(kInfinity, 5)));
}

TEST(SinceTest, ARestartBeginsAnew) {
  const HistogramCounts before{.at_most = {{1, 2}, {kInfinity, 9}}};
  const HistogramCounts now{.at_most = {{1, 2}, {kInfinity, 4}}};
  EXPECT_EQ(Since(now, before).at_most, now.at_most);
}

}  // namespace
}  // namespace moestro
