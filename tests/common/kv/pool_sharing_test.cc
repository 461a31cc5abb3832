// Leases that share pages: which are found, which lease keeps them, when they go. Pages hold 4 tokens.
#include <gmock/gmock.h>

#include <numeric>

#include "tests/common/kv/kv_fixture.h"

namespace moestro::kv {
namespace {

using ::testing::ElementsAre;
using testing::ExpectPages;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::KvPoolTest;
using Tokens = std::vector<int32_t>;

// `count` tokens first, first + 1, ...
Tokens Range(int32_t first, int32_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

KvLease Reserve(KvPool& pool, const Tokens& tokens, int64_t capacity) {
  return pool.Reserve({.tokens = tokens, .capacity = capacity}).value();
}

// A lease for `tokens`, all computed and cached.
KvLease ReserveAndCache(KvPool& pool, const Tokens& tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  const KvLease lease = Reserve(pool, tokens, count);
  pool.PublishValidTokens(lease, count);
  pool.Cache(lease, tokens);
  return lease;
}

TEST_F(KvPoolTest, TheNextTurnFindsThePagesOfTheLast) {
  const auto pool = MakePool(8, 4);
  const Tokens first = Range(100, 10);
  pool->Release(ReserveAndCache(*pool, first));
  ExpectPages(*pool, 0, 0, 2);
  const KvLease second = Reserve(*pool, first + Range(200, 3), 20);
  EXPECT_THAT(second.pages, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(second.cached_tokens, 8);
  EXPECT_EQ(pool->ValidTokens(second), 8);
  const auto mapping = Open();
  EXPECT_EQ(Acquire(mapping, second).value()->valid_tokens(), 8) << "where a writer begins";
  ExpectPages(*pool, 5, 0, 0);
}

TEST_F(KvPoolTest, TheLastTokenIsAlwaysComputed) {
  const auto pool = MakePool(8, 4);
  pool->Release(ReserveAndCache(*pool, Range(0, 12)));
  for (const auto& [tokens, cached] : {std::pair{12, 8}, {13, 12}, {9, 8}, {8, 4}, {5, 4}, {4, 0}, {1, 0}, {0, 0}}) {
    const KvLease lease = Reserve(*pool, Range(0, tokens), 13);
    EXPECT_EQ(lease.cached_tokens, cached) << tokens;
    pool->Release(lease);
  }
}

TEST_F(KvPoolTest, CapacityMustHoldTheTokens) {
  const auto pool = MakePool(8, 4);
  const Tokens tokens = Range(0, 5);
  const absl::Status status = pool->Reserve({.tokens = tokens, .capacity = 4}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("5 tokens and room for only 4"));
}

TEST_F(KvPoolTest, ARunningRequestsPromptIsShared) {
  const auto pool = MakePool(8, 4);
  const Tokens prompt = Range(0, 8);
  const KvLease a = Reserve(*pool, prompt + Range(50, 1), 12);
  pool->PublishValidTokens(a, 6);
  pool->Cache(a, prompt);
  ExpectPages(*pool, 3, 0);
  const KvLease b = Reserve(*pool, prompt + Range(60, 1), 9);
  EXPECT_THAT(b.pages, ElementsAre(0, 3, 4)) << "page 1 is not complete yet";
  pool->PublishValidTokens(a, 9);
  pool->Cache(a, prompt + Range(50, 1));
  const KvLease c = Reserve(*pool, prompt + Range(70, 1), 9);
  EXPECT_THAT(c.pages, ElementsAre(0, 1, 5));
  ExpectPages(*pool, 6, 0);
  EXPECT_EQ(pool->stats().shared_pages, 2);
}

TEST_F(KvPoolTest, AnyOrderOfReleaseKeepsWhatOthersRead) {
  std::vector<int> order = {0, 1, 2};
  do {
    const auto pool = MakePool(8, 4);
    const Tokens prompt = Range(0, 8);
    const std::vector<KvLease> leases = {ReserveAndCache(*pool, prompt + Range(50, 1)),
                                         Reserve(*pool, prompt + Range(60, 1), 9),
                                         Reserve(*pool, prompt + Range(70, 1), 9)};
    EXPECT_EQ(pool->stats().shared_pages, 2);
    ExpectPages(*pool, 5, 0);
    pool->Release(leases[order[0]]);
    ExpectPages(*pool, 4, 0);
    pool->Release(leases[order[1]]);
    ExpectPages(*pool, 3, 0);
    EXPECT_EQ(pool->stats().shared_pages, 0);
    EXPECT_EQ(pool->Reserve({.capacity = 24}).status().code(), absl::StatusCode::kResourceExhausted)
        << "pages of a living lease are never evicted";
    pool->Release(leases[order[2]]);
    ExpectPages(*pool, 0, 0, 2);
    EXPECT_TRUE(pool->Reserve({.capacity = 32}).ok());
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(KvPoolTest, OnlyWholeValidPagesWithinTheTokensAreCached) {
  const auto pool = MakePool(12, 4);
  const Tokens tokens = Range(0, 16);
  const KvLease lease = Reserve(*pool, tokens, 16);
  const auto cached = [&] {
    const KvLease other = Reserve(*pool, tokens + Range(90, 1), 17);
    pool->Release(other);
    return other.cached_tokens;
  };
  pool->Cache(lease, tokens);
  EXPECT_EQ(cached(), 0) << "nothing is valid";
  pool->PublishValidTokens(lease, 11);
  pool->Cache(lease, std::span(tokens).first(7));
  EXPECT_EQ(cached(), 4);
  pool->Cache(lease, {});
  EXPECT_EQ(cached(), 4);
  pool->Cache(lease, tokens);
  EXPECT_EQ(cached(), 8);
  pool->Cache(lease, tokens);
  EXPECT_EQ(cached(), 8);
}

TEST_F(KvPoolTest, CacheDoesNotTrustValidTokensBeyondTheLease) {
  const auto pool = MakePool(8, 4);
  const Tokens tokens = Range(0, 40);
  const KvLease lease = Reserve(*pool, Range(0, 8), 8);
  Open()->slot(lease.slot)->valid_tokens = 1000;
  pool->Cache(lease, tokens);
  ExpectPages(*pool, 2, 0);
  pool->Release(lease);
  ExpectPages(*pool, 0, 0, 2);
  const KvLease negative = Reserve(*pool, {}, 4);
  Open()->slot(negative.slot)->valid_tokens = -1000;
  pool->Cache(negative, tokens);
  ExpectPages(*pool, 1, 0, 2);
}

TEST_F(KvPoolTest, TwoRequestsThatComputedTheSameKeepOneCopy) {
  const auto pool = MakePool(8, 4);
  const Tokens tokens = Range(0, 9);
  const KvLease a = Reserve(*pool, tokens, 12);
  const KvLease b = Reserve(*pool, tokens + Range(9, 3), 12);
  for (const KvLease& lease : {a, b}) pool->PublishValidTokens(lease, 12);
  pool->Cache(a, tokens);
  pool->Cache(b, tokens + Range(9, 3));
  ExpectPages(*pool, 6, 0);
  pool->Release(a);
  ExpectPages(*pool, 5, 0);  // b's own copies, and the cached path that ends with its third page
  pool->Release(b);
  ExpectPages(*pool, 0, 0, 3);
  const KvLease c = Reserve(*pool, tokens + Range(9, 4), 13);
  EXPECT_EQ(c.cached_tokens, 12);
  EXPECT_THAT(c.pages, ElementsAre(0, 1, 5, 2));
}

TEST_F(KvPoolTest, IgnoringTheCacheStillFillsIt) {
  const auto pool = MakePool(8, 4);
  const Tokens tokens = Range(0, 9);
  pool->Release(ReserveAndCache(*pool, Range(0, 5)));
  const KvLease lease = pool->Reserve({.tokens = tokens, .capacity = 9, .ignore_cache = true}).value();
  EXPECT_EQ(lease.cached_tokens, 0);
  EXPECT_EQ(pool->ValidTokens(lease), 0);
  EXPECT_THAT(lease.pages, ElementsAre(1, 2, 3));
  pool->PublishValidTokens(lease, 9);
  pool->Cache(lease, tokens);
  pool->Release(lease);
  EXPECT_EQ(Reserve(*pool, tokens, 9).cached_tokens, 8);
  EXPECT_EQ(pool->stats().prefix_queries_tokens, 5 + 9);
  EXPECT_EQ(pool->stats().prefix_hit_tokens, 8);
}

TEST_F(KvPoolTest, AnotherScopesPagesAreNotFound) {
  const auto pool = MakePool(12, 6);
  const Tokens tokens = Range(0, 9);
  const auto reserve = [&](const std::string& scope) {
    return pool->Reserve({.tokens = tokens, .capacity = 9, .cache_scope = scope}).value();
  };
  const KvLease a = reserve("a");
  pool->PublishValidTokens(a, 9);
  pool->Cache(a, tokens);
  for (const bool released : {false, true}) {
    if (released) pool->Release(a);
    for (const auto& [scope, cached] : {std::pair{"a", 8}, {"b", 0}, {"", 0}}) {
      const KvLease lease = reserve(scope);
      EXPECT_EQ(lease.cached_tokens, cached) << scope;
      pool->Release(lease);
    }
  }
  KvLease b = reserve("b");
  ASSERT_TRUE(pool->Grow(b, 12).ok());
  pool->PublishValidTokens(b, 12);
  pool->Cache(b, tokens + Range(9, 3));
  ExpectPages(*pool, 3, 0, 2);  // each has its own copy
  pool->Release(b);
  EXPECT_EQ(reserve("b").cached_tokens, 8);
}

TEST_F(KvPoolTest, SwitchedOffNothingIsCached) {
  const auto pool = MakePool(8, 4, {.prefix_cache = false});
  pool->Release(ReserveAndCache(*pool, Range(0, 12)));
  ExpectPages(*pool, 0, 0, 0);
  EXPECT_EQ(Reserve(*pool, Range(0, 12), 12).cached_tokens, 0);
  EXPECT_EQ(pool->stats().prefix_queries_tokens, 0);
}

TEST_F(KvPoolTest, LeastRecentlyUsedConversationsAreEvicted) {
  const auto pool = MakePool(8, 4);
  const Tokens a = Range(100, 13);
  const Tokens b = Range(200, 9);
  const Tokens c = Range(300, 9);
  for (const Tokens& tokens : {a, b, c}) pool->Release(ReserveAndCache(*pool, tokens));
  ExpectPages(*pool, 0, 0, 7);
  pool->Release(Reserve(*pool, a, 13));
  ExpectPages(*pool, 0, 0, 7);
  const KvLease lease = Reserve(*pool, {}, 8);
  EXPECT_THAT(lease.pages, ElementsAre(4, 7)) << "the end of b, and what was free";
  EXPECT_EQ(pool->stats().evicted_pages, 1);
  pool->Release(lease);
  EXPECT_EQ(Reserve(*pool, b, 9).cached_tokens, 4);
  EXPECT_EQ(Reserve(*pool, a, 13).cached_tokens, 12);
}

TEST_F(KvPoolTest, WhatAReservationFindsIsNotEvictedForIt) {
  const auto pool = MakePool(4, 4);
  const Tokens tokens = Range(0, 9);
  pool->Release(ReserveAndCache(*pool, tokens));
  ExpectPages(*pool, 0, 0, 2);
  const KvLease lease = Reserve(*pool, tokens, 16);
  EXPECT_THAT(lease.pages, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(pool->stats().evicted_pages, 0);
}

TEST_F(KvPoolTest, AFailedReservationEvictsNothing) {
  const auto pool = MakePool(8, 2);
  const Tokens tokens = Range(0, 13);
  pool->Release(ReserveAndCache(*pool, tokens));
  const KvLease other = Reserve(*pool, {}, 4);
  const KvPool::Stats before = pool->stats();
  const absl::Status status = pool->Reserve({.tokens = tokens, .capacity = 32}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("5 pages needed, 4 of 8 free and 0 to be evicted"));
  ExpectPages(*pool, 1, 0, 3);
  EXPECT_EQ(pool->stats().prefix_queries_tokens, before.prefix_queries_tokens);
  const KvLease last_slot = Reserve(*pool, {}, 4);
  EXPECT_EQ(pool->Reserve({.tokens = tokens, .capacity = 16}).status().code(), absl::StatusCode::kResourceExhausted);
  ExpectPages(*pool, 2, 0, 3);
}

TEST_F(KvPoolTest, GrowAppendsPages) {
  const auto pool = MakePool(6, 4);
  const Tokens prompt = Range(0, 9);
  pool->Release(ReserveAndCache(*pool, prompt));
  KvLease lease = Reserve(*pool, prompt, 9);
  pool->PublishValidTokens(lease, 9);
  EXPECT_TRUE(pool->Grow(lease, 12).ok());
  EXPECT_TRUE(pool->Grow(lease, -5).ok());
  EXPECT_THAT(lease.pages, ElementsAre(0, 1, 2));
  EXPECT_TRUE(pool->Grow(lease, 13).ok());
  EXPECT_THAT(lease.pages, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(lease.cached_tokens, 8);
  EXPECT_EQ(pool->ValidTokens(lease), 9);
  ExpectPages(*pool, 4, 0);
  pool->PublishValidTokens(lease, 16);
  pool->Cache(lease, Range(0, 16));
  pool->Release(lease);
  ExpectPages(*pool, 0, 0, 4);
}

TEST_F(KvPoolTest, GrowEvictsButNeverTakesFromOthers) {
  const auto pool = MakePool(4, 4);
  const KvLease other = Reserve(*pool, Range(50, 1), 1);
  pool->Release(ReserveAndCache(*pool, Range(0, 8)));
  KvLease lease = Reserve(*pool, Range(80, 1), 1);
  ExpectPages(*pool, 2, 0, 2);
  const absl::Status status = pool->Grow(lease, 16);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("3 pages needed, 0 of 4 free and 2 to be evicted"));
  EXPECT_EQ(lease.pages.size(), 1u);
  ExpectPages(*pool, 2, 0, 2);
  EXPECT_TRUE(pool->Grow(lease, 12).ok());
  ExpectPages(*pool, 4, 0, 0);
  EXPECT_EQ(pool->stats().evicted_pages, 2);
  EXPECT_EQ(pool->Grow(lease, 17).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(KvPoolTest, ALeaseThatWasGivenBackNeitherGrowsNorCaches) {
  const auto pool = MakePool(4, 4);
  KvLease lease = Reserve(*pool, Range(0, 8), 8);
  pool->PublishValidTokens(lease, 8);
  pool->Release(lease);
  EXPECT_EQ(pool->Grow(lease, 12).code(), absl::StatusCode::kAborted);
  pool->Cache(lease, Range(0, 8));
  ExpectPages(*pool, 0, 0, 0);
  const KvLease next = Reserve(*pool, Range(50, 8), 8);
  ASSERT_EQ(next.slot, lease.slot);
  pool->PublishValidTokens(next, 8);
  pool->Cache(lease, Range(0, 8));
  ExpectPages(*pool, 2, 0, 0);
  EXPECT_EQ(Reserve(*pool, Range(0, 8), 8).cached_tokens, 0) << "an old lease's tokens for a new lease's pages";
}

// Pages that a released lease's writer could still reach can be found, but are not evicted before it unlocks.
TEST_F(KvPoolTest, CachedPagesOfADrainingLeaseAreFoundButNotEvicted) {
  const auto pool = MakePool(6, 4);
  const auto mapping = Open();
  const Tokens tokens = Range(0, 12);
  const KvLease lease = Reserve(*pool, tokens, 12);
  auto writer = Acquire(mapping, lease).value();
  writer->Publish(8);
  pool->Cache(lease, tokens);
  pool->Release(lease);
  EXPECT_TRUE(writer->revoked());
  ExpectPages(*pool, 2, 1);
  EXPECT_EQ(pool->stats().leases, 0);
  const KvLease reader = Reserve(*pool, tokens, 12);
  EXPECT_EQ(reader.cached_tokens, 8);
  EXPECT_THAT(reader.pages, ElementsAre(0, 1, 3)) << "page 2 is half-written";
  pool->Release(reader);
  EXPECT_EQ(pool->Reserve({.capacity = 16}).status().code(), absl::StatusCode::kResourceExhausted);
  writer.reset();
  pool->Sweep();
  ExpectPages(*pool, 0, 0, 2);
  EXPECT_TRUE(pool->Reserve({.capacity = 24}).ok());
}

TEST_F(KvPoolTest, AStaleCopyOfAGrownLeaseStillReleasesAll) {
  const auto pool = MakePool(6, 4);
  KvLease lease = Reserve(*pool, Range(0, 4), 4);
  const KvLease copy = lease;
  ASSERT_TRUE(pool->Grow(lease, 20).ok());
  pool->PublishValidTokens(lease, 20);
  EXPECT_EQ(pool->ValidTokens(copy), 4);
  EXPECT_EQ(pool->ValidTokens(lease), 20);
  pool->Cache(copy, Range(0, 9));
  pool->Release(copy);
  ExpectPages(*pool, 0, 0, 2);
}

TEST_F(KvPoolTest, WhatFailedIsNotCachedNorWhatItBeganWith) {
  const auto pool = MakePool(8, 4);
  pool->Release(ReserveAndCache(*pool, Range(0, 8)));
  const KvLease other = Reserve(*pool, Range(0, 9), 9);
  const KvLease failed = Reserve(*pool, Range(0, 13), 16);
  ASSERT_EQ(failed.cached_tokens, 8);
  pool->PublishValidTokens(failed, 12);
  pool->Fail(failed);
  pool->Cache(failed, Range(0, 12));
  EXPECT_EQ(Reserve(*pool, Range(0, 9), 9).cached_tokens, 8) << "as long as it is not released";
  pool->Release(failed);
  EXPECT_EQ(Reserve(*pool, Range(0, 13), 13).cached_tokens, 0);
  EXPECT_EQ(pool->ValidTokens(other), 8) << "who has the pages keeps them";
}

TEST_F(KvPoolTest, AWriterSaysThatItsLeaseFailed) {
  const auto pool = MakePool(8, 4);
  const Tokens tokens = Range(0, 8);
  const KvLease lease = Reserve(*pool, tokens, 8);
  {
    const auto writer = Acquire(Open(), lease).value();
    writer->Publish(8);
    writer->Fail();
  }
  pool->Cache(lease, tokens);
  pool->Release(lease);
  ExpectPages(*pool, 0, 0, 0);
  pool->Release(ReserveAndCache(*pool, tokens));
  ExpectPages(*pool, 0, 0, 2);
}

}  // namespace
}  // namespace moestro::kv
