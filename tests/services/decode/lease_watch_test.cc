#include "services/decode/lease_watch.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

using Time = LeaseWatch::Clock::time_point;
Time At(int seconds) { return Time(std::chrono::seconds(seconds)); }

class LeaseWatchTest : public testing::Test {
 protected:
  LeaseWatch::Entry Watched() {
    return {watch_, At(0), [this] { return valid_tokens_; }, [this] { ++expired_; }};
  }

  LeaseWatch watch_{std::chrono::seconds(10)};
  int64_t valid_tokens_ = 3;
  int expired_ = 0;
};

TEST_F(LeaseWatchTest, ExpiresOnceWhenDue) {
  const LeaseWatch::Entry entry = Watched();
  EXPECT_EQ(watch_.Expire(At(9)), 0);
  EXPECT_EQ(watch_.Expire(At(10)), 1);
  EXPECT_EQ(watch_.Expire(At(11)), 0);
  EXPECT_EQ(expired_, 1);
}

TEST_F(LeaseWatchTest, LeasesThatFillHaveAsMuchTimeAgain) {
  const LeaseWatch::Entry entry = Watched();
  valid_tokens_ = 4;
  EXPECT_EQ(watch_.Expire(At(12)), 0);
  EXPECT_EQ(watch_.Expire(At(21)), 0);
  EXPECT_EQ(watch_.Expire(At(22)), 1);
  EXPECT_EQ(expired_, 1);
}

TEST_F(LeaseWatchTest, StartedAndEndedLeasesAreLeftAlone) {
  LeaseWatch::Entry started = Watched();
  started.Started();
  { const LeaseWatch::Entry ended = Watched(); }
  EXPECT_EQ(watch_.Expire(At(100)), 0);
  EXPECT_EQ(expired_, 0);
}

}  // namespace
}  // namespace moestro
