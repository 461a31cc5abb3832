#include "services/decode/lease_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/engine_node.h"

namespace moestro::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kPages = 6;

class LeaseTableTest : public ::testing::Test {
 protected:
  using LeasePtr = std::shared_ptr<Lease>;

  // Tokens that no other request shares.
  static std::vector<int32_t> Tokens(int64_t count, int32_t first) {
    std::vector<int32_t> tokens(static_cast<size_t>(count), 7);
    tokens[0] = first;
    return tokens;
  }
  absl::StatusOr<LeasePtr> TryReserve(int64_t tokens, int64_t max_tokens, uint64_t arrival) {
    return table_.Reserve({.tokens = Tokens(tokens, static_cast<int32_t>(arrival)),
                           .max_tokens = max_tokens,
                           .arrival = arrival,
                           .cache_scope = "",
                           .ignore_cache = false});
  }
  LeasePtr Reserve(int64_t tokens, uint64_t arrival) { return TryReserve(tokens, 1, arrival).value(); }
  // The sequence has reached its lease's end and wants `count` tokens more.
  LeaseTable::Room Want(const LeasePtr& lease, int64_t count) {
    lease->tokens.resize(static_cast<size_t>(node_.pool().Pages(lease->kv).capacity() + count), 3);
    return table_.MakeRoom(lease);
  }
  kv::KvPool::Stats Stats() { return node_.pool().stats(); }

  std::chrono::steady_clock::time_point now_;
  EngineNode node_{/*max_rows=*/1, /*nan_token=*/-1, kPages,
                   {.threads = 2}, SmallSpec(),      {.now = [this] { return now_; }}};
  LeaseTable table_{node_.pool(), /*reserve_ahead=*/1};
};

TEST_F(LeaseTableTest, ReservesAheadAndNoMore) {
  LeaseTable table(node_.pool(), 64);
  const LeasePtr lease = *table.Reserve({.tokens = Tokens(64, 1), .max_tokens = 300, .arrival = 1});
  EXPECT_EQ(lease->kv.pages.size(), 2u);
  EXPECT_EQ(lease->limit, 364);
  const LeasePtr brief = *table.Reserve({.tokens = Tokens(60, 1), .max_tokens = 2, .arrival = 2});
  EXPECT_EQ(brief->kv.pages.size(), 1u);
}

TEST_F(LeaseTableTest, WhatCouldNeverFitIsRefused) {
  const auto refused = TryReserve(kPages * 64, 1, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("384 tokens and one more can never fit"));
  EXPECT_TRUE(TryReserve(kPages * 64 - 1, 32000, 1).ok()) << "the answer ends with the pool";
  EXPECT_TRUE(absl::IsInvalidArgument(table_.Reserve({.tokens = {}, .max_tokens = 5}).status()));
}

TEST_F(LeaseTableTest, GrowsByThePageWhileThereIsRoom) {
  const LeasePtr lease = Reserve(10, 1);
  EXPECT_EQ(lease->kv.pages.size(), 1u);
  for (size_t pages = 2; pages <= kPages; ++pages) {
    const LeaseTable::Room room = Want(lease, 1);
    EXPECT_TRUE(room.made);
    EXPECT_THAT(room.preempted, IsEmpty());
    EXPECT_EQ(lease->kv.pages.size(), pages);
  }
}

// Nobody's pages would help it.
TEST_F(LeaseTableTest, ALeaseAtThePoolsEndTakesNothing) {
  const LeasePtr first = Reserve(2 * 64, 1), second = Reserve(2 * 64, 2);
  first->tokens.resize(kPages * 64 + 1, 3);
  const LeaseTable::Room room = table_.MakeRoom(first);
  EXPECT_TRUE(room.at_end);
  EXPECT_FALSE(room.made);
  EXPECT_THAT(room.preempted, IsEmpty());
  EXPECT_TRUE(table_.Check(*second).ok());
  EXPECT_EQ(table_.waiting_for_pages(), 0);
}

TEST_F(LeaseTableTest, TheYoungestGivesUpItsPages) {
  const LeasePtr second = Reserve(64, 20);
  const LeasePtr first = Reserve(64, 10);
  const LeasePtr third = Reserve(64, 30);
  ASSERT_EQ(Stats().free_pages, 0);
  const LeaseTable::Room room = Want(second, 1);
  EXPECT_TRUE(room.made);
  EXPECT_THAT(room.preempted, ElementsAre(third));
  EXPECT_TRUE(absl::IsAborted(table_.Check(*third)));
  EXPECT_THAT(std::string(table_.Check(*third).message()), HasSubstr("preempted: "));
  EXPECT_TRUE(table_.Check(*first).ok());
  EXPECT_EQ(table_.preemptions(), 1);
  table_.Release(*third);
  EXPECT_EQ(Stats().leases, 2);
}

TEST_F(LeaseTableTest, AnOlderLeaseIsNeverTakenFrom) {
  const LeasePtr first = Reserve(128, 10);
  const LeasePtr second = Reserve(128, 20);
  ASSERT_EQ(Stats().free_pages, 0);
  const LeaseTable::Room room = Want(second, 1);
  EXPECT_FALSE(room.made);
  EXPECT_THAT(room.preempted, ElementsAre(second));
  EXPECT_TRUE(table_.Check(*first).ok());
  EXPECT_EQ(Stats().leased_pages, 3);
}

TEST_F(LeaseTableTest, AsManyYoungerOnesAsItTakes) {
  const LeasePtr first = Reserve(64, 10);
  std::vector<LeasePtr> younger;
  for (uint64_t arrival = 11; arrival < 15; ++arrival) younger.push_back(Reserve(10, arrival));
  const LeaseTable::Room room = Want(first, 3 * 64);
  EXPECT_TRUE(room.made);
  EXPECT_THAT(room.preempted, ElementsAre(younger[3], younger[2], younger[1]));
}

TEST_F(LeaseTableTest, TheOldestReachesItsLimitWhateverTheOthersHold) {
  const LeasePtr first = *TryReserve(64, kPages * 64 - 64, 1);
  for (uint64_t arrival = 2; arrival < 6; ++arrival) Reserve(10, arrival);
  for (size_t pages = 3; pages <= kPages; ++pages) EXPECT_TRUE(Want(first, 1).made);
  EXPECT_EQ(first->limit, node_.pool().Pages(first->kv).capacity());
  EXPECT_EQ(Stats().leases, 1);
}

TEST_F(LeaseTableTest, CachedPagesGoBeforeAnybodyIsPreempted) {
  const LeasePtr gone = Reserve(190, 5);
  node_.pool().PublishValidTokens(gone->kv, 190);
  table_.Release(*gone);
  EXPECT_EQ(Stats().cached_pages, 2);
  const LeasePtr first = Reserve(128, 10);
  const LeasePtr second = Reserve(10, 11);
  EXPECT_THAT(Want(first, 1).preempted, IsEmpty());
  EXPECT_EQ(Stats().cached_pages, 1);
}

TEST_F(LeaseTableTest, APreemptedLeaseFindsItsPagesAgain) {
  const LeasePtr first = Reserve(64, 10);
  const LeasePtr second = Reserve(200, 20);
  node_.pool().PublishValidTokens(second->kv, 200);
  EXPECT_THAT(Want(first, 1).preempted, ElementsAre(second));
  table_.Release(*first);
  EXPECT_EQ(Reserve(200, 20)->kv.cached_tokens, 192);
}

TEST_F(LeaseTableTest, PagesThatDrainAreWaitedForAndKeptFromYoungerOnes) {
  const LeasePtr first = Reserve(128, 10);
  const LeasePtr second = Reserve(10, 20);
  const LeasePtr third = Reserve(64, 30);
  auto writer = node_.Writer(third->kv);
  EXPECT_THAT(Want(first, 1).preempted, ElementsAre(third));
  EXPECT_TRUE(writer->revoked());
  EXPECT_EQ(table_.waiting_for_pages(), 1);
  const LeaseTable::Room waiting = table_.MakeRoom(first);
  EXPECT_FALSE(waiting.made);
  EXPECT_THAT(waiting.preempted, IsEmpty()) << "the pages come by themselves";

  writer.reset();
  EXPECT_TRUE(absl::IsResourceExhausted(TryReserve(5, 5, 40).status()));
  table_.Release(*Reserve(5, 10));  // another choice of the same request is no younger
  EXPECT_TRUE(table_.MakeRoom(first).made);
  EXPECT_EQ(table_.waiting_for_pages(), 0);
  EXPECT_TRUE(TryReserve(5, 5, 40).ok());
}

TEST_F(LeaseTableTest, PagesOfAWriterThatHangsAreNotWaitedFor) {
  const LeasePtr first = Reserve(128, 10);
  const LeasePtr second = Reserve(10, 20);
  const LeasePtr third = Reserve(64, 30);
  const auto stopped = node_.Writer(third->kv);
  EXPECT_THAT(Want(first, 1).preempted, ElementsAre(third));
  now_ += kv::KvPool::kDrainPatience - std::chrono::milliseconds(1);
  EXPECT_THAT(table_.MakeRoom(first).preempted, IsEmpty());
  now_ += std::chrono::milliseconds(1);
  const LeaseTable::Room room = table_.MakeRoom(first);
  EXPECT_TRUE(room.made);
  EXPECT_THAT(room.preempted, ElementsAre(second)) << "the next youngest";
  EXPECT_EQ(table_.waiting_for_pages(), 0);

  EXPECT_THAT(Want(first, 1).preempted, ElementsAre(first)) << "nobody else has any";
  EXPECT_TRUE(TryReserve(5, 5, 40).ok()) << "and refuses nobody";
}

TEST_F(LeaseTableTest, AnOlderRequestThatComesBackTakesNothingByReserving) {
  const LeasePtr younger = Reserve(kPages * 64 - 1, 20);
  EXPECT_TRUE(absl::IsResourceExhausted(TryReserve(5, 5, 10).status()));
  EXPECT_TRUE(table_.Check(*younger).ok());
}

TEST_F(LeaseTableTest, OfTwoThatArrivedAlikeTheFirstIsOlder) {
  const LeasePtr first = Reserve(128, 10);
  const LeasePtr second = Reserve(128, 10);
  ASSERT_LT(first->age(), second->age());
  EXPECT_THAT(Want(second, 1).preempted, ElementsAre(second));
}

TEST_F(LeaseTableTest, WhatASequenceThatFailedHadIsNotReused) {
  const LeasePtr before = Reserve(130, 5);
  node_.pool().PublishValidTokens(before->kv, 130);
  table_.Release(*before);
  const LeasePtr failed = Reserve(200, 5);
  ASSERT_EQ(failed->kv.cached_tokens, 128);
  node_.pool().PublishValidTokens(failed->kv, 199);
  table_.ReleaseFailed(*failed);
  EXPECT_EQ(Reserve(200, 5)->kv.cached_tokens, 0);
}

TEST_F(LeaseTableTest, ThePageOfTheLastPromptTokenIsNotCachedWhilePrefillMayWriteIt) {
  const LeasePtr lease = Reserve(128, 1);
  const auto writer = node_.Writer(lease->kv);
  writer->Publish(128);
  table_.Release(*lease);
  EXPECT_EQ(Reserve(192, 1)->kv.cached_tokens, 64);
}

TEST_F(LeaseTableTest, PagesAreSharedWithinACacheScopeOnly) {
  const auto reserve = [&](const std::string& scope) {
    return table_.Reserve({.tokens = Tokens(130, 1), .max_tokens = 1, .arrival = 1, .cache_scope = scope});
  };
  const LeasePtr first = *reserve("a");
  node_.pool().PublishValidTokens(first->kv, 130);
  table_.Release(*first);
  for (const auto& [scope, cached] : {std::pair{"b", 0}, {"", 0}, {"a", 128}}) {
    const LeasePtr lease = *reserve(scope);
    EXPECT_EQ(lease->kv.cached_tokens, cached) << scope;
    table_.Release(*lease);
  }
  const absl::Status status = reserve(std::string(65, 'x')).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(status.message(), "cache_scope: has 65 bytes, may have 64");
  EXPECT_TRUE(reserve(std::string(64, 'x')).ok());
}

TEST_F(LeaseTableTest, IgnoringTheCacheMeansAddingNothingEither) {
  const LeasePtr lease = *table_.Reserve({.tokens = Tokens(128, 1), .max_tokens = 9, .ignore_cache = true});
  node_.pool().PublishValidTokens(lease->kv, 128);
  table_.Cache(*lease);
  table_.Release(*lease);
  EXPECT_EQ(Stats().cached_pages, 0);
}

}  // namespace
}  // namespace moestro::decode
