// Logits and greedy continuations against the transformers implementation, on the generated tiny checkpoints.
#include <algorithm>
#include <cstdio>
#include <string>

#include "common/model/engine.h"
#include "common/model/sampler.h"
#include "gtest/gtest.h"
#include "tests/common/model/engine_harness.h"
#include "tests/common/model/golden_model.h"
#include "tests/common/model/tolerance.h"
#include "tests/support/test_kernels.h"

namespace moestro::model {
namespace {

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + values.size() / 2);
  return values[values.size() / 2];
}

// Every position must be within the tolerance: the prompts were chosen so that rounding does not change the choice of
// experts anywhere (tests/golden/README.md).
void CheckLogits(const weights::ModelSpec& spec, const GoldenCase& golden, const Logits& logits) {
  std::vector<double> ratios;           // largest error over tolerance, per position
  std::vector<double> measured_ratios;  // the same for transformers with BF16 activations
  for (size_t t = 0; t < golden.positions.size(); ++t) {
    const GoldenPosition& position = golden.positions[t];
    const double rms = position.norm / std::sqrt(static_cast<double>(golden.token_count));
    const double tolerance = kSigmas * RelativeDeviation(spec) * rms;
    double worst = 0;
    for (size_t i = 0; i < position.ids.size(); ++i) {
      worst = std::max(worst, std::abs(logits[t][position.ids[i]] - position.logits[i]));
    }
    ratios.push_back(worst / tolerance);
    measured_ratios.push_back(position.measured_deviation / tolerance);
    EXPECT_LE(ratios.back(), 1) << "position " << t << ", router margin " << position.router_margin;
  }
  const double median = Median(ratios);
  const double measured_median = Median(measured_ratios);
  std::printf("%zu tokens: error / tolerance: median %.3f (transformers in BF16 %.3f), largest %.3f\n",
              golden.prompt.size(), median, measured_median, std::ranges::max(ratios));
  // The largest of 80 Gaussian errors has its median at 2.6 deviations.
  EXPECT_LT(median, 2.6 / kSigmas);
  // Transformers' hooks round at fewer places, but their deviation is the largest over the whole vocabulary.
  EXPECT_LT(median, 1.5 * measured_median);
}

// A model, and the form of attention of its prompts.
struct GoldenRun {
  const char* name;
  const absl::StatusOr<TinyModel>& (*model)();
  MlaForm form;
};
constexpr GoldenRun kRuns[] = {
    {"absorbed", Tiny, MlaForm::kAbsorbed},
    {"unabsorbed", Tiny, MlaForm::kUnabsorbed},
    {"grouped", TinyQwen3, MlaForm::kAbsorbed},
    {"grouped_without_norms", TinyMixtral, MlaForm::kAbsorbed},
    {"qwen3_mixed", TinyQwen3Mixed, MlaForm::kAbsorbed},
    {"qwen2", TinyQwen2, MlaForm::kAbsorbed},
    {"dbrx", TinyDbrx, MlaForm::kAbsorbed},
    {"glm", TinyGlm, MlaForm::kAbsorbed},
    {"llama", TinyLlama, MlaForm::kAbsorbed},
    {"gpt_oss", TinyGptOss, MlaForm::kAbsorbed},
    {"minimax", TinyMiniMax, MlaForm::kAbsorbed},
    {"deepseek_v2_absorbed", TinyDeepSeekV2, MlaForm::kAbsorbed},
    {"deepseek_v2_unabsorbed", TinyDeepSeekV2, MlaForm::kUnabsorbed},
    {"deepseek_v2_lite_absorbed", TinyDeepSeekV2Lite, MlaForm::kAbsorbed},
    {"deepseek_v2_lite_unabsorbed", TinyDeepSeekV2Lite, MlaForm::kUnabsorbed},
    {"kimi_k2_absorbed", TinyKimiK2, MlaForm::kAbsorbed},
    {"kimi_k2_unabsorbed", TinyKimiK2, MlaForm::kUnabsorbed},
};

class Golden : public ::testing::TestWithParam<GoldenRun> {
 protected:
  void SetUp() override { ASSERT_TRUE(GetParam().model().ok()) << GetParam().model().status(); }
  MlaForm form() const { return GetParam().form; }
  const TinyModel& model() const { return *GetParam().model(); }
  const weights::ModelSpec& spec() const { return model().owned.segment->spec(); }

  // Feeds the golden tokens one by one; each must be the most likely one. Decoding is absorbed, whatever form the
  // prompt used.
  void CheckGreedy(Engine& engine, const GoldenCase& golden, const TestSequence& sequence, std::vector<float> logits) {
    const kv::KvPages pages[] = {sequence.pages()};
    auto position = static_cast<int64_t>(golden.prompt.size());
    for (size_t step = 0; step < golden.greedy.size(); ++step) {
      const int32_t wanted[] = {golden.greedy[step]};
      const LogprobResult best = ComputeLogprobs(logits, wanted[0], 2);
      EXPECT_EQ(best.top[0].id, wanted[0]) << "step " << step << ", lead " << best.top[0].logprob - best.top[1].logprob;
      logits = Forward(engine, MakeRows(wanted, position++), pages, MlaForm::kAbsorbed)[0];
    }
  }
};

TEST_P(Golden, LogitsAndGreedyContinuation) {
  WorkerPool pool(2);
  auto engine = Engine::Create(*model().owned.segment, TestKernels(), pool, {.max_rows = 128});
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::vector<size_t> lengths;
  for (const GoldenCase& golden : model().cases) {
    lengths.push_back(golden.prompt.size());
    SCOPED_TRACE(golden.prompt.size());
    ASSERT_EQ(golden.checkpoint_crc32, model().crc32) << "golden files belong to another checkpoint";
    ASSERT_EQ(golden.token_count, spec().token_count);
    const TestSequence sequence(spec(), static_cast<int64_t>(golden.prompt.size() + golden.greedy.size()));
    const Logits logits = RunPrompt(**engine, sequence, golden.prompt, 128, form());
    CheckLogits(spec(), golden, logits);
    CheckGreedy(**engine, golden, sequence, logits.back());
  }
  EXPECT_EQ(lengths, (std::vector<size_t>{1, 2, 63, 64, 65, 300}));  // both sides of a page's 64 positions
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, ::testing::ValuesIn(kRuns), [](const auto& run) { return run.param.name; });

}  // namespace
}  // namespace moestro::model
