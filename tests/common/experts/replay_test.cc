#include "common/experts/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace moestro::experts {
namespace {

// Two layers, two experts per token; layer 1 always uses the same ones.
class ReplayTest : public testing::Test {
 protected:
  ReplayTest() {
    const auto writer =
        model::RoutingTraceWriter::Create(
            path_,
            {.fingerprint = "f", .first_moe_layer = 3, .moe_layers = 2, .num_experts = 8, .experts_per_token = 2})
            .value();
    const auto pass = [&](bool prompt, const std::vector<model::ExpertChoice>& first) {
      const std::vector<model::TracedToken> tokens(first.size() / 2, {.sequence = 1, .position = 0, .prompt = prompt});
      std::vector<model::ExpertChoice> second;
      for (size_t i = 0; i < tokens.size(); ++i) second.insert(second.end(), {{0, 1}, {1, 1}});
      writer->Begin(tokens);
      writer->Note(0, 0, first);
      writer->Note(1, 0, second);
      EXPECT_TRUE(writer->End().ok());
    };
    pass(true, {{5, 1}, {6, 1}});
    pass(false, {{2, 1}, {3, 1}, {2, 1}, {4, 1}});
    pass(false, {{2, 1}, {4, 1}});
  }
  ~ReplayTest() override { std::filesystem::remove(path_); }

  absl::StatusOr<CacheCounts> Replay(int64_t slots, bool prompts) const {
    const auto reader = model::RoutingTraceReader::Open(path_).value();
    ExpertPlanner planner({.moe_layers = 2, .num_experts = 8, .slots = slots, .most_loads = 8});
    return ReplayExperts(*reader, prompts, /*prefetch_layers=*/0, planner);
  }

  const std::string path_ = testing::TempDir() + "replay_test_trace-" + std::to_string(getpid());
};

TEST_F(ReplayTest, CountsHitsByExpertAndByRow) {
  const CacheCounts counts = *Replay(/*slots=*/8, /*prompts=*/false);
  EXPECT_EQ(counts.misses, 3 + 2);
  EXPECT_EQ(counts.hits, 2 + 2);
  EXPECT_EQ(counts.row_misses, 4 + 4);
  EXPECT_EQ(counts.row_hits, 2 + 2);
  EXPECT_EQ(counts.loads, 5);
  EXPECT_DOUBLE_EQ(counts.HitRate(), 4.0 / 9);
  EXPECT_DOUBLE_EQ(counts.RowHitRate(), 4.0 / 12);
}

TEST_F(ReplayTest, PromptsCountWhenAskedFor) { EXPECT_EQ(Replay(8, /*prompts=*/true)->misses, 2 + 2 + 3); }

TEST_F(ReplayTest, AFewSlotsHoldAFew) {
  const CacheCounts counts = *Replay(/*slots=*/1, /*prompts=*/false);
  EXPECT_EQ(counts.hits, 1 + 1) << "2 and 0";
}

TEST_F(ReplayTest, ReportsWhatIsWrongWithTheFile) {
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  const auto counts = Replay(2, /*prompts=*/true);
  EXPECT_EQ(counts.status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace moestro::experts
