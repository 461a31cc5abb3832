#include "common/base/heartbeat.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

using std::chrono::seconds;
using Time = Heartbeat::Clock::time_point;

TEST(HeartbeatTest, SilenceIsTimeWithWorkSinceTheLastBeat) {
  Heartbeat heartbeat("a loop");
  const Time start{seconds(1000)};
  EXPECT_EQ(heartbeat.Silence(start), seconds(0)) << "it has had no work yet";
  heartbeat.Beat(start);
  EXPECT_EQ(heartbeat.Silence(start + seconds(7)), seconds(7));
  heartbeat.Beat(start + seconds(7));
  EXPECT_EQ(heartbeat.Silence(start + seconds(8)), seconds(1));
  EXPECT_EQ(heartbeat.Silence(start), seconds(0)) << "beaten after who looks has read the clock";
  heartbeat.Rest();
  EXPECT_EQ(heartbeat.Silence(start + seconds(9000)), seconds(0));
}

TEST(HeartbeatTest, AScopeIsWork) {
  Heartbeat heartbeat("a loop");
  {
    const BeatingScope work(heartbeat);
    EXPECT_GT(heartbeat.Silence(Heartbeat::Clock::now() + seconds(60)), seconds(30));
  }
  EXPECT_EQ(heartbeat.Silence(Heartbeat::Clock::now() + seconds(60)), seconds(0));
}

}  // namespace
}  // namespace moestro
