#include "services/decode/lease_watch.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

using Time = LeaseWatch::Clock::time_point;
Time At(int seconds) { return Time(std::chrono::seconds(seconds)); }

TEST(LeaseWatchTest, ExpiresOnceWhenDue) {
  LeaseWatch watch;
  int expired = 0;
  const LeaseWatch::Entry entry(watch, At(10), [&] { ++expired; });
  EXPECT_EQ(watch.Expire(At(9)), 0);
  EXPECT_EQ(watch.Expire(At(10)), 1);
  EXPECT_EQ(watch.Expire(At(11)), 0);
  EXPECT_EQ(expired, 1);
}

TEST(LeaseWatchTest, StartedAndEndedLeasesAreLeftAlone) {
  LeaseWatch watch;
  int expired = 0;
  LeaseWatch::Entry started(watch, At(1), [&] { ++expired; });
  started.Started();
  {
    const LeaseWatch::Entry ended(watch, At(1), [&] { ++expired; });
  }
  EXPECT_EQ(watch.Expire(At(100)), 0);
  EXPECT_EQ(expired, 0);
}

}  // namespace
}  // namespace moestro
