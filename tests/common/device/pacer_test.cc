#include "common/device/host/pacer.h"

#include <gtest/gtest.h>

#include "tests/common/device/fake_clock.h"

namespace moestro::device {
namespace {

TEST(Pacer, LatenessDoesNotAddUp) {
  FakeClock clock;
  Pacer pacer(clock);
  clock.set_late(0.0003);
  for (int i = 1; i <= 50; ++i) {
    pacer.SleepFrom(clock.Now(), 0.002);
    EXPECT_NEAR(clock.Now(), 100 + 0.002 * i + 0.0003, 1e-9);
  }
}

// Idle time in between, however short, earns no credit.
TEST(Pacer, IdleTimeIsNotMadeUpFor) {
  const FakeClock clock;
  Pacer pacer(clock);
  pacer.SleepFrom(clock.Now(), 0.002);
  clock.SleepUntil(100.0028);
  pacer.SleepFrom(clock.Now(), 0.002);
  EXPECT_NEAR(clock.Now(), 100.0048, 1e-9);
}

TEST(Pacer, WorkThatTakesLongerIsNotMadeUpForEither) {
  const FakeClock clock;
  Pacer pacer(clock);
  const double begin = clock.Now();
  clock.SleepUntil(begin + 5);  // the work
  pacer.SleepFrom(begin, 0.5);
  EXPECT_NEAR(clock.Now(), begin + 5, 1e-9);
  pacer.SleepFrom(clock.Now(), 0.5);
  EXPECT_NEAR(clock.Now(), begin + 5.5, 0.0011);
}

}  // namespace
}  // namespace moestro::device
