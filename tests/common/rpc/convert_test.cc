#include "common/rpc/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(ConvertTest, ATopPOfZeroIsOff) {
  v1::Sampling sampling;
  sampling.set_temperature(0.5f);
  EXPECT_EQ(FromProto(sampling).top_p, 1.0f);
  sampling.set_top_p(0.25f);
  EXPECT_EQ(FromProto(sampling).top_p, 0.25f);
  EXPECT_EQ(FromProto(sampling).temperature, 0.5f);
}

TEST(ConvertTest, AScoreWithoutALogprobStaysWithout) {
  const ScoredToken first = FromProto(ToProto(ScoredToken{.id = 7, .logprob = std::nullopt, .top = {}}));
  EXPECT_EQ(first.id, 7);
  EXPECT_EQ(first.logprob, std::nullopt);
  const ScoredToken next = FromProto(ToProto(ScoredToken{.id = 8, .logprob = 0, .top = {{9, -1.5f}}}));
  EXPECT_EQ(next.logprob, 0.0f);
  ASSERT_EQ(next.top.size(), 1u);
  EXPECT_EQ(next.top[0].id, 9);
  EXPECT_EQ(next.top[0].logprob, -1.5f);
}

TEST(ConvertTest, ALeaseKeepsItsPagesInOrder) {
  const KvLease lease = FromProto(ToProto(KvLease{.pool = "pool", .slot = 3, .id = 5, .pages = {4, 1, 2}}));
  EXPECT_EQ(lease.pool, "pool");
  EXPECT_EQ(lease.slot, 3u);
  EXPECT_EQ(lease.id, 5u);
  EXPECT_THAT(lease.pages, testing::ElementsAre(4, 1, 2));
}

}  // namespace
}  // namespace moestro
