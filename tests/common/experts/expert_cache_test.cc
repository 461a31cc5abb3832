#include "common/experts/expert_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/common/experts/choices.h"

namespace moestro::experts {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kSpare = 4;

ExpertCache Cache(const std::vector<int64_t>& kept, int64_t experts) {
  return ExpertCache(experts, kept, kSpare, Policy::kLru);
}

// Loads an expert and keeps it if that can be.
bool Hold(ExpertCache& cache, int32_t expert) {
  cache.Load(expert);
  return cache.Keep(expert);
}

// The experts of a pass that are held.
std::vector<int32_t> Hits(ExpertCache& cache, const std::vector<int32_t>& ids, int64_t layer = 0) {
  std::vector<int32_t> hits;
  for (const ExpertUse& use : cache.Take(layer, Choices(ids))) {
    if (use.held()) hits.push_back(use.expert);
  }
  return hits;
}

TEST(ExpertCache, HoldsTheLeastRecentlyUsedOnesNot) {
  ExpertCache cache = Cache({3}, 10);
  EXPECT_THAT(Hits(cache, {1, 2}), IsEmpty());
  EXPECT_TRUE(Hold(cache, 1));
  EXPECT_TRUE(Hold(cache, 2));
  EXPECT_THAT(Hits(cache, {3}), IsEmpty());
  EXPECT_EQ(cache.free(), 1);
  EXPECT_TRUE(Hold(cache, 3));
  EXPECT_THAT(Hits(cache, {1, 4}), ElementsAre(1));
  EXPECT_TRUE(Hold(cache, 4)) << "in place of 2, which was used longest ago";
  EXPECT_THAT(Hits(cache, {1, 2, 3, 4}), ElementsAre(1, 3, 4));
  EXPECT_EQ(cache.spare(), kSpare);
}

TEST(ExpertCache, ExpertsOfAPassDoNotGiveEachOtherUp) {
  ExpertCache cache = Cache({2}, 10);
  Hits(cache, {1, 2, 3});
  EXPECT_TRUE(Hold(cache, 1));
  EXPECT_TRUE(Hold(cache, 2));
  EXPECT_FALSE(Hold(cache, 3));
  Hits(cache, {1, 2, 3});
  EXPECT_FALSE(Hold(cache, 3));
  cache.Clear();
  EXPECT_THAT(Hits(cache, {1, 2}), IsEmpty());
}

TEST(ExpertCache, WhatIsNotKeptIsHeldForThePassOnly) {
  ExpertCache cache = Cache({1}, 10);
  Hits(cache, {1, 2});
  EXPECT_TRUE(Hold(cache, 1));
  const int64_t slot = cache.Load(2);
  EXPECT_FALSE(cache.Keep(2));
  EXPECT_EQ(cache.SlotOf(0, 2), slot);
  EXPECT_EQ(cache.spare(), kSpare - 1) << "the pass computes from it";
  EXPECT_THAT(Hits(cache, {1, 2}), ElementsAre(1));
  EXPECT_EQ(cache.spare(), kSpare);
}

TEST(ExpertCache, WhatIsLoadedAheadWaitsForItsLayer) {
  ExpertCache cache = Cache({2, 2}, 10);
  Hits(cache, {1}, 0);
  const int64_t used = cache.LoadAhead(1, 5), unused = cache.LoadAhead(1, 6);
  EXPECT_NE(used, unused);
  Hits(cache, {1}, 0);
  EXPECT_EQ(cache.spare(), kSpare - 2) << "another pass of an earlier layer does not end it";
  const auto uses = cache.Take(1, Choices({4, 5}));
  ASSERT_EQ(uses.size(), 2);
  EXPECT_EQ(uses[1].slot, used);
  EXPECT_FALSE(cache.IsKept(5));
  EXPECT_EQ(cache.SlotOf(1, 6), -1) << "given up, because the pass does not use it";
  EXPECT_EQ(cache.spare(), kSpare - 1);
  EXPECT_TRUE(cache.Keep(5));
  EXPECT_TRUE(cache.IsKept(5));
  EXPECT_THAT(Hits(cache, {5, 6}, 1), ElementsAre(5));
  EXPECT_EQ(cache.spare(), kSpare);
}

TEST(ExpertCache, CountsRowsAndWeights) {
  ExpertCache cache = Cache({2}, 10);
  const auto uses = cache.Take(0, std::vector<model::ExpertChoice>{{3, 0.5f}, {7, 0.25f}, {1, 1}, {3, 2}});
  ASSERT_EQ(uses.size(), 3);
  EXPECT_EQ(uses[0].expert, 1);
  EXPECT_EQ(uses[1].expert, 3);
  EXPECT_EQ(uses[1].rows, 2);
  EXPECT_EQ(uses[1].weight, 2.5f);
  EXPECT_EQ(uses[2].expert, 7);
}

TEST(ExpertCache, WithoutSlotsHoldsNothing) {
  ExpertCache cache = Cache({3, 0}, 10);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Hits(cache, {4}, 1), IsEmpty());
    EXPECT_FALSE(Hold(cache, 4));
  }
}

// Against a model: an expert is a hit if it is kept and was not evicted, or if it was loaded ahead, in each layer
// separately, in the slot that was returned; no two experts share a slot.
TEST(ExpertCache, IsWhatItWasToldToHold) {
  constexpr int64_t kKept = 5, kLayers = 3;
  ExpertCache cache = Cache(std::vector<int64_t>(kLayers, kKept), 20);
  std::mt19937 random(1);
  using Expert = std::pair<int64_t, int32_t>;  // and its layer
  std::map<Expert, int64_t> slots;             // of what is held
  std::set<Expert> kept;
  std::set<Expert> passing;  // loaded for the last pass, and not kept
  for (int i = 0; i < 4000; ++i) {
    const auto layer = static_cast<int64_t>(random() % kLayers);
    for (const Expert& expert : passing) slots.erase(expert);
    passing.clear();
    std::set<int32_t> ids;
    for (uint32_t n = 1 + random() % 7; ids.size() < n;) ids.insert(static_cast<int32_t>(random() % 20));
    std::vector<int32_t> misses, waited;
    const auto uses = cache.Take(layer, Choices({ids.begin(), ids.end()}));
    ASSERT_EQ(uses.size(), ids.size());
    for (const ExpertUse& use : uses) {
      const auto held = slots.find({layer, use.expert});
      ASSERT_EQ(use.slot, held == slots.end() ? -1 : held->second) << i;
      if (!use.held()) misses.push_back(use.expert);
      if (use.held() && !kept.contains({layer, use.expert})) waited.push_back(use.expert);
    }
    std::erase_if(slots, [&](const auto& held) {
      return held.first.first == layer && !kept.contains(held.first) && !ids.contains(held.first.second);
    });
    const auto keep = [&](int32_t expert) {
      const auto of_layer = [&](const Expert& one) { return one.first == layer; };
      const auto unused = [&](const Expert& one) { return one.first == layer && !ids.contains(one.second); };
      const int64_t before = std::ranges::count_if(kept, of_layer), others = std::ranges::count_if(kept, unused);
      const bool is_kept = cache.Keep(expert);
      ASSERT_EQ(is_kept, before < kKept || others > 0);
      if (!is_kept) {
        passing.insert({layer, expert});
        return;
      }
      kept.insert({layer, expert});
      std::vector<Expert> evicted;
      for (const Expert& one : kept) {
        if (cache.SlotOf(one.first, one.second) < 0) evicted.push_back(one);
      }
      ASSERT_EQ(std::ssize(evicted), before < kKept ? 0 : 1);
      for (const Expert& one : evicted) {
        ASSERT_TRUE(unused(one)) << "given up for another expert of its own pass";
        kept.erase(one);
        slots.erase(one);
      }
    };
    for (const int32_t expert : waited) keep(expert);
    for (const int32_t expert : misses) {
      if (cache.spare() == 0) break;
      slots[{layer, expert}] = cache.Load(expert);
      keep(expert);
    }
    const int64_t next = (layer + 1) % kLayers;
    const auto expert = static_cast<int32_t>(random() % 20);
    if (cache.spare() > 0 && cache.SlotOf(next, expert) < 0) slots[{next, expert}] = cache.LoadAhead(next, expert);
    std::set<int64_t> different;
    for (const auto& [one, slot] : slots) ASSERT_TRUE(different.insert(slot).second) << "two experts share a slot";
    ASSERT_EQ(cache.spare(), kSpare - (std::ssize(slots) - std::ssize(kept)));
  }
}

}  // namespace
}  // namespace moestro::experts
