#include "services/decode/pool_grower.h"

#include <gtest/gtest.h>

#include "tests/common/kv/kv_fixture.h"

namespace moestro::decode {
namespace {

using testing::KvPoolTest;

constexpr int64_t kPlenty = int64_t{1} << 40;

PoolGrower::Options WithSpare(const int64_t& bytes) {
  return {.free_pages = 2, .spare_bytes = [&] { return bytes; }};
}

TEST_F(KvPoolTest, GrowsAheadOfWhatIsInUse) {
  const auto pool = MakePool(20, 8, {.first_pages = 2});
  const PoolGrower::Options options = WithSpare(kPlenty);
  EXPECT_FALSE(PoolGrower::Step(*pool, options)) << "two are free";
  const KvLease a = pool->Reserve({.capacity = 4}).value();
  EXPECT_TRUE(PoolGrower::Step(*pool, options));
  EXPECT_EQ(pool->stats().total_pages, 3);
  EXPECT_FALSE(pool->Reserve({.capacity = 10 * 4}).ok()) << "eight pages are lacking";
  EXPECT_TRUE(PoolGrower::Step(*pool, options));
  EXPECT_EQ(pool->stats().total_pages, 11);
  const KvLease b = pool->Reserve({.capacity = 10 * 4}).value();
  EXPECT_TRUE(PoolGrower::Step(*pool, options));
  EXPECT_EQ(pool->stats().total_pages, 13);
  EXPECT_FALSE(PoolGrower::Step(*pool, options));
}

TEST_F(KvPoolTest, WithoutMemoryThePoolKeepsToWhatItHas) {
  const auto pool = MakePool(20, 8, {.first_pages = 2});
  int64_t spare = pool->geometry().page_bytes() - 1;
  const PoolGrower::Options options = WithSpare(spare);
  const KvLease a = pool->Reserve({.capacity = 8}).value();
  EXPECT_FALSE(PoolGrower::Step(*pool, options));
  EXPECT_EQ(pool->most_tokens(), 8);
  EXPECT_EQ(pool->Reserve({.capacity = 12}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(PoolGrower::Step(*pool, options));
  spare = pool->geometry().page_bytes();
  EXPECT_TRUE(PoolGrower::Step(*pool, options)) << "one page at least";
  EXPECT_EQ(pool->stats().total_pages, 3);
  EXPECT_EQ(pool->most_tokens(), 80);
}

// Requests that are too large for it are refused, so none of them asks for memory.
TEST_F(KvPoolTest, APoolThatKeptToWhatItHadGrowsAgain) {
  const auto pool = MakePool(20, 8, {.first_pages = 2});
  int64_t spare = 0;
  const PoolGrower::Options options = WithSpare(spare);
  const KvLease a = pool->Reserve({.capacity = 4}).value();
  EXPECT_FALSE(PoolGrower::Step(*pool, options));
  pool->Release(a);
  EXPECT_EQ(pool->most_tokens(), 8);
  EXPECT_FALSE(PoolGrower::Step(*pool, options));
  spare = kPlenty;
  EXPECT_TRUE(PoolGrower::Step(*pool, options)) << "though as many are free as should be";
  EXPECT_EQ(pool->most_tokens(), 80);
}

// Without asking again: whoever waits does so with pauses.
TEST_F(KvPoolTest, GrowsUntilNothingIsLacking) {
  kv::KvGeometry geometry = testing::SmallGeometry(100, 8);
  geometry.num_layers = int64_t{1} << 18;  // 32 MiB a page: two at a time
  const auto pool =
      kv::KvPool::Create(name_, testing::kEpoch, {testing::kFingerprint}, geometry, {.first_pages = 1}).value();
  EXPECT_FALSE(pool->Reserve({.capacity = 6 * 4}).ok());
  int64_t steps = 0;
  while (PoolGrower::Step(*pool, {.free_pages = 1, .spare_bytes = [] { return kPlenty; }})) ++steps;
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(pool->stats().total_pages, 6);
}

TEST_F(KvPoolTest, TheThreadServesReservationsThatWait) {
  const auto pool = MakePool(200, 8, {.first_pages = 1});
  const PoolGrower grower(*pool, WithSpare(kPlenty));
  absl::StatusOr<KvLease> lease = pool->Reserve({.capacity = 150 * 4});
  while (!lease.ok()) lease = pool->Reserve({.capacity = 150 * 4});
  EXPECT_EQ(lease->pages.size(), 150u);
}

// The thread sleeps in between, so a pool must tell each time that it is short.
TEST_F(KvPoolTest, ThePoolTellsWhenFewPagesAreFree) {
  const auto pool = MakePool(8, 8, {.first_pages = 4});
  int told = 0;
  pool->NotifyWhenShort(2, [&] { ++told; });
  EXPECT_EQ(told, 0) << "four are free";
  const KvLease two = pool->Reserve({.capacity = 2 * 4}).value();
  EXPECT_EQ(told, 0) << "as many as asked for";
  KvLease third = pool->Reserve({.capacity = 4}).value();
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(pool->Extend(2).ok());
  EXPECT_FALSE(pool->Grow(third, 5 * 4).ok()) << "one page is lacking";
  EXPECT_EQ(told, 2);
  EXPECT_TRUE(pool->Extend(2).ok());
  EXPECT_TRUE(pool->Grow(third, 5 * 4).ok());
  EXPECT_EQ(told, 2) << "all pages have memory";
}

TEST_F(KvPoolTest, APoolThatIsShortTellsAtOnce) {
  const auto pool = MakePool(8, 8, {.first_pages = 1});
  int told = 0;
  pool->NotifyWhenShort(2, [&] { ++told; });
  EXPECT_EQ(told, 1);
  pool->NotifyWhenShort(0, nullptr);
  EXPECT_FALSE(pool->Reserve({.capacity = 8}).ok());
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace moestro::decode
