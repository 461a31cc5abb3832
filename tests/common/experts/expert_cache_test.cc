#include "common/experts/expert_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace moestro::experts {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::unique_ptr<CachePolicy> Lru(int64_t num_experts) { return std::make_unique<LruPolicy>(num_experts); }

ExpertCache Cache(const std::vector<int64_t>& slots, int64_t experts) { return ExpertCache(experts, slots, Lru); }

std::vector<model::ExpertChoice> Choices(const std::vector<int32_t>& ids) {
  std::vector<model::ExpertChoice> choices;
  for (const int32_t id : ids) choices.push_back({id, 0.5f});
  return choices;
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
  EXPECT_EQ(cache.Hold(1), 0);
  EXPECT_EQ(cache.Hold(2), 1);
  EXPECT_THAT(Hits(cache, {3}), IsEmpty());
  EXPECT_EQ(cache.Hold(3), 2);
  EXPECT_THAT(Hits(cache, {1, 4}), ElementsAre(1));
  EXPECT_EQ(cache.Hold(4), 1) << "the slot of 2, which was used longest ago";
  EXPECT_THAT(Hits(cache, {1, 2, 3, 4}), ElementsAre(1, 3, 4));
}

TEST(ExpertCache, ExpertsOfAPassDoNotGiveEachOtherUp) {
  ExpertCache cache = Cache({2}, 10);
  Hits(cache, {1, 2, 3});
  EXPECT_GE(cache.Hold(1), 0);
  EXPECT_GE(cache.Hold(2), 0);
  EXPECT_EQ(cache.Hold(3), -1);
  Hits(cache, {1, 2, 3});
  EXPECT_EQ(cache.Hold(3), -1);
  cache.Clear();
  EXPECT_THAT(Hits(cache, {1, 2}), IsEmpty());
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
    EXPECT_EQ(cache.Hold(4), -1);
  }
}

// Against a model: an expert is a hit if it was held and not evicted, in each layer separately, in the slot returned.
TEST(ExpertCache, IsWhatItWasToldToHold) {
  constexpr int64_t kSlots = 5;
  ExpertCache cache = Cache({kSlots, kSlots, kSlots}, 20);
  std::mt19937 random(1);
  std::map<int64_t, std::map<int64_t, int32_t>> held;  // layer -> slot -> expert
  for (int i = 0; i < 2000; ++i) {
    const int64_t layer = random() % 3;
    std::set<int32_t> ids;
    for (uint32_t n = 1 + random() % 7; ids.size() < n;) ids.insert(static_cast<int32_t>(random() % 20));
    std::vector<ExpertUse> misses;
    int64_t hits = 0;
    for (const ExpertUse& use : cache.Take(layer, Choices({ids.begin(), ids.end()}))) {
      ASSERT_TRUE(ids.erase(use.expert));
      if (use.held()) {
        ++hits;
        ASSERT_EQ(held[layer].at(use.slot), use.expert) << i;
      } else {
        misses.push_back(use);
        for (const auto& [slot, expert] : held[layer]) ASSERT_NE(expert, use.expert) << i;
      }
    }
    ASSERT_TRUE(ids.empty());
    std::set<int64_t> taken;
    for (const ExpertUse& use : misses) {
      const int64_t slot = cache.Hold(use.expert);
      ASSERT_LT(slot, kSlots);
      if (slot < 0) {
        ASSERT_EQ(std::ssize(taken) + hits, kSlots) << "all slots are the pass's own";
        continue;
      }
      ASSERT_TRUE(taken.insert(slot).second) << "given up for another expert of its own pass";
      held[layer][slot] = use.expert;
    }
  }
}

}  // namespace
}  // namespace moestro::experts
