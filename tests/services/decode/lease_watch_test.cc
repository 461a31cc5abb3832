#include "services/decode/lease_watch.h"

#include <gtest/gtest.h>

namespace moestro::decode {
namespace {

using Time = LeaseWatch::Clock::time_point;
Time At(int seconds) { return Time(std::chrono::seconds(seconds)); }

class LeaseWatchTest : public ::testing::Test {
 protected:
  LeaseWatch::Entry Watched() {
    return {watch_, At(0), [this] { return renewals_; }, [this] { ++expired_; }};
  }

  LeaseWatch watch_{std::chrono::seconds(10)};
  uint32_t renewals_ = 3;
  int expired_ = 0;
};

TEST_F(LeaseWatchTest, ExpiresOnceWhenDue) {
  const LeaseWatch::Entry entry = Watched();
  EXPECT_EQ(watch_.Expire(At(9)), 0);
  EXPECT_EQ(watch_.Expire(At(10)), 1);
  EXPECT_EQ(watch_.Expire(At(11)), 0);
  EXPECT_EQ(expired_, 1);
}

TEST_F(LeaseWatchTest, TheTimeOutBeginsAnewWithEachRenewal) {
  const LeaseWatch::Entry entry = Watched();
  renewals_ = 4;
  EXPECT_EQ(watch_.Expire(At(7)), 0);
  EXPECT_EQ(watch_.Expire(At(16)), 0);
  renewals_ = 0;  // the count has come round
  EXPECT_EQ(watch_.Expire(At(17)), 0);
  EXPECT_EQ(watch_.Expire(At(26)), 0);
  EXPECT_EQ(watch_.Expire(At(27)), 1);
  renewals_ = 5;
  EXPECT_EQ(watch_.Expire(At(28)), 0) << "it is over";
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
}  // namespace moestro::decode
