#include "common/model/moe/moe_tasks.h"

#include <gtest/gtest.h>

#include <vector>

namespace moestro::model {
namespace {

constexpr int64_t kHidden = 700;
constexpr int64_t kWidth = 300;
constexpr int64_t kDenseWidth = 650;

// Expert 2 has rows 0 and 2, expert 5 row 1, expert 7 rows 1 and 2.
const std::vector<RoutedRow> kRouted = {{0, 1}, {2, 1}, {1, 1}, {1, 1}, {2, 1}};
const std::vector<ExpertRows> kExperts = {{2, 0, 2}, {5, 2, 1}, {7, 3, 2}};

weights::ModelSpec Spec() {
  weights::ModelSpec spec;
  spec.hidden_size = kHidden;
  spec.moe_intermediate_size = kWidth;
  return spec;
}

void Count(IndexRange rows, std::vector<int>& seen) {
  for (int64_t row = rows.begin; row < rows.end; ++row) ++seen[static_cast<size_t>(row)];
}

TEST(MoeTasks, EveryOutputIsOfOneTask) {
  for (const int domains : {1, 2, 3, 12}) {
    for (const int threads : {12, 64}) {
      const MoeTasks tasks(Spec(), kRouted, kExperts, kDenseWidth, domains, threads);
      std::vector<std::vector<int>> gated(3, std::vector<int>(kWidth));
      gated.emplace_back(kDenseWidth);
      std::vector<int> down(kHidden), gathered(kRouted.size());
      std::vector<int64_t> gate_tasks(4);
      for (int domain = 0; domain < domains; ++domain) {
        Count(tasks.Gather(domain), gathered);
        int64_t last = 0;
        for (int64_t task = 0; task < tasks.GateTasks(domain); ++task) {
          const GateTask gate = tasks.Gate(domain, task);
          EXPECT_GE(gate.expert, last);  // in order
          last = gate.expert;
          Count(gate.rows, gated[static_cast<size_t>(gate.expert)]);
          ++gate_tasks[static_cast<size_t>(gate.expert)];
        }
        for (int64_t task = 0; task < tasks.DownTasks(domain); ++task) Count(tasks.DownRows(domain, task), down);
      }
      for (const std::vector<int>& rows : gated) EXPECT_EQ(rows, std::vector<int>(rows.size(), 1));
      EXPECT_EQ(down, std::vector<int>(kHidden, 1));
      EXPECT_EQ(gathered, std::vector<int>(kRouted.size(), 1));
      for (size_t expert = 0; expert < 3; ++expert) EXPECT_EQ(gate_tasks[expert], tasks.AllExpertTasks());
      EXPECT_EQ(gate_tasks[3], tasks.AllAlwaysTasks());
    }
  }
}

TEST(MoeTasks, NothingIsGatheredWhereRowsLieTogether) {
  EXPECT_FALSE(LiesTogether(kRouted, kExperts[0]));
  EXPECT_TRUE(LiesTogether(kRouted, kExperts[1]));
  EXPECT_TRUE(LiesTogether(kRouted, kExperts[2]));
  const std::vector<ExpertRows> together = {kExperts[1], kExperts[2]};
  EXPECT_EQ(MoeTasks(Spec(), kRouted, together, 0, 1, 4).Gather(0).size(), 0);
}

TEST(MoeTasks, CodedRowsAreGatheredWhereverTheyLie) {
  const std::vector<ExpertRows> together = {kExperts[1], kExperts[2]};
  for (const int domains : {1, 3}) {
    const MoeTasks tasks(Spec(), kRouted, together, kDenseWidth, domains, 4, {.routed = true, .dense_rows = 5});
    EXPECT_EQ(tasks.routed_rows(), std::ssize(kRouted));
    EXPECT_EQ(tasks.Gather(domains - 1).end, std::ssize(kRouted) + 5);
    const MoeTasks dense(Spec(), kRouted, together, kDenseWidth, domains, 4, {.dense_rows = 5});
    EXPECT_EQ(dense.routed_rows(), 0);
    EXPECT_EQ(dense.Gather(domains - 1).end, 5);
  }
}

TEST(MoeTasks, WithoutExpertsOrWithoutWhatAllRowsTake) {
  const MoeTasks dense(Spec(), {}, {}, kDenseWidth, 2, 4);
  EXPECT_EQ(dense.GateTasks(0) + dense.GateTasks(1), dense.AllAlwaysTasks());
  EXPECT_EQ(dense.Gate(0, 0).expert, 0);
  EXPECT_EQ(MoeTasks(Spec(), kRouted, kExperts, 0, 2, 4).AllAlwaysTasks(), 0);
}

}  // namespace
}  // namespace moestro::model
