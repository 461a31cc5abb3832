// Many threads hold conversations that begin alike, in a pool that is too small for them: all cached pages found belong
// to the requested tokens. Under ThreadSanitizer also: a page's writer is ordered with its readers.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "tests/common/kv/kv_fixture.h"
#include "tests/common/kv/page_content.h"

namespace moestro::kv {
namespace {

using testing::ExpectPages;
using testing::HoldsBlocks;
using testing::KvPoolTest;
using testing::WriteBlocks;

constexpr int kTalkers = 4;
constexpr int kRaceRounds = 3000;
constexpr int64_t kRacePages = 24;
constexpr int64_t kRacePageTokens = 4;
constexpr int64_t kBlocks = 10;  // of the longest conversation

// Pages of equal tokens, so that many conversations begin alike.
std::vector<int32_t> Conversation(std::mt19937& random) {
  std::vector<int32_t> tokens;
  for (int64_t block = 0; block < kBlocks; ++block) {
    tokens.insert(tokens.end(), kRacePageTokens, static_cast<int32_t>(random() % (block < 3 ? 2 : 4)));
  }
  return tokens;
}

TEST_F(KvPoolTest, WhatIsFoundBelongsToTheTokens) {
  const auto pool = MakePool(kRacePages, 8);
  std::atomic<int> wrong{0};
  std::atomic<int64_t> found{0};
  std::atomic<int64_t> grown{0};
  const auto run = [&](int thread) {
    std::mt19937 random(thread);
    for (int round = 0; round < kRaceRounds; ++round) {
      const std::vector<int32_t> tokens = Conversation(random);
      const int64_t prompt = 1 + static_cast<int64_t>(random() % (kBlocks * kRacePageTokens));
      absl::StatusOr<KvLease> lease = pool->Reserve(
          {.tokens = std::span(tokens).first(prompt), .capacity = prompt, .ignore_cache = round % 8 == 0});
      if (!lease.ok()) continue;
      found += lease->cached_tokens;
      const int64_t cached = lease->cached_tokens / kRacePageTokens;
      if (!HoldsBlocks(pool->Pages(*lease), tokens, cached)) ++wrong;
      int64_t end = prompt / kRacePageTokens;
      WriteBlocks(pool->Pages(*lease), tokens, cached, end);
      pool->PublishValidTokens(*lease, std::max(end * kRacePageTokens, lease->cached_tokens));
      if (random() % 2 == 0) pool->Cache(*lease, tokens);
      const int64_t more = std::min(kBlocks, end + static_cast<int64_t>(random() % 4));
      if (more > end && pool->Grow(*lease, more * kRacePageTokens).ok()) {
        WriteBlocks(pool->Pages(*lease), tokens, end, more);
        pool->PublishValidTokens(*lease, more * kRacePageTokens);
        end = more;
        ++grown;
      }
      if (!HoldsBlocks(pool->Pages(*lease), tokens, end)) ++wrong;
      if (random() % 4 != 0) pool->Cache(*lease, tokens);
      const KvPool::Stats stats = pool->stats();
      if (stats.free_pages + stats.leased_pages + stats.cached_pages + stats.draining_pages != kRacePages) ++wrong;
      pool->Release(*lease);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kTalkers; ++i) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(found, kRaceRounds);
  EXPECT_GT(grown, kRaceRounds / 10);
  EXPECT_GT(pool->stats().evicted_pages, kRaceRounds / 10);
  EXPECT_EQ(pool->stats().prefix_hit_tokens, found);
  ExpectPages(*pool, 0, 0, pool->stats().cached_pages);
  EXPECT_TRUE(pool->Reserve({.capacity = kRacePages * kRacePageTokens}).ok());
}

}  // namespace
}  // namespace moestro::kv
