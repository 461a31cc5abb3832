#include "common/device/sim/world.h"

#include <gtest/gtest.h>

#include <thread>

namespace moestro::device {
namespace {

// Ten units a second: a copy engine that takes at most 4, and four cores that could take all.
class SharedMemoryTest : public testing::Test {
 protected:
  double Use(const World::Share& user, double begin, double amount) {
    const World::Amount amounts[] = {{user, amount}};
    return world_.Take(begin, {}, amounts);
  }
  void Begin(const World::Share& user) { world_.Begin({&user, 1}); }

  World world_;
  const size_t memory_ = world_.Shared(
      10, {{.name = "copies", .requesters = 1, .rate = 4}, {.name = "cores", .requesters = 4, .rate = 10}});
  const World::Share copies_{memory_, 0}, cores_{memory_, 1};
};

TEST_F(SharedMemoryTest, AloneAUserHasItsOwnRate) {
  EXPECT_DOUBLE_EQ(Use(copies_, 1, 8), 3);
  EXPECT_DOUBLE_EQ(Use(copies_, 2, 4), 4) << "requests of a user follow one another";
  Begin(cores_);
  EXPECT_DOUBLE_EQ(Use(cores_, 4, 20), 6);
}

// Every requester gets 2 while all are active: the copies 2, the cores 8.
TEST_F(SharedMemoryTest, RequestersShareEvenlyWhileTheyAreActive) {
  Begin(cores_);
  EXPECT_DOUBLE_EQ(Use(cores_, 1, 20), 3);
  Begin(copies_);
  // 4 until 1, then 2 a second until 3, then 4 again.
  EXPECT_DOUBLE_EQ(Use(copies_, 0, 4 + 4 + 4), 4);
  Begin(cores_);
  EXPECT_DOUBLE_EQ(Use(cores_, 1, 20), 3.5) << "the copies take 2 of 10 all the time";
  Begin(copies_);
  EXPECT_DOUBLE_EQ(Use(copies_, 0, 4 + 5 + 2), 4) << "the cores are now active until 3.5";
}

// Who needs less than an even share leaves the rest to the others.
TEST_F(SharedMemoryTest, NoRateIsLost) {
  World world;
  const size_t memory =
      world.Shared(10, {{.name = "a", .requesters = 1, .rate = 1}, {.name = "b", .requesters = 1, .rate = 10}});
  const World::Amount a[] = {{{memory, 0}, 100}}, b[] = {{{memory, 1}, 90}};
  EXPECT_DOUBLE_EQ(world.Take(0, {}, a), 100);
  EXPECT_DOUBLE_EQ(world.Take(0, {}, b), 10);
}

TEST_F(SharedMemoryTest, ANewRunForgetsTheLastOne) {
  Begin(cores_);
  EXPECT_DOUBLE_EQ(Use(cores_, 0, 100), 10);
  Begin(cores_);
  EXPECT_DOUBLE_EQ(Use(cores_, 5, 10), 6);
  Begin(copies_);
  EXPECT_DOUBLE_EQ(Use(copies_, 0, 20), 5) << "nobody else is active before 5";
}

// Both run in one program, whose requests are not in the order of time: each sees what the other did in the round
// before, so a few rounds give what they take at the same time.
TEST_F(SharedMemoryTest, UsersOfOneProgramSettleInRounds) {
  const World::Share both[] = {copies_, cores_};
  double copied = 0, computed = 0;
  for (int round = 0; round < 20; ++round) {
    world_.Begin(both);
    copied = Use(copies_, 0, 8);
    computed = Use(cores_, 0, 20);
  }
  // The cores take 8 a second until 2.5, the copies 2 until then: 5. The other 3 at 4 a second, when they are alone.
  EXPECT_NEAR(computed, 2.5, 1e-9);
  EXPECT_NEAR(copied, 2.5 + 0.75, 1e-9);
}

TEST_F(SharedMemoryTest, AUserSeesOthersAtAnyTimeInAnyOrder) {
  Begin(cores_);
  EXPECT_DOUBLE_EQ(Use(cores_, 0, 10), 1);
  EXPECT_DOUBLE_EQ(Use(cores_, 5, 10), 6);
  EXPECT_DOUBLE_EQ(Use(cores_, 8, 10), 9);
  Begin(copies_);
  EXPECT_DOUBLE_EQ(Use(copies_, 5, 2), 6) << "2 a second";
  EXPECT_DOUBLE_EQ(Use(copies_, 6, 4), 7) << "alone";
  EXPECT_DOUBLE_EQ(Use(copies_, 7.5, 4), 9) << "2 until 8, then 2 a second";
}

TEST(World, TurnsAreTakenInTheOrderOfTheCalls) {
  World world;
  const size_t cpu = world.Turns("cpu"), link = world.Turns("link");
  EXPECT_EQ(world.Turns("cpu"), cpu);
  EXPECT_NE(link, cpu);
  const auto take = [&](size_t resource, double begin, double seconds) {
    const World::Turn turns[] = {{resource, seconds}};
    return world.Take(begin, turns);
  };
  EXPECT_EQ(take(cpu, 2, 3), 5);
  EXPECT_EQ(take(cpu, 0, 1), 6);
  EXPECT_EQ(take(link, 0, 1), 1);
  EXPECT_EQ(world.BusySeconds(cpu), 4);
  EXPECT_EQ(world.BusySeconds(link), 1);
}

TEST(World, WhatTakesSeveralResourcesEndsWithTheLast) {
  World world;
  const size_t a = world.Turns("a"), b = world.Turns("b");
  const size_t memory = world.Shared(10, {{.name = "only", .requesters = 1, .rate = 10}});
  const World::Turn first[] = {{a, 4}}, both[] = {{a, 1}, {b, 2}};
  const World::Amount read[] = {{{memory, 0}, 30}};
  EXPECT_EQ(world.Take(0, first), 4);
  EXPECT_EQ(world.Take(1, both), 6) << "from 4, when a is free";
  EXPECT_EQ(world.Take(0, both, read), 9) << "the memory takes longer";
  EXPECT_EQ(world.BusySeconds(b), 5);
}

TEST(World, ARunBeginsAtZeroWithFreeTurns) {
  World world;
  const size_t cpu = world.Turns("cpu");
  const World::Turn turn[] = {{cpu, 3}};
  world.AdvanceTo(world.Take(0, turn));
  EXPECT_EQ(world.Now(), 3);
  world.Begin({});
  EXPECT_EQ(world.Now(), 0);
  EXPECT_EQ(world.BusySeconds(cpu), 0);
  EXPECT_EQ(world.Take(0, turn), 3);
}

TEST(World, ThreadsHaveTimesOfTheirOwn) {
  World world, other;
  world.AdvanceTo(7);
  world.AdvanceTo(5);
  EXPECT_EQ(world.Now(), 7);
  std::thread([&] { EXPECT_EQ(world.Now(), 0); }).join();
  EXPECT_EQ(other.Now(), 0);
}

}  // namespace
}  // namespace moestro::device
