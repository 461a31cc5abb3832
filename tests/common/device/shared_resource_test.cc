#include "common/device/sim/shared_resource.h"

#include <gtest/gtest.h>

namespace moestro::device {
namespace {

// Ten units a second: a copy engine that takes at most 4, and four cores that could take all.
SharedResource Memory() {
  return SharedResource(
      10, {{.name = "copies", .requesters = 1, .rate = 4}, {.name = "cores", .requesters = 4, .rate = 10}});
}
constexpr size_t kCopies = 0, kCores = 1;

TEST(SharedResource, AloneAUserHasItsOwnRate) {
  SharedResource memory = Memory();
  EXPECT_DOUBLE_EQ(memory.Use(kCopies, 1, 8), 3);
  EXPECT_DOUBLE_EQ(memory.Use(kCopies, 2, 4), 4) << "requests of a user follow one another";
  SharedResource other = Memory();
  EXPECT_DOUBLE_EQ(other.Use(kCores, 0, 20), 2);
}

// Every requester gets 2 while all are active: the copies 2, the cores 8.
TEST(SharedResource, RequestersShareEvenlyWhileTheyAreActive) {
  SharedResource memory = Memory();
  memory.Begin(kCores);
  EXPECT_DOUBLE_EQ(memory.Use(kCores, 1, 20), 3);
  memory.Begin(kCopies);
  // 4 until 1, then 2 a second until 3, then 4 again.
  EXPECT_DOUBLE_EQ(memory.Use(kCopies, 0, 4 + 4 + 4), 4);
  memory.Begin(kCores);
  EXPECT_DOUBLE_EQ(memory.Use(kCores, 1, 20), 3.5) << "the copies take 2 of 10 all the time";
  memory.Begin(kCopies);
  EXPECT_DOUBLE_EQ(memory.Use(kCopies, 0, 4 + 5 + 2), 4) << "the cores are now active until 3.5";
}

// Who needs less than an even share leaves the rest to the others.
TEST(SharedResource, NoRateIsLost) {
  SharedResource memory(10, {{.name = "a", .requesters = 1, .rate = 1}, {.name = "b", .requesters = 1, .rate = 10}});
  memory.Begin(0);
  EXPECT_DOUBLE_EQ(memory.Use(0, 0, 100), 100);
  memory.Begin(1);
  EXPECT_DOUBLE_EQ(memory.Use(1, 0, 90), 10);
}

TEST(SharedResource, ANewRunForgetsTheLastOne) {
  SharedResource memory = Memory();
  memory.Begin(kCores);
  EXPECT_DOUBLE_EQ(memory.Use(kCores, 0, 100), 10);
  memory.Begin(kCores);
  EXPECT_DOUBLE_EQ(memory.Use(kCores, 5, 10), 6);
  memory.Begin(kCopies);
  EXPECT_DOUBLE_EQ(memory.Use(kCopies, 0, 20), 5) << "nobody else is active before 5";
}

}  // namespace
}  // namespace moestro::device
