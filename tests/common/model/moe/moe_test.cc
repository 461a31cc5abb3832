#include "common/model/moe/moe.h"

#include <cmath>
#include <random>
#include <vector>

#include "common/model/binding.h"
#include "gtest/gtest.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro::model {
namespace {

constexpr int64_t kRows = 9;

// Rows 0..2 choose the same experts (contiguous, read in place); others overlap with gaps (gathered).
std::vector<ExpertChoice> Choices(const weights::ModelSpec& spec) {
  std::vector<ExpertChoice> choices;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int32_t i = 0; i < spec.experts_per_token; ++i) {
      const int32_t expert = row < 3 ? i : static_cast<int32_t>(row % 3) + 2 * i;
      choices.push_back({expert, 0.25f + 0.125f * static_cast<float>(row + i)});
    }
  }
  return choices;
}

// The residual after layer `layer` of the small model, for fixed inputs.
std::vector<float> Result(const WorkerPool::Options& options, MoeSync sync, int64_t layer, int64_t first_row,
                          int64_t rows) {
  static const SyntheticSegment model = MakeSyntheticSegment({.spec = SmallSpec()});
  static const ModelWeights weights = BindWeights(*model.segment).value();
  const weights::ModelSpec& spec = model.segment->spec();
  WorkerPool pool(options);
  ExpertBuffers buffers(spec, kRows, pool.threads(), DenseWidth(spec));
  const MoeContext context{{spec, TestKernels(), pool}, buffers};
  const RowBuffers memory(spec, kRows);
  const RowsView view = memory.View({0, rows});
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * spec.hidden_size);
  for (float& value : x) value = normal(random);
  const int64_t begin = first_row * spec.hidden_size;
  const int64_t count = rows * spec.hidden_size;
  context.kernels.to_bf16(x.data() + begin, count, view.x);
  std::copy_n(x.data() + begin, count, view.residual);
  const FeedForwardWeights& mlps = weights.layers[layer].feed_forward;
  const std::vector<ExpertChoice> choices = Choices(spec);
  const bool is_dense = mlps.experts.empty();
  RunMoe(context, mlps, view,
         is_dense ? std::span<const ExpertChoice>()
                  : std::span(choices).subspan(first_row * spec.experts_per_token, rows * spec.experts_per_token),
         sync);
  return {view.residual, view.residual + count};
}

TEST(Moe, BitsDependOnNeitherThreadsDomainsNorSynchronization) {
  for (const int64_t layer : {0, 1}) {  // a dense one and one with experts
    const std::vector<float> expected = Result({.threads = 1}, MoeSync::kGlobal, layer, 0, kRows);
    for (const float value : expected) ASSERT_TRUE(std::isfinite(value));
    for (const int domains : {1, 2, 3}) {
      for (const int threads : {3, 5}) {
        for (const MoeSync sync : {MoeSync::kPerExpert, MoeSync::kGlobal}) {
          EXPECT_EQ(Result({.threads = threads, .domains = domains}, sync, layer, 0, kRows), expected)
              << threads << " threads, " << domains << " domains";
        }
      }
    }
  }
}

TEST(Moe, ARowComesOutAsIfItWereAlone) {
  const int64_t hidden = SmallSpec().hidden_size;
  const std::vector<float> together = Result({.threads = 2}, MoeSync::kPerExpert, 1, 0, kRows);
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<float> alone = Result({.threads = 2}, MoeSync::kPerExpert, 1, row, 1);
    const auto begin = together.begin() + row * hidden;
    EXPECT_EQ(alone, std::vector<float>(begin, begin + hidden)) << row;
  }
}

// Many short layers: waits inside a run must neither hang nor miss another thread's writes.
TEST(Moe, ManyTimes) {
  const std::vector<float> expected = Result({.threads = 1}, MoeSync::kPerExpert, 1, 0, kRows);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(Result({.threads = 4, .domains = 1 + i % 2}, MoeSync::kPerExpert, 1, 0, kRows), expected) << i;
  }
}

}  // namespace
}  // namespace moestro::model
