// A pool whose pages get memory by and by.
#include <gmock/gmock.h>

#include "common/kv/pool.h"
#include "tests/common/kv/kv_fixture.h"
#include "tests/common/platform/child_process.h"

namespace moestro::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::KvPoolTest;

constexpr int64_t kToken = 1;

TEST_F(KvPoolTest, OnlyPagesWithMemoryAreAssigned) {
  const auto pool = MakePool(8, 4, {.poison_freed = true, .first_pages = 3});
  EXPECT_EQ(pool->stats().total_pages, 3);
  EXPECT_EQ(pool->stats().most_pages, 8);
  EXPECT_EQ(pool->most_tokens(), 8 * 4);
  const KvLease a = pool->Reserve({.capacity = 3 * 4}).value();
  EXPECT_THAT(a.pages, ElementsAre(0, 1, 2));
  const absl::Status short_now = pool->Reserve({.capacity = 2 * 4}).status();
  EXPECT_EQ(short_now.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(short_now.message()), HasSubstr("2 pages needed, 0 free; it is taking more memory"));
  EXPECT_EQ(pool->stats().lacking_pages, 2);
  ASSERT_TRUE(pool->Extend(2).ok());
  EXPECT_EQ(pool->stats().lacking_pages, 0);
  EXPECT_THAT(pool->Reserve({.capacity = 2 * 4}).value().pages, ElementsAre(3, 4));
  ASSERT_TRUE(pool->Extend(100).ok()) << "there are three more";
  EXPECT_EQ(pool->stats().total_pages, 8);
  ASSERT_TRUE(pool->Extend(1).ok());
  EXPECT_EQ(pool->Reserve({.capacity = 4 * 4}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(pool->Reserve({.capacity = 3 * 4}).ok());
}

TEST_F(KvPoolTest, CachedPagesStayWhileThePoolCanGrow) {
  const auto pool = MakePool(8, 4, {.first_pages = 2});
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const KvLease a = pool->Reserve({.tokens = tokens, .capacity = 8}).value();
  pool->PublishValidTokens(a, 8);
  pool->Cache(a, tokens);
  pool->Release(a);
  EXPECT_EQ(pool->stats().cached_pages, 2);
  EXPECT_FALSE(pool->Reserve({.capacity = kToken}).ok()) << "it waits for memory";
  pool->SetGrowing(false);
  EXPECT_EQ(pool->most_tokens(), 2 * 4);
  EXPECT_EQ(pool->Reserve({.capacity = 3 * 4}).status().code(), absl::StatusCode::kInvalidArgument);
  const KvLease b = pool->Reserve({.capacity = kToken}).value();
  EXPECT_EQ(pool->stats().evicted_pages, 1) << "there is no more memory";
  pool->SetGrowing(true);
  EXPECT_EQ(pool->most_tokens(), 8 * 4);
  pool->Release(b);
}

// Else poisoning would take all the memory that the pool never had.
TEST_F(KvPoolTest, OnlyPagesWithMemoryArePoisonedBehindADeadOwner) {
  const int64_t kib = 1024;
  {
    testing::ChildProcess owner([&](const testing::ChildProcess::Parent& parent) {
      auto geometry = testing::SmallGeometry(1 << 10, 4);
      geometry.num_layers = 1 << 13;  // 1 MiB a page
      const auto pool = KvPool::Create(name_, testing::kEpoch, {testing::kFingerprint}, geometry, {.first_pages = 2});
      parent.Send(pool.ok() ? 1 : 0);
      parent.Sleep();
      return 0;
    });
    ASSERT_EQ(owner.Receive(), 1);
    owner.Kill();
  }
  const SharedMemory memory = SharedMemory::OpenReadOnly(name_).value();
  const auto bytes = [&] {
    int64_t sum = 0;
    for (const IndexRange& range : memory.Backed()) sum += range.size();
    return sum;
  };
  const int64_t before = bytes();
  EXPECT_GE(before, 2 * kib * kib);
  EXPECT_LE(before, 3 * kib * kib);
  ASSERT_TRUE(KvPoolMapping::RemoveOrphan(name_, /*poison=*/true).ok());
  EXPECT_EQ(bytes(), before);
  const auto* last = reinterpret_cast<const uint16_t*>(memory.data() + memory.Backed().back().end) - 1;
  EXPECT_EQ(*last, kPoison);
}

TEST_F(KvPoolTest, DomainsGrowEqually) {
  const auto pool = MakePool(40, 4, {.domains = std::vector<NumaDomain>(2), .first_pages = 4});
  KvLease lease = pool->Reserve({.capacity = 4 * 4}).value();
  EXPECT_THAT(lease.pages, ElementsAre(0, 1, 20, 21)) << "domain 0 has no more";
  ASSERT_TRUE(pool->Extend(3).ok());
  EXPECT_EQ(pool->stats().total_pages, 8) << "an equal part each, rounded up";
  ASSERT_TRUE(pool->Grow(lease, 8 * 4).ok());
  EXPECT_THAT(lease.pages, ElementsAre(0, 1, 20, 21, 2, 3, 22, 23));
}

TEST_F(KvPoolTest, APoolLargerThanTheMachineCanBeMadeButNotFilled) {
  kv::KvGeometry geometry = testing::SmallGeometry(int64_t{1} << 17, 4);
  geometry.num_layers = int64_t{1} << 20;  // 128 MiB a page
  const auto pool = KvPool::Create(name_, testing::kEpoch, {testing::kFingerprint}, geometry, {.first_pages = 1});
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_TRUE((*pool)->Reserve({.capacity = 4}).ok());
  const absl::Status status = (*pool)->Extend(geometry.page_count);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("GiB of shared memory"));
  EXPECT_EQ((*pool)->stats().total_pages, 1);
}

}  // namespace
}  // namespace moestro::kv
