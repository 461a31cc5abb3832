// Fixtures of tests that run for every type of weights, and for each with inputs in BF16 and in codes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro {

struct TypedRun {
  std::string name;
  SyntheticOptions options;
  Int8Activations int8_activations = Int8Activations::kPublished;
};

// TypedModels(); those with weights that take codes once more, under the setting that changes their inputs.
inline std::vector<TypedRun> TypedRuns() {
  std::vector<TypedRun> runs;
  for (const TypedModel& model : TypedModels()) {
    const SyntheticOptions& options = model.options;
    runs.push_back({model.name, options});
    std::vector<DType> types = options.mixture;
    if (options.type) types.push_back(*options.type);
    if (options.expert_type) types.push_back(*options.expert_type);
    if (std::ranges::count(types, DType::kI8) > 0) {
      runs.push_back({std::string(model.name) + "WithBf16Inputs", options, Int8Activations::kBf16});
    } else if (std::ranges::any_of(types, IsBlockFormat)) {
      runs.push_back({std::string(model.name) + "WithCodedInputs", options, Int8Activations::kAll});
    }
  }
  return runs;
}

// The first base of a fixture: its kernels have the setting before the other bases are made.
class TypedRunTest : public ::testing::WithParamInterface<TypedRun> {
 private:
  const ScopedInt8Activations setting_{GetParam().int8_activations};
};

}  // namespace moestro
