#include "common/model/routing_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/tensor/dtype.h"
#include "tests/common/model/engine_harness.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro::model {
namespace {

// Layers 1, 3, 5, 6 and 7 have experts.
weights::ModelSpec Spec() {
  weights::ModelSpec spec = SmallMixedSpec();
  spec.num_layers = 8;
  return spec;
}

class RoutingRecorderTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 6;
  struct Seen {
    std::vector<ExpertChoice> choices;
    std::vector<uint16_t> x;
  };

  RoutingRecorderTest() : model_(MakeSyntheticSegment({.spec = Spec()})), weights_(*BindWeights(*model_.segment)) {}
  ~RoutingRecorderTest() override { std::filesystem::remove(path_); }
  const weights::ModelSpec& spec() const { return model_.segment->spec(); }

  // Records one pass over a prompt, and keeps what the engine told of each layer.
  RoutingStep Record() {
    WorkerPool pool(3);
    const auto recorder = RoutingRecorder::Create(path_, *model_.segment, TestKernels(), pool, kRows).value();
    const auto note = [&](const LayerRouting& routing) {
      recorder->Note(routing);
      seen_[spec().MoeLayersBelow(routing.layer)] = {{routing.choices.begin(), routing.choices.end()},
                                                     {routing.x, routing.x + kRows * spec().hidden_size}};
    };
    const auto engine =
        Engine::Create(*model_.segment, TestKernels(), pool, {.max_rows = kRows, .on_routing = note}).value();
    const std::vector<TracedToken> tokens(kRows, TracedToken{.sequence = 4, .position = 0, .prompt = true});
    recorder->trace().Begin(tokens);
    RunPrompt(*engine, TestSequence(spec(), 64), RandomTokens(kRows, spec().token_count, 1), kRows, MlaForm::kAbsorbed);
    EXPECT_TRUE(recorder->trace().End().ok());
    const auto reader = RoutingTraceReader::Open(path_).value();
    trace_ = reader->model();
    RoutingStep step;
    EXPECT_TRUE(reader->Next(step).value());
    return step;
  }

  const FeedForwardWeights& Layer(int64_t moe_layer) const {
    return weights_.layers[static_cast<size_t>(spec().MoeLayer(moe_layer))].feed_forward;
  }
  // What `later`'s router says of a row that `layer` read, in double precision.
  std::vector<float> Logits(int64_t layer, int64_t later, int64_t row) {
    const int64_t hidden = spec().hidden_size;
    std::vector<float> logits;
    for (int64_t e = 0; e < spec().num_experts; ++e) {
      double sum = 0;
      for (int64_t h = 0; h < hidden; ++h) {
        sum += static_cast<double>(Layer(later).router[e * hidden + h]) *
               FromBf16(seen_[layer].x[static_cast<size_t>(row * hidden + h)]) * Layer(later).norm[h] /
               Layer(layer).norm[h];
      }
      logits.push_back(static_cast<float>(sum));
    }
    return logits;
  }
  std::span<const float> Bias(int64_t layer) const {
    return {Layer(layer).bias, static_cast<size_t>(spec().num_experts)};
  }

  const std::string path_ = testing::TempDir() + "routing_recorder_trace-" + std::to_string(getpid());
  const SyntheticSegment model_;
  const ModelWeights weights_;
  std::map<int64_t, Seen> seen_;  // by MoE layer
  RoutingTraceModel trace_;
};

TEST_F(RoutingRecorderTest, RecordsChoicesAndWhatWasNext) {
  const RoutingStep step = Record();
  const int64_t k = spec().experts_per_token;
  ASSERT_EQ(trace_.moe_layers, 5);
  ASSERT_EQ(trace_.scores_per_token, std::min(k, spec().num_experts - k));
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t layer = 0; layer < 5; ++layer) {
      std::vector<ExpertChoice> chosen;
      for (int64_t i = 0; i < k; ++i) {
        const ExpertChoice& told = seen_[layer].choices[static_cast<size_t>(row * k + i)];
        const ExpertChoice& read = step.choices[static_cast<size_t>((row * 5 + layer) * k + i)];
        EXPECT_EQ(read.expert, told.expert);
        EXPECT_EQ(read.weight, FromBf16(ToBf16(told.weight)));
        chosen.push_back(told);
      }
      std::vector<ExpertChoice> next(static_cast<size_t>(trace_.scores_per_token));
      NextExperts(spec(), Logits(layer, layer, row), Bias(layer), chosen, next);
      for (int64_t i = 0; i < trace_.scores_per_token; ++i) {
        const ExpertChoice& read = step.others[static_cast<size_t>((row * 5 + layer) * trace_.scores_per_token + i)];
        EXPECT_EQ(read.expert, next[static_cast<size_t>(i)].expert) << row << " " << layer;
        EXPECT_NEAR(read.weight, next[static_cast<size_t>(i)].weight, 0.01 * next[static_cast<size_t>(i)].weight);
      }
    }
  }
}

TEST_F(RoutingRecorderTest, RecordsWhatThreeLayersBeforePredicted) {
  const RoutingStep step = Record();
  ASSERT_EQ(trace_.predicted_layers, 3);
  int64_t compared = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t layer = 0; layer < 5; ++layer) {
      for (int64_t ahead = 1; ahead <= 3; ++ahead) {
        std::vector<uint8_t> expected(static_cast<size_t>(trace_.set_bytes()), 0);
        if (layer >= ahead) {
          std::vector<ExpertChoice> chosen(static_cast<size_t>(spec().experts_per_token));
          ASSERT_TRUE(ChooseExperts(spec(), Logits(layer - ahead, layer, row), Bias(layer), chosen).ok());
          for (const ExpertChoice& choice : chosen) {
            expected[static_cast<size_t>(choice.expert / 8)] |= static_cast<uint8_t>(1 << choice.expert % 8);
          }
          ++compared;
        }
        const auto begin = step.predicted.begin() + trace_.SetAt(row, layer, ahead);
        EXPECT_EQ(std::vector<uint8_t>(begin, begin + trace_.set_bytes()), expected)
            << row << " " << layer << " " << ahead;
      }
    }
  }
  EXPECT_EQ(compared, kRows * (4 + 3 + 2));
}

TEST_F(RoutingRecorderTest, AModelWithoutExpertsCannotBeTraced) {
  weights::ModelSpec dense = SmallSpec();
  dense.first_dense_layers = dense.num_layers;
  const SyntheticSegment model = MakeSyntheticSegment({.spec = dense});
  WorkerPool pool(1);
  EXPECT_THAT(RoutingRecorder::Create(path_, *model.segment, TestKernels(), pool, kRows).status().message(),
              testing::HasSubstr("0 layers of experts"));
}

}  // namespace
}  // namespace moestro::model
