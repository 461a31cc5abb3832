#include "common/kv/pool.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/common/kv/kv_fixture.h"

namespace moestro::kv {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ExpectPages;
using ::testing::HasSubstr;
using testing::kEpoch;
using testing::kFingerprint;
using testing::KvPoolTest;
using testing::SmallGeometry;
using testing::TestName;

TEST_F(KvPoolTest, LowestFreePagesFirst) {
  const auto pool = MakePool(8, 4);
  const KvLease a = pool->Reserve({.capacity = 1}).value();
  const KvLease b = pool->Reserve({.capacity = 9}).value();
  const KvLease c = pool->Reserve({.capacity = 4}).value();
  EXPECT_THAT(a.pages, ElementsAre(0));
  EXPECT_THAT(b.pages, ElementsAre(1, 2, 3));
  EXPECT_THAT(c.pages, ElementsAre(4));
  ExpectPages(*pool, 5, 0);
  pool->Release(c);
  pool->Release(a);
  const KvLease d = pool->Reserve({.capacity = 10}).value();
  EXPECT_THAT(d.pages, ElementsAre(0, 4, 5));
  EXPECT_EQ(d.slot, a.slot);
  EXPECT_EQ(pool->stats().leases, 2);
}

// 16 pages a turn; pages 0 to 19 are domain 0's, 20 to 39 domain 1's.
TEST_F(KvPoolTest, SplitsTakeTurnsBetweenDomains) {
  const auto pool = MakePool(40, 4, {.domains = std::vector<NumaDomain>(2)});
  KvLease lease = pool->Reserve({.capacity = 18 * 4}).value();
  std::vector<uint32_t> expected(18);
  std::iota(expected.begin(), expected.begin() + 16, 0u);
  std::iota(expected.begin() + 16, expected.end(), 20u);
  EXPECT_EQ(lease.pages, expected);
  // Growing goes on at the lease's block; then domain 0 has no pages left, and domain 1 helps out.
  ASSERT_TRUE(pool->Grow(lease, 38 * 4).ok());
  for (uint32_t page = 22; page < 36; ++page) expected.push_back(page);
  for (const uint32_t page : {16, 17, 18, 19, 36, 37}) expected.push_back(page);
  EXPECT_EQ(lease.pages, expected);
  ExpectPages(*pool, 38, 0);
  pool->Release(lease);
  EXPECT_EQ(pool->Reserve({.capacity = 18 * 4}).value().pages, std::vector(expected.begin(), expected.begin() + 18));
}

TEST_F(KvPoolTest, AllOrNothing) {
  const auto pool = MakePool(4, 4);
  const KvLease lease = pool->Reserve({.capacity = 12}).value();
  const absl::Status status = pool->Reserve({.capacity = 5}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 pages needed, 1 of 4 free and 0 to be evicted (0 draining)"));
  ExpectPages(*pool, 3, 0);
  EXPECT_TRUE(pool->Reserve({.capacity = 4}).ok());
}

TEST_F(KvPoolTest, SlotsRunOut) {
  const auto pool = MakePool(4, 2);
  const KvLease a = pool->Reserve({.capacity = 1}).value();
  const KvLease b = pool->Reserve({.capacity = 1}).value();
  EXPECT_EQ(pool->Reserve({.capacity = 1}).status().code(), absl::StatusCode::kResourceExhausted);
  ExpectPages(*pool, 2, 0);
  pool->Release(a);
  EXPECT_TRUE(pool->Reserve({.capacity = 1}).ok());
}

TEST_F(KvPoolTest, RejectsWhatCouldNeverFit) {
  const auto pool = MakePool(4, 2);
  for (const int64_t tokens : {int64_t{0}, int64_t{-1}, int64_t{17}, std::numeric_limits<int64_t>::max(),
                               std::numeric_limits<int64_t>::min() + 1}) {
    EXPECT_EQ(pool->Reserve({.capacity = tokens}).status().code(), absl::StatusCode::kInvalidArgument) << tokens;
  }
  EXPECT_TRUE(pool->Reserve({.capacity = 16}).ok());
}

TEST_F(KvPoolTest, ReleaseTwiceOrLateDoesNothing) {
  const auto pool = MakePool(4, 2);
  const KvLease a = pool->Reserve({.capacity = 4}).value();
  pool->Release(a);
  pool->Release(a);
  ExpectPages(*pool, 0, 0);
  const KvLease b = pool->Reserve({.capacity = 8}).value();  // the same slot again
  ASSERT_EQ(b.slot, a.slot);
  pool->Release(a);
  pool->Release(KvLease{});
  pool->Release(KvLease{.slot = 99, .id = b.id, .pages = {}});
  ExpectPages(*pool, 2, 0);
}

TEST_F(KvPoolTest, LeaseIdsAreNeverReused) {
  std::set<uint64_t> ids = {0};
  for (const uint64_t epoch : {uint64_t{0}, uint64_t{1}, uint64_t{2}, ~uint64_t{0}}) {
    const auto pool = KvPool::Create(name_, epoch, {kFingerprint}, SmallGeometry(2, 1)).value();
    EXPECT_EQ(pool->epoch(), epoch);
    for (int i = 0; i < 100; ++i) {
      const KvLease lease = pool->Reserve({.capacity = 1}).value();
      EXPECT_TRUE(ids.insert(lease.id).second);
      pool->Release(lease);
    }
  }
}

TEST_F(KvPoolTest, ValidTokensEndWithTheLease) {
  const auto pool = MakePool(4, 2);
  const KvLease a = pool->Reserve({.capacity = 5}).value();
  EXPECT_EQ(pool->ValidTokens(a), 0);
  pool->PublishValidTokens(a, 5);
  EXPECT_EQ(pool->ValidTokens(a), 5);
  pool->Release(a);
  EXPECT_EQ(pool->ValidTokens(a), 0);
  const KvLease b = pool->Reserve({.capacity = 5}).value();
  ASSERT_EQ(b.slot, a.slot);
  EXPECT_EQ(pool->ValidTokens(b), 0);
  pool->PublishValidTokens(a, 3);
  EXPECT_EQ(pool->ValidTokens(b), 0);
  pool->PublishValidTokens(b, 2);
  EXPECT_EQ(pool->ValidTokens(a), 0);
}

TEST_F(KvPoolTest, ValidTokensFromAWildWriterAreClamped) {
  const auto pool = MakePool(4, 2);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const auto mapping = Open();
  mapping->slot(lease.slot)->valid_tokens = 1000;
  EXPECT_EQ(pool->ValidTokens(lease), 8);
  mapping->slot(lease.slot)->valid_tokens = -1;
  EXPECT_EQ(pool->ValidTokens(lease), 0);
}

TEST_F(KvPoolTest, AccountingDoesNotTrustSharedMemory) {
  const auto pool = MakePool(4, 2);
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  Open()->slot(lease.slot)->lease_id = 12345;
  EXPECT_EQ(pool->Reserve({.capacity = 12}).status().code(), absl::StatusCode::kResourceExhausted);
  pool->Release(lease);
  ExpectPages(*pool, 0, 0);
}

TEST_F(KvPoolTest, NameIsTakenWhileThePoolLives) {
  {
    const auto pool = MakePool(4, 2);
    EXPECT_EQ(pool->name(), name_.str());
    EXPECT_EQ(KvPool::Create(name_, 2, {kFingerprint}, SmallGeometry(4, 2)).status().code(),
              absl::StatusCode::kAlreadyExists);
  }
  EXPECT_TRUE(SharedMemory::List(name_)->empty());
}

TEST_F(KvPoolTest, RejectsBadArguments) {
  EXPECT_EQ(KvPool::Create(name_, kEpoch, {kFingerprint}, SmallGeometry(0, 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KvPool::Create(name_, kEpoch, {std::string(41, 'f')}, SmallGeometry(1, 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KvPool::Create(name_, kEpoch, {kFingerprint, std::string(65, 'f')}, SmallGeometry(1, 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(KvPool::Create(name_, kEpoch, {std::string(40, 'f'), std::string(64, 'f')}, SmallGeometry(1, 1)).ok());
}

TEST_F(KvPoolTest, TooLargeSaysWhatToDo) {
  const absl::Status status =
      KvPool::Create(name_, kEpoch, {kFingerprint}, SmallGeometry(int64_t{1} << 31, 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("needs 768.00 GiB"), HasSubstr("--shm-size")));
  EXPECT_TRUE(SharedMemory::List(name_)->empty());
}

// Whether every element of the lease's own page `block` is NaN.
bool IsPoisoned(const KvPages& pages, int64_t block) {
  const auto* numbers = reinterpret_cast<const uint16_t*>(pages.PageMemory(block));
  return std::all_of(numbers, numbers + pages.geometry().page_bytes() / 2, [](uint16_t x) { return x == kPoison; });
}

TEST_F(KvPoolTest, PagesThatNobodyHasArePoisonedIfAskedFor) {
  const auto pool = MakePool(2, 2, {.poison_freed = true});
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const KvPages pages = pool->Pages(lease);
  EXPECT_TRUE(IsPoisoned(pages, 0) && IsPoisoned(pages, 1)) << "never written";
  *pages.Token(0, 0) = *pages.Token(2, 4) = 1;
  auto writer = Acquire(Open(), lease);
  pool->Release(lease);
  EXPECT_FALSE(IsPoisoned(pages, 1)) << "its writer has it";
  writer = absl::UnknownError("dropped");
  pool->Sweep();
  EXPECT_TRUE(IsPoisoned(pages, 0) && IsPoisoned(pages, 1));
}

TEST_F(KvPoolTest, CachedPagesArePoisonedWhenTheyAreEvicted) {
  auto pool = MakePool(2, 2, {.poison_freed = true});
  const std::vector<int32_t> tokens = {1, 2, 3, 4};
  const KvLease first = pool->Reserve({.tokens = tokens, .capacity = 5}).value();
  const KvPages pages = pool->Pages(first);
  *pages.Token(0, 0) = *pages.Token(2, 4) = 1;
  pool->PublishValidTokens(first, 5);
  pool->Cache(first, tokens);
  pool->Release(first);
  EXPECT_FALSE(IsPoisoned(pages, 0)) << "cached";
  EXPECT_TRUE(IsPoisoned(pages, 1));
  const KvLease second = pool->Reserve({.capacity = 8}).value();
  EXPECT_TRUE(IsPoisoned(pages, 0));
  *pages.Token(0, 0) = 1;
  const auto mapping = Open();
  pool.reset();
  EXPECT_EQ(mapping->pages_base()[0], kPoison & 0xff) << "not zeros, which would pass for numbers";
}

TEST_F(KvPoolTest, AWriteIntoAFreePageEndsTheProcess) {
  const auto pool = MakePool(2, 2, {.poison_freed = true});
  const KvLease lease = pool->Reserve({.capacity = 5}).value();
  const KvPages pages = pool->Pages(lease);
  pool->Release(lease);
  *pages.Token(1, 6) = 1;
  EXPECT_DEATH(static_cast<void>(pool->Reserve({.capacity = 8})), "written_while_free");
}

TEST_F(KvPoolTest, PagesThatDrainForLongAreStuck) {
  std::chrono::steady_clock::time_point now;
  const auto pool = MakePool(8, 4, {.now = [&] { return now; }});
  const KvLease first = pool->Reserve({.capacity = 5}).value();
  const KvLease second = pool->Reserve({.capacity = 1}).value();
  auto writer = Acquire(Open(), first);
  auto late_writer = Acquire(Open(), second);
  pool->Release(first);
  now += KvPool::kDrainPatience - std::chrono::milliseconds(1);
  pool->Release(second);
  EXPECT_EQ(pool->stats().draining_pages, 3);
  EXPECT_EQ(pool->stats().stuck_pages, 0);
  now += std::chrono::milliseconds(1);
  EXPECT_EQ(pool->stats().stuck_pages, 2);
  now += KvPool::kDrainPatience;
  EXPECT_EQ(pool->stats().stuck_pages, 3);
  writer = absl::UnknownError("dropped");
  late_writer = absl::UnknownError("dropped");
  pool->Sweep();
  EXPECT_EQ(pool->stats().stuck_pages, 0);
  EXPECT_EQ(pool->stats().free_pages, 8);
}

}  // namespace
}  // namespace moestro::kv
