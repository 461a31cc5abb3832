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

// Loads as many experts as there are slots.
ExpertCache::Options Sized(int64_t layers, int64_t experts, int64_t slots) {
  return {.moe_layers = layers, .num_experts = experts, .slots = slots, .loads_per_pass = experts};
}

std::vector<int32_t> Ids(const std::vector<ExpertCache::Hit>& hits) {
  std::vector<int32_t> ids;
  for (const ExpertCache::Hit& hit : hits) ids.push_back(hit.use.expert);
  return ids;
}
std::vector<int32_t> Ids(const std::vector<ExpertUse>& uses) {
  std::vector<int32_t> ids;
  for (const ExpertUse& use : uses) ids.push_back(use.expert);
  return ids;
}
std::vector<int32_t> Ids(const std::vector<ExpertCache::Load>& loads) {
  std::vector<int32_t> ids;
  for (const ExpertCache::Load& load : loads) ids.push_back(load.expert);
  return ids;
}
std::vector<model::ExpertChoice> Choices(const std::vector<int32_t>& ids) {
  std::vector<model::ExpertChoice> choices;
  for (const int32_t id : ids) choices.push_back({id, 0.5f});
  return choices;
}

TEST(CacheSlots, IsWhatTheBudgetPaysFor) {
  EXPECT_EQ(CacheSlots(999, 100, 3, 8), 3);
  EXPECT_EQ(CacheSlots(899, 100, 3, 8), 2);
  EXPECT_EQ(CacheSlots(1 << 20, 100, 3, 8), 8);
  EXPECT_EQ(CacheSlots(0, 100, 3, 8), 0);
}

TEST(ExpertCache, HoldsTheLeastRecentlyUsedOnesNot) {
  ExpertCache cache(Sized(1, 10, 3), Lru);
  EXPECT_THAT(Ids(cache.Take(0, Choices({1, 2})).loads), ElementsAre(1, 2));
  EXPECT_THAT(Ids(cache.Take(0, Choices({3})).loads), ElementsAre(3));
  const ExpertCache::Pass& pass = cache.Take(0, Choices({1, 4}));
  EXPECT_THAT(Ids(pass.hits), ElementsAre(1));
  EXPECT_THAT(Ids(pass.misses), ElementsAre(4));
  EXPECT_THAT(Ids(pass.loads), ElementsAre(4));
  EXPECT_THAT(Ids(cache.Take(0, Choices({1, 2, 3, 4})).hits), ElementsAre(1, 3, 4)) << "2 was used longest ago";
}

TEST(ExpertCache, ExpertsOfAPassDoNotGiveEachOtherUp) {
  ExpertCache cache(Sized(1, 10, 2), Lru);
  EXPECT_THAT(Ids(cache.Take(0, Choices({1, 2, 3})).loads), ElementsAre(1, 2));
  EXPECT_THAT(Ids(cache.Take(0, Choices({1, 2, 3})).loads), IsEmpty());
}

TEST(ExpertCache, LoadsTheGreatestWeightsFirst) {
  ExpertCache cache({.moe_layers = 1, .num_experts = 10, .slots = 4, .loads_per_pass = 2}, Lru);
  const std::vector<model::ExpertChoice> choices = {{1, 0.5f}, {2, 2}, {3, 1}, {4, 0.25f}};
  EXPECT_THAT(Ids(cache.Take(0, choices).loads), ElementsAre(2, 3));
  EXPECT_THAT(Ids(cache.Take(0, choices).loads), ElementsAre(1, 4));
  cache.Clear();
  EXPECT_THAT(Ids(cache.Take(0, choices).hits), IsEmpty());
}

TEST(ExpertCache, CountsRowsAndWeights) {
  ExpertCache cache(Sized(1, 10, 2), Lru);
  const ExpertCache::Pass& pass =
      cache.Take(0, std::vector<model::ExpertChoice>{{3, 0.5f}, {7, 0.25f}, {1, 1}, {3, 2}});
  ASSERT_THAT(Ids(pass.misses), ElementsAre(1, 3, 7));
  EXPECT_EQ(pass.misses[1].rows, 2);
  EXPECT_EQ(pass.misses[1].weight, 2.5f);
}

TEST(ExpertCache, WithoutSlotsHoldsNothing) {
  ExpertCache cache(Sized(2, 10, 0), Lru);
  for (int i = 0; i < 2; ++i) {
    const ExpertCache::Pass& pass = cache.Take(1, Choices({4}));
    EXPECT_THAT(pass.hits, IsEmpty());
    EXPECT_THAT(pass.loads, IsEmpty());
  }
}

// Against a model: a loaded and not evicted expert is a hit, in each layer separately, in the reported slot.
TEST(ExpertCache, IsWhatItsLoadsSay) {
  constexpr int64_t kSlots = 5;
  ExpertCache cache(Sized(3, 20, kSlots), Lru);
  std::mt19937 random(1);
  std::map<int64_t, std::map<int64_t, int32_t>> held;  // layer -> slot -> expert
  for (int i = 0; i < 2000; ++i) {
    const int64_t layer = random() % 3;
    std::set<int32_t> ids;
    for (uint32_t n = 1 + random() % 7; ids.size() < n;) ids.insert(static_cast<int32_t>(random() % 20));
    std::set<int32_t> expected;
    for (const auto& [slot, expert] : held[layer]) {
      if (ids.contains(expert)) expected.insert(expert);
    }
    const ExpertCache::Pass& pass = cache.Take(layer, Choices({ids.begin(), ids.end()}));
    ASSERT_EQ(Ids(pass.hits), std::vector(expected.begin(), expected.end())) << i;
    for (const ExpertCache::Hit& hit : pass.hits) ASSERT_EQ(held[layer][hit.slot], hit.use.expert);
    ASSERT_EQ(pass.hits.size() + pass.misses.size(), ids.size());
    for (const ExpertCache::Load& load : pass.loads) {
      ASSERT_LT(load.slot, kSlots);
      held[layer][load.slot] = load.expert;
    }
    for (const int32_t expert : expected) {
      ASSERT_TRUE(std::ranges::any_of(held[layer], [&](const auto& entry) { return entry.second == expert; }))
          << "a hit was given up for a miss of its own pass";
    }
  }
}

}  // namespace
}  // namespace moestro::experts
