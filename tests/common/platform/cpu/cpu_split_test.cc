#include "common/platform/cpu_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "common/platform/numa.h"

namespace moestro {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A machine with Linux's CPU numbering: first one hardware thread of every core, then the second ones.
std::vector<CpuPlace> Machine(const std::vector<int>& cores_of_nodes, int threads_per_core) {
  std::vector<CpuPlace> places;
  int cpu = 0;
  for (int thread = 0; thread < threads_per_core; ++thread) {
    int core = 0;
    for (size_t node = 0; node < cores_of_nodes.size(); ++node) {
      for (int i = 0; i < cores_of_nodes[node]; ++i) places.push_back({cpu++, static_cast<int>(node), core++});
    }
  }
  return places;
}

TEST(CpuSplitTest, OneNode) {
  EXPECT_THAT(SplitCpus(Machine({2}, 1)).decode, ElementsAre(0));
  EXPECT_THAT(SplitCpus(Machine({2}, 1)).prefill, ElementsAre(1));
  EXPECT_THAT(SplitCpus(Machine({5}, 1)).decode, ElementsAre(0, 2, 4));
  EXPECT_THAT(SplitCpus(Machine({5}, 1)).prefill, ElementsAre(1, 3));
}

TEST(CpuSplitTest, HardwareThreadsOfACoreStayTogether) {
  const CpuSplit split = SplitCpus(Machine({4}, 2));
  EXPECT_THAT(split.decode, ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(split.prefill, ElementsAre(1, 3, 5, 7));
  // Desktop numbering: the two threads of a core are neighbours; then single-threaded efficiency cores.
  const CpuPlace hybrid[] = {{0, 0, 0}, {1, 0, 0}, {2, 0, 2}, {3, 0, 2}, {4, 0, 4}, {5, 0, 5}, {6, 0, 6}, {7, 0, 7}};
  EXPECT_THAT(SplitCpus(hybrid).decode, ElementsAre(0, 1, 4, 6));
  EXPECT_THAT(SplitCpus(hybrid).prefill, ElementsAre(2, 3, 5, 7));
}

TEST(CpuSplitTest, OneThreadOfEachCore) {
  EXPECT_THAT(OnePerCore(Machine({2, 1}, 2)), ElementsAre(0, 1, 2));
  const CpuPlace hybrid[] = {{0, 0, 0}, {1, 0, 0}, {3, 0, 2}, {4, 0, 4}};
  EXPECT_THAT(OnePerCore(hybrid), ElementsAre(0, 3, 4)) << "of core 2 the process may use the second thread only";
  EXPECT_THAT(OnePerCore({}), IsEmpty());
}

TEST(CpuSplitTest, EveryNodeIsSplit) {
  const CpuSplit split = SplitCpus(Machine({3, 2}, 1));
  EXPECT_THAT(split.decode, ElementsAre(0, 2, 3));
  EXPECT_THAT(split.prefill, ElementsAre(1, 4));
}

TEST(CpuSplitTest, FewCoresForAPrefillWithAGpu) {
  const auto split = [](const std::vector<int>& cores_of_nodes, int threads) {
    return SplitCpus(Machine(cores_of_nodes, threads), CpuSplitKind::kFewForPrefill);
  };
  EXPECT_THAT(split({6}, 1).decode, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(split({6}, 1).prefill, ElementsAre(4, 5));
  EXPECT_THAT(split({4, 5}, 2).prefill, ElementsAre(2, 3, 7, 8, 11, 12, 16, 17));
  EXPECT_THAT(split({3}, 1).prefill, ElementsAre(1));  // half, rounded down
  EXPECT_THAT(split({1}, 1).decode, ElementsAre(0));
  EXPECT_THAT(split({1}, 1).prefill, ElementsAre(0));
}

TEST(CpuSplitTest, OneCoreIsShared) {
  EXPECT_THAT(SplitCpus(Machine({1}, 2)).decode, ElementsAre(0, 1));
  EXPECT_THAT(SplitCpus(Machine({1}, 2)).prefill, ElementsAre(0, 1));
}

TEST(CpuSplitTest, NodesOfOneCoreEach) {
  EXPECT_THAT(SplitCpus(Machine({1, 1, 1}, 1)).decode, ElementsAre(0, 2));
  EXPECT_THAT(SplitCpus(Machine({1, 1, 1}, 1)).prefill, ElementsAre(1));
  EXPECT_THAT(SplitCpus(Machine({1, 3}, 1)).decode, ElementsAre(0, 1, 3));
  EXPECT_THAT(SplitCpus(Machine({1, 3}, 1)).prefill, ElementsAre(2));
}

TEST(CpuSplitTest, NothingInNothingOut) { EXPECT_THAT(SplitCpus({}).decode, IsEmpty()); }

// Properties on every machine: 1 to 3 nodes of 1 to 9 cores with 1 to 4 threads, complete or with CPUs removed.
TEST(CpuSplitTest, InvariantsOfManyMachines) {
  std::vector<std::vector<int>> shapes;
  for (int a = 1; a <= 9; ++a) {
    shapes.push_back({a});
    for (int b = 1; b <= 9; ++b) {
      shapes.push_back({a, b});
      shapes.push_back({a, b, 10 - a});
    }
  }
  for (const std::vector<int>& shape : shapes) {
    for (int threads = 1; threads <= 4; ++threads) {
      for (int missing = 0; missing <= 3; ++missing) {
        std::vector<CpuPlace> places = Machine(shape, threads);
        if (missing > 0) std::erase_if(places, [&](const CpuPlace& place) { return place.cpu % (missing + 1) == 1; });
        if (places.empty()) continue;
        const CpuSplit split = SplitCpus(places);
        EXPECT_TRUE(std::ranges::is_sorted(split.decode) && std::ranges::is_sorted(split.prefill));
        const std::set<int> decode(split.decode.begin(), split.decode.end());
        const std::set<int> prefill(split.prefill.begin(), split.prefill.end());
        std::set<int> cores;
        std::map<int, std::set<int>> decode_cores, prefill_cores;  // by node
        std::map<int, bool> is_decode;                             // by core
        for (const CpuPlace& place : places) {
          cores.insert(place.core);
          ASSERT_TRUE(decode.contains(place.cpu) || prefill.contains(place.cpu));
          if (decode.contains(place.cpu)) decode_cores[place.node].insert(place.core);
          if (prefill.contains(place.cpu)) prefill_cores[place.node].insert(place.core);
          const auto [known, is_new] = is_decode.emplace(place.core, decode.contains(place.cpu));
          ASSERT_EQ(known->second, decode.contains(place.cpu)) << "core " << place.core << " is split";
        }
        ASSERT_FALSE(decode.empty());
        ASSERT_FALSE(prefill.empty());
        if (cores.size() == 1) {
          ASSERT_EQ(decode, prefill);
          continue;
        }
        ASSERT_EQ(decode.size() + prefill.size(), places.size()) << "disjoint";
        bool single_cores = true;
        for (const CpuPlace& place : places) {
          single_cores = single_cores && decode_cores[place.node].size() + prefill_cores[place.node].size() == 1;
        }
        for (const CpuPlace& place : places) {
          const size_t all = decode_cores[place.node].size() + prefill_cores[place.node].size();
          if (!single_cores) {
            ASSERT_EQ(decode_cores[place.node].size(), (all + 1) / 2);
          }
        }
        std::ranges::reverse(places);
        const CpuSplit again = SplitCpus(places);
        ASSERT_EQ(again.decode, split.decode) << "the order does not matter";
      }
    }
  }
}

TEST(CpuPlaces, OfThisMachine) {
  const std::vector<int> allowed = AllowedCpus();
  const std::vector<CpuPlace> places = ReadCpuPlaces(allowed);
  ASSERT_EQ(places.size(), allowed.size());
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(places[i].cpu, allowed[i]);
    EXPECT_GE(places[i].node, 0);
    EXPECT_LE(places[i].core, places[i].cpu) << "the lowest of its hardware threads";
  }
}

}  // namespace
}  // namespace moestro
