#include "common/model/attention/attention_units.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace moestro::model {
namespace {

std::vector<AttentionUnit> Cut(const AttentionShape& shape, const std::vector<QueryRun>& runs, int64_t wanted_tasks,
                               int64_t window = 0) {
  std::vector<AttentionUnit> units;
  CutUnits(shape, runs, window, wanted_tasks, units);
  return units;
}

TEST(AttentionUnits, HaveEveryQueryOnceAndNoMoreThanFit) {
  const std::vector<QueryRun> runs = {{0, 1, 5000}, {1, 40, 7}, {41, 3, 63}};
  for (const auto& [heads, kv_heads, dim] :
       {std::tuple<int64_t, int64_t, int64_t>{128, 1, 512}, {64, 8, 128}, {16, 16, 128}, {2000, 2, 64}}) {
    const AttentionShape shape{.heads = heads, .kv_heads = kv_heads, .key_dim = dim, .value_dim = dim};
    for (const int64_t wanted_tasks : {1, 8, 1000}) {
      std::vector<int> seen(static_cast<size_t>(44 * heads));
      for (const AttentionUnit& unit : Cut(shape, runs, wanted_tasks)) {
        EXPECT_LE(unit.queries(), UnitQueryLimit(shape));
        const QueryRun& run = runs[static_cast<size_t>(unit.run)];
        EXPECT_EQ(unit.position - run.position, unit.row - run.begin);
        EXPECT_LE(unit.row + unit.rows, run.begin + run.rows);
        for (int64_t i = 0; i < unit.queries(); ++i) {
          const int64_t kv_head = unit.kv_head + i / unit.queries_per_kv_head();
          const int64_t head = kv_head * shape.group() + unit.head + i % unit.heads;
          ++seen[static_cast<size_t>((unit.row + unit.row_of(i)) * heads + head)];
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << heads << " heads, " << wanted_tasks << " tasks";
    }
  }
}

TEST(AttentionUnits, AreCutSmallerForMoreTasksButNotTooSmall) {
  const AttentionShape shape{.heads = 128, .kv_heads = 1, .key_dim = 576, .value_dim = 512};
  EXPECT_EQ(Cut(shape, {{0, 1, 0}}, 1).size(), 1u);
  EXPECT_EQ(Cut(shape, {{0, 1, 0}}, 4).size(), 4u);
  EXPECT_EQ(Cut(shape, {{0, 1, 0}}, 1000).size(), 8u);  // of 16 queries
}

TEST(AttentionUnits, SplitsCountAsTasks) {
  const AttentionShape shape{.heads = 128, .kv_heads = 1, .key_dim = 576, .value_dim = 512};
  const std::vector<AttentionUnit> units = Cut(shape, {{0, 1, 4 * 16 * 64 - 1}}, 4);
  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(MaxSplits(units), 4);
}

TEST(AttentionUnits, BeginAtTheWindowOfTheirFirstRow) {
  const AttentionShape shape{.heads = 4, .kv_heads = 1, .key_dim = 64, .value_dim = 64};
  const std::vector<AttentionUnit> units = Cut(shape, {{0, 3, 2000}}, 1, 129);
  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(units[0].FirstSeen(2000), 1872);
  EXPECT_EQ(units[0].first_block(), 1872 / 64);
  EXPECT_EQ(units[0].first_split(), 1);  // a partial result begins every 1024 tokens
  EXPECT_EQ(units[0].splits(), 1);
  EXPECT_EQ(units[0].FirstSeen(100), 0);
}

}  // namespace
}  // namespace moestro::model
