#include "services/decode/overlap/split.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace moestro::decode {
namespace {

// A batch of sequences with (rows, position of the first one).
size_t Split(const std::vector<std::pair<int64_t, int32_t>>& sequences) {
  std::vector<model::EngineRow> rows;
  model::CheckedBatch batch;
  for (const auto& [count, position] : sequences) {
    const auto begin = static_cast<int64_t>(rows.size());
    for (int32_t i = 0; i < count; ++i) rows.push_back({.position = position + i});
    batch.runs.push_back({begin, begin + count});
  }
  batch.rows = rows;
  return SplitRuns(batch);
}

TEST(SplitRuns, Halves) {
  EXPECT_EQ(Split({{1, 5}, {1, 5}}), 1u);
  EXPECT_EQ(Split({{1, 5}, {1, 5}, {1, 5}, {1, 5}}), 2u);
  EXPECT_EQ(Split({{1, 5}, {1, 5}, {1, 5}, {1, 5}, {1, 5}, {1, 5}}), 3u);
}

TEST(SplitRuns, NeitherPartIsEmpty) {
  EXPECT_EQ(Split({{100, 0}, {1, 5}}), 1u);
  EXPECT_EQ(Split({{1, 5}, {100, 0}}), 1u);
}

TEST(SplitRuns, CountsRows) {
  EXPECT_EQ(Split({{1, 5}, {1, 5}, {1, 5}, {6, 0}}), 3u);
  EXPECT_EQ(Split({{6, 0}, {1, 5}, {1, 5}, {1, 5}}), 1u);
}

TEST(SplitRuns, CountsCachedTokens) {
  EXPECT_EQ(Split({{1, 10}, {1, 10}, {1, 500000}}), 2u);
  EXPECT_EQ(Split({{1, 500000}, {1, 10}, {1, 10}}), 1u);
}

}  // namespace
}  // namespace moestro::decode
