#include "common/experts/cache_policy.h"

#include <gtest/gtest.h>

namespace moestro::experts {
namespace {

// A pass that uses experts with a weight each.
std::vector<ExpertUse> Uses(const std::vector<std::pair<int32_t, float>>& experts) {
  std::vector<ExpertUse> uses;
  for (const auto& [expert, weight] : experts) uses.push_back({.expert = expert, .rows = 1, .weight = weight});
  return uses;
}

int32_t Victim(const CachePolicy& policy, const std::vector<int32_t>& held) { return policy.Victim(held); }

TEST(CachePolicy, LruEvictsWhatWasUsedLongestAgo) {
  const auto policy = NewPolicy(Policy::kLru, 8);
  policy->Use(Uses({{1, 1}, {2, 1}}), {});
  policy->Use(Uses({{3, 1}}), {});
  EXPECT_EQ(Victim(*policy, {3, 2, 1}), 1) << "the lowest id of equal ones";
  policy->Use(Uses({{1, 1}}), {});
  EXPECT_EQ(Victim(*policy, {3, 2, 1}), 2);
}

TEST(CachePolicy, LfuEvictsWhatWasUsedLeast) {
  const auto policy = NewPolicy(Policy::kLfu, 8);
  for (int i = 0; i < 3; ++i) policy->Use(Uses({{1, 0.1f}, {2, 9}}), {});
  policy->Use(Uses({{2, 1}, {3, 9}}), {});
  EXPECT_EQ(Victim(*policy, {1, 2, 3}), 3) << "used last, and with the greatest weight, but once";
  EXPECT_EQ(Victim(*policy, {1, 2}), 1);
}

TEST(CachePolicy, MrsEvictsTheSmallestAverageScore) {
  const auto policy = NewPolicy(Policy::kMrs, 8);
  policy->Use(Uses({{1, 0.8f}, {2, 0.2f}}), {});
  EXPECT_EQ(Victim(*policy, {1, 2}), 2);
  policy->Use(Uses({{2, 0.5f}}), {});
  // 1: 0.4 / 2, 2: 0.1 / 2 + 0.25
  EXPECT_EQ(Victim(*policy, {1, 2}), 1);
}

// Experts that a row nearly chose are likely to be chosen next.
TEST(CachePolicy, MrsCountsExpertsThatWereNotChosen) {
  const auto policy = NewPolicy(Policy::kMrs, 8);
  const std::vector<model::ExpertChoice> others = {{4, 0.3f}, {5, 0.1f}, {4, 0.3f}};
  policy->Use(Uses({{1, 0.5f}}), others);
  EXPECT_EQ(Victim(*policy, {1, 4}), 1) << "two rows of 0.3 each";
  EXPECT_EQ(Victim(*policy, {4, 5, 1}), 5);
  EXPECT_EQ(Victim(*policy, {5, 6}), 6);
}

// Eq. 3 with a half, over many passes.
TEST(CachePolicy, MrsForgetsWithTime) {
  const auto policy = NewPolicy(Policy::kMrs, 4);
  policy->Use(Uses({{1, 8}}), {});                                  // 4
  for (int i = 0; i < 2; ++i) policy->Use(Uses({{2, 1.25f}}), {});  // 1: 1, 2: 0.9375
  EXPECT_EQ(Victim(*policy, {1, 2}), 2);
  policy->Use(Uses({{2, 1.25f}}), {});  // 1: 0.5, 2: 1.09
  EXPECT_EQ(Victim(*policy, {1, 2}), 1);
}

}  // namespace
}  // namespace moestro::experts
