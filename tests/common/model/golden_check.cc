#include "tests/common/model/golden_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "common/model/engine.h"
#include "common/model/sampler.h"
#include "gtest/gtest.h"
#include "tests/common/model/engine_harness.h"
#include "tests/common/model/tolerance.h"
#include "tests/support/test_kernels.h"

namespace moestro::model {
namespace {

// Relative to the root mean square of a position's logits.
double Tolerance(const weights::WeightSegment& segment) {
  const weights::ModelSpec& spec = segment.spec();
  const bool int8 =
      std::ranges::any_of(segment.directory(), [](const auto& entry) { return entry.dtype == DType::kI8; });
  return kSigmas * std::hypot(RelativeDeviation(spec), int8 ? Int8Deviation(spec) : 0);
}

// The largest error, as a fraction of the tolerance.
double ExpectLogits(const GoldenCase& golden, const Logits& logits, double tolerance) {
  EXPECT_EQ(logits.size(), golden.positions.size());
  double worst = 0;
  for (size_t t = 0; t < std::min(logits.size(), golden.positions.size()); ++t) {
    const GoldenPosition& position = golden.positions[t];
    const double allowed = tolerance * position.norm / std::sqrt(static_cast<double>(golden.token_count));
    for (size_t i = 0; i < position.ids.size(); ++i) {
      const double actual = logits[t][static_cast<size_t>(position.ids[i])];
      EXPECT_NEAR(actual, position.logits[i], allowed) << "position " << t << ", token " << position.ids[i];
      worst = std::max(worst, std::abs(actual - position.logits[i]) / allowed);
    }
  }
  return worst;
}

}  // namespace

void ExpectGolden(const weights::WeightSegment& segment, const GoldenCase& golden) {
  const weights::ModelSpec& spec = segment.spec();
  ASSERT_EQ(golden.token_count, spec.token_count);
  WorkerPool pool(2);
  const auto engine = Engine::Create(segment, TestKernels(), pool, {.max_rows = 16});
  ASSERT_TRUE(engine.ok()) << engine.status();
  for (const MlaForm form : {MlaForm::kAbsorbed, MlaForm::kUnabsorbed}) {
    const TestSequence sequence(spec, std::ssize(golden.prompt) + std::ssize(golden.greedy));
    const Logits prompt = RunPrompt(**engine, sequence, golden.prompt, 16, form);
    std::printf("largest error / tolerance %.3f\n", ExpectLogits(golden, prompt, Tolerance(segment)));
    std::vector<float> logits = prompt.back();
    auto position = std::ssize(golden.prompt);
    for (const int32_t token : golden.greedy) {
      EXPECT_EQ(ComputeLogprobs(logits, token, 1).top[0].id, token) << "position " << position;
      const int32_t next[] = {token};
      const kv::KvPages pages[] = {sequence.pages()};
      logits = Forward(**engine, MakeRows(next, position++), pages, form)[0];
    }
  }
}

}  // namespace moestro::model
