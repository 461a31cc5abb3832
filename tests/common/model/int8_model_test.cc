// Models in INT8 from the checkpoint on: make-model, inventory, packing, engine.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include "common/model/engine.h"
#include "gtest/gtest.h"
#include "services/cli/model/make_model/make_model.h"
#include "tests/common/model/engine_harness.h"
#include "tests/common/model/tolerance.h"
#include "tests/support/reference_model.h"
#include "tests/support/segment_from_checkpoint.h"
#include "tests/support/test_kernels.h"

namespace moestro::model {
namespace {

using Rounding = ReferenceModel::Rounding;

// What another choice of codes may change in a model of one layer, relative to the logits: codes are 1/127 of the
// largest input, which is up to 4 deviations of the inputs. So rounding one input has a deviation of 4 / 127 /
// sqrt(12). The longest chain has 5: inputs of q_a, q_b, o, up and down.
const double kOtherCodes = kSigmas * 4 / 127 * std::sqrt(5.0 / 12);

constexpr int64_t kTokens = 66;  // a page boundary

OwnedSegment MakeSegment(const std::string& preset, const std::string& weights) {
  const auto directory =
      std::filesystem::path(::testing::TempDir()) / ("int8_" + preset + weights + "." + std::to_string(::getpid()));
  const absl::Status made = cli::MakeModel(
      {.preset = preset, .out_dir = directory.string(), .layers = 1, .vocab_rows = 1472, .weights = weights}, nullptr);
  EXPECT_TRUE(made.ok()) << made;
  auto owned = BuildSegmentInMemory(directory.string());
  std::filesystem::remove_all(directory);
  EXPECT_TRUE(owned.ok()) << owned.status();
  return *std::move(owned);
}

class Int8Model : public ::testing::TestWithParam<const char*> {
 protected:
  static MlaForm FormOf(Rounding rounding) {
    return rounding == Rounding::kUnabsorbed ? MlaForm::kUnabsorbed : MlaForm::kAbsorbed;
  }
  static Logits Run(const weights::WeightSegment& segment, const CpuKernels& kernels, MlaForm form) {
    WorkerPool pool(2);
    auto engine = Engine::Create(segment, kernels, pool, {.max_rows = kTokens});
    EXPECT_TRUE(engine.ok()) << engine.status();
    const TestSequence sequence(segment.spec(), kTokens);
    return RunPrompt(**engine, sequence, RandomTokens(kTokens, segment.spec().token_count, 5), 48, form);
  }
};

// Against double precision with the same roundings, in which the products of codes are integers. As in EngineRoundings,
// a sum on the other side of a BF16 boundary shows in few positions.
TEST_P(Int8Model, SameRoundingsOnEveryTable) {
  for (const char* const weights : {"int8", "w8a8_int8"}) {
    const OwnedSegment model = MakeSegment(GetParam(), weights);
    const weights::ModelSpec& spec = model.segment->spec();
    int64_t matrices = 0;
    for (const weights::TensorEntry& entry : model.segment->directory()) matrices += entry.dtype == DType::kI8;
    EXPECT_GT(matrices, 3);
    for (const Rounding rounding : {Rounding::kAbsorbed, Rounding::kUnabsorbed}) {
      const auto expected = ReferenceModel(*model.segment).Run(RandomTokens(kTokens, spec.token_count, 5), rounding);
      for (const CpuKernels* kernels : EveryTestKernels()) {
        const Logits logits = Run(*model.segment, *kernels, FormOf(rounding));
        std::vector<double> errors;
        for (int64_t t = 0; t < kTokens; ++t) {
          const auto valid = std::span(expected.logits[t]).first(spec.token_count);
          errors.push_back(ToleranceRatio(spec, logits[t], valid) * kSigmas * RelativeDeviation(spec));
        }
        std::ranges::sort(errors);
        std::printf("%s %s: median error 2^%.1f, largest 2^%.1f\n", weights, std::string(kernels->isa).c_str(),
                    std::log2(errors[kTokens / 2]), std::log2(errors.back()));
        EXPECT_LT(errors[kTokens / 2], 0x1p-17);
        EXPECT_LT(errors.back(), kOtherCodes);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, Int8Model, ::testing::Values("tiny", "tiny-qwen3"),
                         [](const auto& run) { return std::string(run.param) == "tiny" ? "latent" : "grouped"; });

}  // namespace
}  // namespace moestro::model
