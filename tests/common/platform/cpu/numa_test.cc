#include "common/platform/numa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace moestro {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(NumaNodes, HoldTheAllowedCpusOnce) {
  std::vector<int> cpus;
  for (const NumaNode& node : ReadNumaNodes()) {
    EXPECT_FALSE(node.cpus.empty());
    cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
  }
  std::ranges::sort(cpus);
  EXPECT_EQ(cpus, AllowedCpus());
}

TEST(NumaDomains, OneNodeEach) {
  const NumaNode nodes[] = {{0, {0, 1, 4}}, {2, {2, 3}}};
  const std::vector<NumaDomain> domains = MakeNumaDomains(nodes, 2);
  EXPECT_THAT(domains[0].cpus, ElementsAre(0, 1, 4));
  EXPECT_THAT(domains[0].nodes, ElementsAre(0));
  EXPECT_THAT(domains[1].cpus, ElementsAre(2, 3));
  EXPECT_THAT(domains[1].nodes, ElementsAre(2));
}

TEST(NumaDomains, SeveralNodesEach) {
  const NumaNode nodes[] = {{0, {0}}, {1, {1}}, {2, {2}}, {3, {3}}};
  const std::vector<NumaDomain> domains = MakeNumaDomains(nodes, 2);
  EXPECT_THAT(domains[0].cpus, ElementsAre(0, 1));
  EXPECT_THAT(domains[0].nodes, ElementsAre(0, 1));
  EXPECT_THAT(domains[1].nodes, ElementsAre(2, 3));
  EXPECT_THAT(MakeNumaDomains(nodes, 1)[0].nodes, ElementsAre(0, 1, 2, 3));
}

TEST(NumaDomains, CutOneNodeApart) {
  const NumaNode nodes[] = {{0, {3, 4, 5, 6, 7}}};
  const std::vector<NumaDomain> domains = MakeNumaDomains(nodes, 2);
  EXPECT_THAT(domains[0].cpus, ElementsAre(3, 4));
  EXPECT_THAT(domains[1].cpus, ElementsAre(5, 6, 7));
  EXPECT_THAT(domains[0].nodes, IsEmpty());
}

TEST(NumaDomains, MoreThanCpus) {
  const NumaNode nodes[] = {{0, {7}}};
  const std::vector<NumaDomain> domains = MakeNumaDomains(nodes, 2);
  EXPECT_THAT(domains[0].cpus, IsEmpty());
  EXPECT_THAT(domains[1].cpus, ElementsAre(7));
}

TEST(ScopedAffinityTest, NarrowsAndRestores) {
  const std::vector<int> before = AllowedCpus();
  {
    const int first[] = {before.front()};
    const ScopedAffinity pinned(first);
    EXPECT_THAT(AllowedCpus(), ElementsAre(before.front()));
    const ScopedAffinity nothing({});
    EXPECT_THAT(AllowedCpus(), ElementsAre(before.front()));
  }
  EXPECT_EQ(AllowedCpus(), before);
}

TEST(PlaceNewPages, TheSystemSaysYesOrWhyNot) {
  const absl::Status status = PlaceNewPagesIn({AllowedCpus(), {ReadNumaNodes().front().id}});
  if (absl::IsPermissionDenied(status) || absl::IsUnimplemented(status)) GTEST_SKIP() << status;
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(PlaceNewPagesIn({}).ok());
}

}  // namespace
}  // namespace moestro
