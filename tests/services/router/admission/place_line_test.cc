#include "services/router/admission/place_line.h"

#include <gtest/gtest.h>

namespace moestro::router {
namespace {

using std::chrono::seconds;

class PlaceLineTest : public ::testing::Test {
 protected:
  PlaceLineTest() { line_.SetPlaces(2, now_); }
  void Enter(int count) {
    for (int i = 0; i < count; ++i) line_.Enter(now_);
  }

  RequestClock::TimePoint now_{std::chrono::hours(1)};
  PlaceLine line_;
};

TEST_F(PlaceLineTest, NobodyWaitsWhileAPlaceIsFreeOrTheirNumberUnknown) {
  Enter(1);
  now_ += seconds(10);
  EXPECT_EQ(line_.WaitSeconds(now_), 0);
  PlaceLine unknown;
  for (int i = 0; i < 9; ++i) unknown.Enter(now_);
  now_ += seconds(10);
  EXPECT_EQ(unknown.WaitSeconds(now_), 0);
}

TEST_F(PlaceLineTest, BeforeAPlaceHasBecomeFreeAllThatIsKnownIsHowLongTheyAreHeld) {
  Enter(2);
  now_ += seconds(10);
  EXPECT_DOUBLE_EQ(line_.WaitSeconds(now_), 10);
  Enter(1);  // waits
  EXPECT_DOUBLE_EQ(line_.WaitSeconds(now_), 20);
}

TEST_F(PlaceLineTest, PlacesBecomeFreeAsOftenAsTheyDid) {
  Enter(4);
  for (int i = 0; i < 100; ++i) {  // one every 3 s
    now_ += seconds(3);
    line_.Leave(true, now_);
    line_.Enter(now_);
  }
  EXPECT_NEAR(line_.WaitSeconds(now_), 9, 1e-3) << "two wait already";
  for (int i = 0; i < 30; ++i) {  // answers have become shorter
    now_ += seconds(1);
    line_.Leave(true, now_);
    line_.Enter(now_);
  }
  EXPECT_NEAR(line_.WaitSeconds(now_), 3, 0.5);
}

TEST_F(PlaceLineTest, TimeWithoutWorkCountsForNothing) {
  Enter(2);
  now_ += seconds(4);
  line_.Leave(true, now_);
  line_.Leave(true, now_);
  now_ += std::chrono::hours(9);
  Enter(2);
  EXPECT_NEAR(line_.WaitSeconds(now_), 2, 0.2) << "two places were held for 4 s each";
}

TEST_F(PlaceLineTest, WhoLeavesTheLineFreesNoPlace) {
  Enter(2);
  now_ += seconds(4);
  Enter(1);
  line_.Leave(false, now_);
  EXPECT_DOUBLE_EQ(line_.WaitSeconds(now_), 4);
  EXPECT_EQ(line_.size(), 2u);
}

}  // namespace
}  // namespace moestro::router
