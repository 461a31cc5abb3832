#include "services/router/access/token_bucket.h"

#include <gtest/gtest.h>

namespace moestro::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr RequestClock::TimePoint kStart{seconds(1000)};

TEST(TokenBucketTest, BeginsFullAndFillsAtItsRate) {
  TokenBucket bucket({.per_minute = 60, .burst = 10}, kStart);
  EXPECT_FALSE(bucket.Take(10, kStart));
  EXPECT_EQ(bucket.Take(1, kStart), seconds(1));
  EXPECT_EQ(bucket.Take(4, kStart + milliseconds(500)), milliseconds(3500));
  EXPECT_FALSE(bucket.Take(4, kStart + seconds(4)));
  EXPECT_TRUE(bucket.Take(1, kStart + seconds(4)));
}

TEST(TokenBucketTest, ARefusalTakesNothing) {
  TokenBucket bucket({.per_minute = 60, .burst = 10}, kStart);
  EXPECT_FALSE(bucket.Take(8, kStart));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(bucket.Take(3, kStart), seconds(1));
  EXPECT_FALSE(bucket.Take(2, kStart));
}

TEST(TokenBucketTest, NeverHoldsMoreThanItsBurst) {
  TokenBucket bucket({.per_minute = 60, .burst = 10}, kStart);
  EXPECT_FALSE(bucket.Take(10, kStart + seconds(3600)));
  EXPECT_TRUE(bucket.Take(1, kStart + seconds(3600)));
  bucket.PutBack(50, kStart + seconds(3600));
  EXPECT_FALSE(bucket.Take(10, kStart + seconds(3600)));
  EXPECT_TRUE(bucket.Take(1, kStart + seconds(3600)));
}

TEST(TokenBucketTest, WhatIsPutBackCanBeTaken) {
  TokenBucket bucket({.per_minute = 60, .burst = 10}, kStart);
  EXPECT_FALSE(bucket.Take(10, kStart));
  bucket.PutBack(6, kStart);
  EXPECT_FALSE(bucket.Take(6, kStart));
  EXPECT_TRUE(bucket.Take(1, kStart));
}

TEST(TokenBucketTest, OwesWhatIsTakenBeyondWhatItHolds) {
  TokenBucket bucket({.per_minute = 60, .burst = 10}, kStart);
  bucket.Charge(25, kStart);
  EXPECT_EQ(bucket.Take(10, kStart), seconds(25));
  bucket.PutBack(5, kStart);
  EXPECT_EQ(bucket.Take(1, kStart + seconds(5)), seconds(6));
  EXPECT_FALSE(bucket.Take(10, kStart + seconds(20)));
}

TEST(TokenBucketTest, NewLimitsKeepWhatIsUsedUp) {
  TokenBucket bucket({.per_minute = 60, .burst = 10}, kStart);
  EXPECT_FALSE(bucket.Take(9, kStart));
  bucket.SetLimits({.per_minute = 120, .burst = 100}, kStart);
  EXPECT_EQ(bucket.Take(2, kStart), milliseconds(500));
  bucket.SetLimits({.per_minute = 120, .burst = 5}, kStart + seconds(60));
  EXPECT_FALSE(bucket.Take(5, kStart + seconds(60)));
  EXPECT_TRUE(bucket.Take(1, kStart + seconds(60)));
}

}  // namespace
}  // namespace moestro::router
