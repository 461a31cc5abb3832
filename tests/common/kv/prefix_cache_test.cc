#include "common/kv/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "tests/common/kv/naive_prefix_tree.h"

namespace moestro::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::NaivePrefixTree;
using testing::Tokens;

constexpr PrefixCache::Node kRoot = PrefixCache::kRoot;

class PrefixCacheTest : public ::testing::Test {
 protected:
  // Caches the whole pages of `tokens`: the first is `page`, then page + 1, ...; leaves no hold at the end.
  void Add(const Tokens& tokens, uint32_t page, const std::string& scope = "") {
    cache_.Drop(AddHeld(tokens, page, scope));
  }

  PrefixCache::Node AddHeld(const Tokens& tokens, uint32_t page, const std::string& scope = "") {
    PrefixCache::Node node = kRoot;
    for (size_t i = 0; i + 2 <= tokens.size(); i += 2, ++page) {
      node = cache_.Extend(scope, node, std::span(tokens).subspan(i, 2), page);
    }
    return node;
  }

  void ExpectPages(int64_t held, int64_t shared, int64_t idle) {
    EXPECT_EQ(cache_.held_pages(), held);
    EXPECT_EQ(cache_.shared_pages(), shared);
    EXPECT_EQ(cache_.idle_pages(), idle);
  }

  PrefixCache cache_{/*page_tokens=*/2, /*page_count=*/100};
};

TEST_F(PrefixCacheTest, FindsWholePagesOfExactTokens) {
  EXPECT_THAT(cache_.Match("", Tokens{1, 2, 3}), IsEmpty());
  Add({1, 2, 3, 4}, 10);
  EXPECT_THAT(cache_.Match("", Tokens{}), IsEmpty());
  EXPECT_THAT(cache_.Match("", Tokens{1}), IsEmpty());
  EXPECT_THAT(cache_.Match("", Tokens{1, 2}), ElementsAre(10));
  EXPECT_THAT(cache_.Match("", Tokens{1, 2, 3}), ElementsAre(10));
  EXPECT_THAT(cache_.Match("", Tokens{1, 2, 3, 4, 5}), ElementsAre(10, 11));
  EXPECT_THAT(cache_.Match("", Tokens{1, 2, 3, 5}), ElementsAre(10));
  EXPECT_THAT(cache_.Match("", Tokens{2, 1, 3, 4}), IsEmpty());
  EXPECT_THAT(cache_.Match("", Tokens{-1, 2, 3, 4}), IsEmpty());
}

TEST_F(PrefixCacheTest, BranchesShareTheirBeginning) {
  Add({1, 1, 2, 2, 3, 3}, 10);
  Add({1, 1, 2, 2, 4, 4}, 20);
  Add({1, 1, 5, 5}, 30);
  EXPECT_THAT(cache_.Match("", Tokens{1, 1, 2, 2, 3, 3}), ElementsAre(10, 11, 12));
  EXPECT_THAT(cache_.Match("", Tokens{1, 1, 2, 2, 4, 4}), ElementsAre(10, 11, 22));
  EXPECT_THAT(cache_.Match("", Tokens{1, 1, 5, 5}), ElementsAre(10, 31));
  EXPECT_FALSE(cache_.Contains(20)) << "its tokens were cached in page 10";
  ExpectPages(0, 0, 5);
}

TEST_F(PrefixCacheTest, SameTokensAfterAnotherPrefixAreAnotherPage) {
  Add({1, 1, 7, 7}, 10);
  Add({2, 2, 7, 7}, 20);
  Add({7, 7}, 30);
  EXPECT_THAT(cache_.Match("", Tokens{1, 1, 7, 7, 7, 7}), ElementsAre(10, 11));
  EXPECT_THAT(cache_.Match("", Tokens{2, 2, 7, 7}), ElementsAre(20, 21));
  EXPECT_THAT(cache_.Match("", Tokens{7, 7, 7, 7}), ElementsAre(30));
}

TEST_F(PrefixCacheTest, EvictsTheLeastRecentlyUsedLeaf) {
  Add({1, 1, 2, 2}, 10);
  Add({3, 3}, 20);
  Add({1, 1, 4, 4}, 30);
  EXPECT_EQ(cache_.Evict(), 11u) << "the oldest page is 10, but others follow it";
  EXPECT_EQ(cache_.Evict(), 20u);
  EXPECT_EQ(cache_.Evict(), 31u);
  EXPECT_EQ(cache_.Evict(), 10u);
  ExpectPages(0, 0, 0);
  EXPECT_THAT(cache_.Match("", Tokens{1, 1}), IsEmpty());
}

TEST_F(PrefixCacheTest, HoldingIsAUseAndMatchingIsNot) {
  Add({1, 1}, 10);
  Add({2, 2}, 20);
  Add({3, 3}, 30);
  cache_.Match("", Tokens{2, 2});
  cache_.Hold(10);
  cache_.Drop(10);
  EXPECT_EQ(cache_.Evict(), 20u);
  EXPECT_EQ(cache_.Evict(), 30u);
  EXPECT_EQ(cache_.Evict(), 10u);
}

TEST_F(PrefixCacheTest, TheEndOfAHoldIsAUse) {
  const PrefixCache::Node held = AddHeld({1, 1}, 10);
  Add({2, 2}, 20);
  cache_.Drop(held);
  EXPECT_EQ(cache_.Evict(), 20u);
}

TEST_F(PrefixCacheTest, HeldPathsStay) {
  Add({1, 1, 2, 2, 3, 3}, 10);
  Add({1, 1, 4, 4}, 20);
  cache_.Hold(11);
  ExpectPages(2, 0, 2);
  EXPECT_EQ(cache_.Evict(), 12u);
  EXPECT_EQ(cache_.Evict(), 21u);
  ExpectPages(2, 0, 0);
  cache_.Hold(11);
  cache_.Hold(10);
  ExpectPages(2, 2, 0);
  cache_.Drop(11);
  ExpectPages(2, 1, 0);
  cache_.Drop(11);
  ExpectPages(1, 0, 1);
  EXPECT_EQ(cache_.Evict(), 11u);
  EXPECT_TRUE(cache_.Contains(10));
  cache_.Drop(10);
  EXPECT_TRUE(cache_.IsIdle(10));
  EXPECT_EQ(cache_.Evict(), 10u);
}

TEST_F(PrefixCacheTest, ExtendingOntoCachedTokensHoldsThem) {
  Add({1, 1}, 10);
  const PrefixCache::Node node = AddHeld({1, 1, 2, 2}, 20);
  EXPECT_EQ(node, 21u);
  EXPECT_THAT(cache_.Match("", Tokens{1, 1, 2, 2}), ElementsAre(10, 21));
  ExpectPages(2, 0, 0);
  cache_.Drop(node);
  ExpectPages(0, 0, 2);
}

TEST_F(PrefixCacheTest, EvictedPagesCanComeBackElsewhere) {
  Add({1, 1}, 10);
  EXPECT_EQ(cache_.Evict(), 10u);
  EXPECT_FALSE(cache_.Contains(10));
  Add({2, 2}, 10);
  EXPECT_THAT(cache_.Match("", Tokens{1, 1}), IsEmpty());
  EXPECT_THAT(cache_.Match("", Tokens{2, 2}), ElementsAre(10));
}

TEST_F(PrefixCacheTest, WhatIsForgottenIsNotFoundAndIsEvictedLikeTheRest) {
  Add({1, 1, 2, 2, 3, 3}, 10);
  Add({1, 1, 4, 4}, 20);
  Add({5, 5}, 30);
  cache_.Forget(11);
  EXPECT_THAT(cache_.Match("", Tokens{1, 1, 2, 2}), IsEmpty());
  EXPECT_THAT(cache_.Match("", Tokens{1, 1, 4, 4}), IsEmpty()) << "its first page may be the bad one";
  EXPECT_THAT(cache_.Match("", Tokens{5, 5}), ElementsAre(30));
  ExpectPages(0, 0, 5);
  cache_.Forget(21);
  cache_.Forget(kRoot);
  Add({1, 1, 2, 2}, 40);
  EXPECT_THAT(cache_.Match("", Tokens{1, 1, 2, 2, 3, 3}), ElementsAre(40, 41)) << "computed anew";
  std::set<uint32_t> evicted;
  for (int i = 0; i < 7; ++i) evicted.insert(cache_.Evict());
  EXPECT_THAT(evicted, ElementsAre(10, 11, 12, 21, 30, 40, 41));
  ExpectPages(0, 0, 0);
  Add({1, 1, 2, 2}, 10);
  EXPECT_THAT(cache_.Match("", Tokens{1, 1, 2, 2}), ElementsAre(10, 11)) << "the pages are as good as others";
}

TEST_F(PrefixCacheTest, AForgottenPathIsStillHeldAndExtended) {
  const PrefixCache::Node held = AddHeld({1, 1, 2, 2}, 10);
  cache_.Forget(held);
  const PrefixCache::Node longer = cache_.Extend("", held, Tokens{3, 3}, 12);
  EXPECT_EQ(longer, 12u);
  ExpectPages(3, 0, 0);
  EXPECT_THAT(cache_.Match("", Tokens{1, 1, 2, 2, 3, 3}), IsEmpty());
  cache_.Drop(longer);
  ExpectPages(0, 0, 3);
}

TEST_F(PrefixCacheTest, TheRootNeedsNoHold) {
  cache_.Hold(kRoot);
  cache_.Drop(kRoot);
  ExpectPages(0, 0, 0);
}

TEST_F(PrefixCacheTest, AScopeFindsItsOwnPagesOnly) {
  Add({1, 1, 2, 2}, 10);
  Add({1, 1, 3, 3}, 20, "a");
  Add({1, 1}, 30, std::string("a\0", 2));
  EXPECT_THAT(cache_.Match("", Tokens{1, 1, 2, 2}), ElementsAre(10, 11));
  EXPECT_THAT(cache_.Match("a", Tokens{1, 1, 2, 2}), ElementsAre(20));
  EXPECT_THAT(cache_.Match("a", Tokens{1, 1, 3, 3}), ElementsAre(20, 21));
  EXPECT_THAT(cache_.Match(std::string("a\0", 2), Tokens{1, 1, 3, 3}), ElementsAre(30));
  EXPECT_THAT(cache_.Match("b", Tokens{1, 1}), IsEmpty());
  EXPECT_EQ(cache_.scopes(), 3);
  ExpectPages(0, 0, 5);
}

TEST_F(PrefixCacheTest, AScopeIsForgottenWithItsLastPage) {
  constexpr int kScopes = 1000;  // ten times as many as there are pages
  for (int i = 0; i < kScopes; ++i) {
    Add({1, 1, 2, 2}, 10, std::to_string(i));
    EXPECT_EQ(cache_.scopes(), 1);
    EXPECT_EQ(cache_.Evict(), 11u);
    EXPECT_EQ(cache_.scopes(), 1);
    EXPECT_EQ(cache_.Evict(), 10u);
    EXPECT_EQ(cache_.scopes(), 0);
    EXPECT_THAT(cache_.Match(std::to_string(i), Tokens{1, 1}), IsEmpty());
  }
  const PrefixCache::Node held = AddHeld({1, 1}, 10, "held");
  Add({1, 1}, 20, "other");
  EXPECT_EQ(cache_.Evict(), 20u);
  EXPECT_EQ(cache_.scopes(), 1) << "what is held is there";
  cache_.Drop(held);
  EXPECT_THAT(cache_.Match("held", Tokens{1, 1}), ElementsAre(10));
}

// A full pool of 20 pages: "big" has 16 of them, "small" 4. Every request of "big" takes 4 pages and leaves 4.
class PrefixCacheFloodTest : public PrefixCacheTest {
 protected:
  PrefixCacheFloodTest() {
    Add({1, 1, 2, 2, 3, 3, 4, 4}, 0, "small");
    for (uint32_t page = 4; page < 20; page += 4) AddNext({page, page + 1, page + 2, page + 3});
  }

  void AddNext(const std::vector<uint32_t>& pages) {
    ++requests_;
    PrefixCache::Node node = kRoot;
    for (const uint32_t page : pages) node = cache_.Extend("big", node, Tokens{requests_, requests_}, page);
    cache_.Drop(node);
  }
  void Flood(int requests) {
    for (int i = 0; i < requests; ++i) {
      std::vector<uint32_t> pages;
      for (int page = 0; page < 4; ++page) pages.push_back(cache_.Evict());
      AddNext(pages);
    }
  }
  size_t SmallPages() const { return cache_.Match("small", Tokens{1, 1, 2, 2, 3, 3, 4, 4}).size(); }

  int32_t requests_ = 100;
};

// Plain least-recently-used eviction would lose them after 4 requests.
TEST_F(PrefixCacheFloodTest, AScopeThatIsUsedNowAndThenKeepsItsPages) {
  for (int round = 0; round < 100; ++round) {
    Flood(8);
    ASSERT_EQ(SmallPages(), 4u) << round;
    cache_.Hold(3);
    cache_.Drop(3);
  }
}

TEST_F(PrefixCacheFloodTest, AScopeThatNobodyUsesGivesUpItsPagesInTheEnd) {
  Flood(100);
  EXPECT_EQ(SmallPages(), 0u);
  EXPECT_EQ(cache_.scopes(), 1);
}

TEST_F(PrefixCacheFloodTest, ManyUnusedScopesDoNotCrowdOutTheOneInUse) {
  Flood(100);
  for (int i = 0; i < 20; ++i) Add({1, 1}, cache_.Evict(), std::to_string(i));
  EXPECT_EQ(cache_.scopes(), 20);
  Flood(100);
  EXPECT_EQ(cache_.scopes(), 1);
}

TEST(PrefixCacheDepth, AMillionTokensInOneChain) {
  constexpr uint32_t kPages = 16384;
  constexpr int64_t kPageTokens = 64;
  PrefixCache cache(kPageTokens, kPages);
  const Tokens tokens(kPages * kPageTokens, 7);
  PrefixCache::Node node = kRoot;
  for (uint32_t page = 0; page < kPages; ++page) {
    node = cache.Extend("", node, std::span(tokens).first(kPageTokens), page);
  }
  EXPECT_EQ(cache.Match("", tokens).size(), kPages);
  cache.Hold(node);
  EXPECT_EQ(cache.shared_pages(), kPages);
  cache.Drop(node);
  cache.Drop(node);
  for (uint32_t page = kPages; page-- > 0;) EXPECT_EQ(cache.Evict(), page);
}

// Random operations on a few hundred overlapping prefixes, each result compared with the naive tree's.
TEST(PrefixCacheProperty, DoesWhatTheNaiveTreeDoes) {
  constexpr uint32_t kPages = 60;
  constexpr int64_t kPageTokens = 3;
  PrefixCache cache(kPageTokens, kPages);
  NaivePrefixTree naive(kPageTokens);
  std::mt19937 random(20240608);
  std::set<uint32_t> free;
  for (uint32_t page = 0; page < kPages; ++page) free.insert(page);
  struct Held {
    std::string scope;
    PrefixCache::Node node = kRoot;
    Tokens path;
  };
  std::vector<Held> holds;
  const auto random_scope = [&] { return std::string(random() % 4, 's'); };
  const auto random_tokens = [&] {
    Tokens tokens(random() % (7 * kPageTokens));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(random() % (i < 6 ? 3 : 2) / 2);
    return tokens;
  };
  for (int step = 0; step < 30000; ++step) {
    switch (random() % 5) {
      case 0: {
        const Tokens tokens = random_tokens();
        const std::string scope = random_scope();
        const std::vector<uint32_t> pages = cache.Match(scope, tokens);
        ASSERT_EQ(pages, naive.Match(scope, tokens)) << step;
        if (holds.size() >= 8) break;
        Held held{scope, pages.empty() ? kRoot : pages.back(), tokens};
        held.path.resize(pages.size() * kPageTokens);
        cache.Hold(held.node);
        naive.Hold(scope, held.path);
        holds.push_back(std::move(held));
        break;
      }
      case 1:
      case 2: {
        if (holds.empty() || free.empty()) break;
        Held& held = holds[random() % holds.size()];
        Tokens more = random_tokens();
        more.resize(kPageTokens);
        const uint32_t page = *free.begin();
        held.path.insert(held.path.end(), more.begin(), more.end());
        held.node = cache.Extend(held.scope, held.node, more, page);
        ASSERT_EQ(held.node == page, naive.Extend(held.scope, held.path, page)) << step;
        if (held.node == page) free.erase(page);
        break;
      }
      case 3: {
        if (holds.empty()) break;
        std::swap(holds[random() % holds.size()], holds.back());
        cache.Drop(holds.back().node);
        naive.Drop(holds.back().scope, holds.back().path);
        holds.pop_back();
        break;
      }
      default: {
        if (cache.idle_pages() == 0 || free.size() > kPages / 2) break;
        const uint32_t page = cache.Evict();
        ASSERT_EQ(page, naive.Evict()) << step;
        free.insert(page);
      }
    }
    ASSERT_EQ(cache.idle_pages(), naive.idle_pages()) << step;
    ASSERT_EQ(cache.held_pages(), naive.held_pages()) << step;
    ASSERT_EQ(cache.shared_pages(), naive.shared_pages()) << step;
    ASSERT_EQ(cache.scopes(), naive.scopes()) << step;
    ASSERT_EQ(cache.idle_pages() + cache.held_pages() + static_cast<int64_t>(free.size()), kPages) << step;
    for (uint32_t page = 0; page < kPages; ++page) ASSERT_EQ(cache.Contains(page), !free.contains(page)) << step;
  }
}

}  // namespace
}  // namespace moestro::kv
