// How far a GPU's logits and KV may deviate from the CPU's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <vector>

#include "common/model/sampler.h"
#include "common/tensor/dtype.h"
#include "tests/common/model/engine_harness.h"
#include "tests/common/model/tolerance.h"

namespace moestro {

// Two devices that each stay within the tolerance of exact arithmetic differ by at most twice that. If both round the
// same numbers the same way, which is nearly always the case, they differ much less. coded: weights are I8 and inputs
// codes, of which each device may have others.
inline double DeviceTolerance(const weights::ModelSpec& spec, bool coded = false) {
  return model::kSigmas * (2 * model::RelativeDeviation(spec) + (coded ? model::Int8Deviation(spec) : 0));
}

inline void ExpectNear(const weights::ModelSpec& spec, std::span<const float> got, std::span<const float> expected,
                       bool coded = false) {
  ASSERT_EQ(got.size(), expected.size());
  double squares = 0, worst = 0;
  size_t count = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(expected[i])) {  // padding
      ASSERT_EQ(got[i], expected[i]);
      continue;
    }
    squares += double{expected[i]} * expected[i];
    ++count;
    ASSERT_FALSE(std::isnan(got[i])) << i;
    worst = std::max(worst, std::fabs(double{got[i]} - expected[i]));
  }
  EXPECT_LE(worst, DeviceTolerance(spec, coded) * std::sqrt(squares / static_cast<double>(count)));
}

inline void ExpectNear(const weights::ModelSpec& spec, const model::Logits& got, const model::Logits& expected,
                       bool coded = false) {
  ASSERT_LE(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "row " << i << " of the last " << got.size());
    ExpectNear(spec, got[i], expected[expected.size() - got.size() + i], coded);
  }
}

// Layer by layer, because layers have different magnitudes.
inline void ExpectNear(const weights::ModelSpec& spec, const std::vector<uint16_t>& got,
                       const std::vector<uint16_t>& expected, bool coded = false) {
  ASSERT_EQ(got.size(), expected.size());
  std::vector<float> got_floats, expected_floats;
  std::ranges::transform(got, std::back_inserter(got_floats), FromBf16);
  std::ranges::transform(expected, std::back_inserter(expected_floats), FromBf16);
  const size_t layer = got.size() / static_cast<size_t>(spec.num_layers);
  for (size_t at = 0; at < got.size(); at += layer) {
    SCOPED_TRACE(testing::Message() << "KV of layer " << at / layer);
    ExpectNear(spec, std::span(got_floats).subspan(at, layer), std::span(expected_floats).subspan(at, layer), coded);
  }
}

// A prompt suitable for comparing tokens: each of its next `steps` greedy tokens leads the second best by more than two
// logits may differ between devices.
inline std::vector<int32_t> ClearPrompt(model::Engine& engine, int64_t length, int64_t steps) {
  const weights::ModelSpec& spec = engine.spec();
  for (uint32_t seed = 1;; ++seed) {
    const std::vector<int32_t> prompt = model::RandomTokens(length, spec.token_count, seed);
    const model::TestSequence sequence(spec, length + steps);
    const kv::KvPages pages[] = {sequence.pages()};
    std::vector<float> logits =
        model::RunPrompt(engine, sequence, prompt, engine.max_rows(), model::MlaForm::kAbsorbed).back();
    int64_t step = 0;
    for (; step < steps; ++step) {
      const std::vector<double> valid(logits.begin(), logits.begin() + spec.token_count);
      const std::vector<TokenAlternative> best = model::ComputeLogprobs(logits, /*id=*/0, /*top=*/2).top;
      if (best[0].logprob - best[1].logprob <= 2 * DeviceTolerance(spec) * model::RootMeanSquare(valid)) break;
      const int32_t next[] = {best[0].id};
      logits = model::Forward(engine, model::MakeRows(next, length + step), pages, model::MlaForm::kAbsorbed)[0];
    }
    if (step == steps) return prompt;
  }
}

}  // namespace moestro
