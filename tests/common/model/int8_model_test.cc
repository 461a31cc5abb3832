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

OwnedSegment MakeSegment(const std::string& preset, const std::string& weights, int layers) {
  const auto directory =
      std::filesystem::path(::testing::TempDir()) / ("int8_" + preset + weights + "." + std::to_string(::getpid()));
  const absl::Status made = cli::MakeModel(
      {.preset = preset, .out_dir = directory.string(), .layers = layers, .vocab_rows = 1472, .weights = weights},
      nullptr);
  EXPECT_TRUE(made.ok()) << made;
  auto owned = BuildSegmentInMemory(directory.string());
  std::filesystem::remove_all(directory);
  EXPECT_TRUE(owned.ok()) << owned.status();
  return *std::move(owned);
}

// The model of AMX's tiles takes part in the first test only: its kernels have tests of all codes and settings.
class Int8Model : public ::testing::TestWithParam<const char*> {
 protected:
  static MlaForm FormOf(Rounding rounding) {
    return rounding == Rounding::kUnabsorbed ? MlaForm::kUnabsorbed : MlaForm::kAbsorbed;
  }
  static Logits Run(const weights::WeightSegment& segment, const CpuKernels& kernels, MlaForm form, int threads,
                    int domains, int64_t chunk) {
    WorkerPool pool({.threads = threads, .domains = domains});
    auto engine = Engine::Create(segment, kernels, pool, {.max_rows = kTokens});
    EXPECT_TRUE(engine.ok()) << engine.status();
    const TestSequence sequence(segment.spec(), kTokens);
    return RunPrompt(**engine, sequence, RandomTokens(kTokens, segment.spec().token_count, 5), chunk, form);
  }
};

// Against double precision with the same roundings, in which the products of codes are integers. As in EngineRoundings,
// a sum on the other side of a BF16 boundary shows in few positions.
TEST_P(Int8Model, SameRoundingsOnEveryTable) {
  for (const char* const weights : {"int8", "w8a8_int8"}) {
    const OwnedSegment model = MakeSegment(GetParam(), weights, 1);
    const weights::ModelSpec& spec = model.segment->spec();
    int64_t matrices = 0;
    for (const weights::TensorEntry& entry : model.segment->directory()) matrices += entry.dtype == DType::kI8;
    EXPECT_GT(matrices, 3);
    for (const Rounding rounding : {Rounding::kAbsorbed, Rounding::kUnabsorbed}) {
      const auto expected = ReferenceModel(*model.segment).Run(RandomTokens(kTokens, spec.token_count, 5), rounding);
      for (const CpuKernels* kernels : EveryTestKernels()) {
        const Logits logits = Run(*model.segment, *kernels, FormOf(rounding), 2, 1, 48);
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

// The median over the tokens of their logits' root mean square distance: a sum on the other side of a BF16 boundary
// shows in few positions.
double MedianDistance(const Logits& logits, const std::vector<std::vector<double>>& expected, int64_t token_count) {
  std::vector<double> distances;
  for (size_t t = 0; t < logits.size(); ++t) {
    double sum = 0;
    for (int64_t i = 0; i < token_count; ++i) sum += std::pow(logits[t][i] - expected[t][i], 2);
    distances.push_back(std::sqrt(sum / static_cast<double>(token_count)));
  }
  std::ranges::nth_element(distances, distances.begin() + std::ssize(distances) / 2);
  return distances[distances.size() / 2];
}

TEST_P(Int8Model, InputsStayBf16WhereTheSettingSaysSo) {
  const OwnedSegment model = MakeSegment(GetParam(), "int8", 1);
  const weights::ModelSpec& spec = model.segment->spec();
  const auto expected = ReferenceModel(*model.segment, Int8Activations::kBf16)
                            .Run(RandomTokens(kTokens, spec.token_count, 5), Rounding::kAbsorbed);
  for (const CpuKernels* kernels : DistinctKernels()) {
    CpuKernels bf16 = *kernels;
    bf16.int8_activations = Int8Activations::kBf16;
    const Logits logits = Run(*model.segment, bf16, MlaForm::kAbsorbed, 2, 1, 48);
    const Logits published = Run(*model.segment, *kernels, MlaForm::kAbsorbed, 2, 1, 48);
    const double error = MedianDistance(logits, expected.logits, spec.token_count);
    const double other = MedianDistance(published, expected.logits, spec.token_count);
    std::printf("%s: median distance %.2g, with codes %.2g\n", std::string(kernels->isa).c_str(), error, other);
    EXPECT_LT(10 * error, other);
    EXPECT_TRUE(SameBits(Run(*model.segment, bf16, MlaForm::kAbsorbed, 5, 2, 7), logits)) << kernels->isa;
  }
}

// Formats of blocks with coded inputs: near the logits with BF16 inputs, and bits depend on nothing else.
TEST_P(Int8Model, BlocksTakeCodesWhereTheSettingSaysSo) {
  const OwnedSegment model = MakeSegment(GetParam(), "int4", 2);
  const weights::ModelSpec& spec = model.segment->spec();
  for (const CpuKernels* kernels : DistinctKernels()) {
    CpuKernels all = *kernels;
    all.int8_activations = Int8Activations::kAll;
    for (const MlaForm form : {MlaForm::kAbsorbed, MlaForm::kUnabsorbed}) {
      const Logits expected = Run(*model.segment, all, form, 1, 1, kTokens);
      for (const auto& [threads, domains, chunk] :
           {std::tuple(1, 1, 1), std::tuple(2, 1, 7), std::tuple(5, 2, 64), std::tuple(3, 3, 66)}) {
        EXPECT_TRUE(SameBits(Run(*model.segment, all, form, threads, domains, chunk), expected))
            << kernels->isa << ", " << threads << " threads, " << domains << " domains, chunks of " << chunk;
      }
      std::vector<std::vector<double>> exact;
      for (const std::vector<float>& logits : Run(*model.segment, *kernels, form, 2, 1, kTokens)) {
        exact.emplace_back(logits.begin(), logits.end());
      }
      double squares = 0;
      for (int64_t i = 0; i < spec.token_count; ++i) squares += exact[kTokens / 2][i] * exact[kTokens / 2][i];
      const double size = std::sqrt(squares / static_cast<double>(spec.token_count));
      const double distance = MedianDistance(expected, exact, spec.token_count);
      std::printf("%s: median distance %.2g of logits of %.2g\n", std::string(kernels->isa).c_str(), distance, size);
      EXPECT_GT(distance, 0);
      EXPECT_LT(distance, kOtherCodes * size);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, Int8Model, ::testing::Values("tiny", "tiny-qwen3"),
                         [](const auto& run) { return std::string(run.param) == "tiny" ? "latent" : "grouped"; });

}  // namespace
}  // namespace moestro::model
