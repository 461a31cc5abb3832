// Logits and greedy continuations against the transformers implementation, on the generated tiny checkpoint.
#include <unistd.h>

#include <algorithm>
#include <boost/crc.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

#include "common/model/engine.h"
#include "common/model/sampler.h"
#include "gtest/gtest.h"
#include "services/cli/make_model/make_model.h"
#include "tests/common/model/engine_harness.h"
#include "tests/common/model/golden_case.h"
#include "tests/common/model/tolerance.h"
#include "tests/support/segment_from_checkpoint.h"

namespace moestro {
namespace {

constexpr const char kGoldenDirectory[] = "tests/golden/deepseek_v3_tiny";

// CRC-32 of all shards in the order of their names, as golden files record it.
std::string ShardsCrc32(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> shards;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
  }
  std::ranges::sort(shards);
  boost::crc_32_type crc;
  for (const auto& shard : shards) {
    std::ifstream file(shard, std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
    crc.process_bytes(bytes.data(), bytes.size());
  }
  return std::to_string(crc.checksum());
}

struct TinyModel {
  std::string crc32;
  OwnedSegment owned;
  std::vector<GoldenCase> cases;
};

absl::StatusOr<TinyModel> MakeTinyModel() {
  TinyModel model;
  const auto directory = std::filesystem::path(::testing::TempDir()) / ("golden_test." + std::to_string(::getpid()));
  if (absl::Status status = MakeModel({.out_dir = directory.string()}, nullptr); !status.ok()) return status;
  model.crc32 = ShardsCrc32(directory);
  auto owned = BuildSegmentInMemory(directory.string());
  std::filesystem::remove_all(directory);
  if (!owned.ok()) return owned.status();
  model.owned = *std::move(owned);
  auto cases = ReadGoldenCases(kGoldenDirectory);
  if (!cases.ok()) return cases.status();
  model.cases = *std::move(cases);
  return model;
}

const absl::StatusOr<TinyModel>& Tiny() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel();
  return model;
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + values.size() / 2);
  return values[values.size() / 2];
}

// A choice between experts is not continuous: where two of them (or two groups) score alike, rounding decides, and no
// tolerance of logits covers another choice. Router logits have a deviation of 1.5, their error relative to that is
// RelativeDeviation, the sigmoid's slope is at most 1/4, and a margin is the difference of two scores.
double RouterMarginDeviation(const ModelSpec& spec) { return 1.5 * RelativeDeviation(spec) / 4 * std::sqrt(2.0); }

// Whether rounding cannot change the choice (but for 1 in 30000).
bool RoutingIsCertain(const ModelSpec& spec, double margin) { return margin > 4 * RouterMarginDeviation(spec); }

struct Comparison {
  std::vector<double> ratios;           // largest error over tolerance, per position
  std::vector<double> measured_ratios;  // the same of transformers when it rounds activations to BF16
  double expected_flips = 0;            // positions where rounding may choose other experts
};

Comparison Compare(const ModelSpec& spec, const GoldenCase& golden, const Logits& logits) {
  Comparison result;
  for (size_t t = 0; t < golden.positions.size(); ++t) {
    const GoldenPosition& position = golden.positions[t];
    const double rms = position.norm / std::sqrt(static_cast<double>(golden.token_count));
    const double tolerance = kSigmas * RelativeDeviation(spec) * rms;
    double worst = 0;
    for (size_t i = 0; i < position.ids.size(); ++i) {
      worst = std::max(worst, std::abs(logits[t][position.ids[i]] - position.logits[i]));
    }
    result.ratios.push_back(worst / tolerance);
    result.measured_ratios.push_back(position.measured_deviation / tolerance);
    result.expected_flips += 0.5 * std::erfc(position.router_margin / RouterMarginDeviation(spec) / std::sqrt(2.0));
  }
  return result;
}

void CheckLogits(const ModelSpec& spec, const GoldenCase& golden, const Logits& logits) {
  const Comparison comparison = Compare(spec, golden, logits);
  int outside = 0;
  int certain = 0;
  int certain_outside = 0;
  for (size_t t = 0; t < comparison.ratios.size(); ++t) {
    const bool is_outside = comparison.ratios[t] > 1;
    const bool is_certain = RoutingIsCertain(spec, golden.positions[t].router_margin);
    // What starts a deviation must be another choice of experts; later positions attend to it, so that they may be
    // outside too, however certain their own choice is.
    const bool is_first = is_outside && outside == 0;
    EXPECT_FALSE(is_first && is_certain) << "position " << t << ": " << comparison.ratios[t];
    outside += is_outside;
    certain += is_certain;
    certain_outside += is_outside && is_certain;
  }
  const double median = Median(comparison.ratios);
  const double measured_median = Median(comparison.measured_ratios);
  std::printf(
      "%zu tokens: error / tolerance: median %.3f (transformers in BF16 %.3f), largest %.3f; outside: %d "
      "(expected other routings %.1f), of %d with certain routing %d\n",
      golden.prompt.size(), median, measured_median, std::ranges::max(comparison.ratios), outside,
      comparison.expected_flips, certain, certain_outside);
  EXPECT_LE(outside, 1 + 2 * comparison.expected_flips);  // as many again may attend to those
  // In the longest prompt some 20 flips are expected, and most of its positions attend to one: there this says nothing.
  constexpr size_t kShortPrompt = 100;
  if (golden.prompt.size() < kShortPrompt) {
    EXPECT_LE(certain_outside, certain / 10);
  }
  // The largest of 80 Gaussian errors has its median at 2.6 deviations.
  EXPECT_LT(median, 2.6 / kSigmas);
  // Transformers' hooks round at fewer places, but their deviation is the largest over the whole vocabulary.
  EXPECT_LT(median, 1.5 * measured_median);
}

class Golden : public ::testing::TestWithParam<std::tuple<int, MlaForm>> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kGoldenDirectory)) {
      GTEST_SKIP() << kGoldenDirectory << " is missing; tests/golden/README.md says how to make it";
    }
    ASSERT_TRUE(Tiny().ok()) << Tiny().status();
  }
  const CpuKernels& kernels() const { return *AvailableKernels()[std::get<0>(GetParam())]; }
  MlaForm form() const { return std::get<1>(GetParam()); }
  const ModelSpec& spec() const { return Tiny()->owned.segment->spec(); }

  // Feeds the golden tokens one by one. The most likely token must be the golden one; where rounding may choose other
  // experts in one of the steps, one step may have it in the second place. Decoding is absorbed whatever the prompt
  // was.
  void CheckGreedy(Engine& engine, const GoldenCase& golden, const TestSequence& sequence, std::vector<float> logits) {
    const KvPages pages[] = {sequence.pages()};
    int differing = 0;
    auto position = static_cast<int64_t>(golden.prompt.size());
    for (size_t step = 0; step < golden.greedy.size(); ++step) {
      const int32_t wanted[] = {golden.greedy[step]};
      const LogprobResult best = ComputeLogprobs(logits, wanted[0], 2);
      if (best.top[0].id != wanted[0]) {
        ++differing;
        EXPECT_EQ(best.top[1].id, wanted[0]) << "step " << step;
        std::printf("step %zu: token %d leads token %d by %.3f\n", step, best.top[0].id, wanted[0],
                    best.top[0].logprob - best.top[1].logprob);
      }
      logits = Forward(engine, MakeRows(wanted, position++), pages, MlaForm::kAbsorbed)[0];
    }
    EXPECT_LE(differing, golden.greedy_router_margin < RouterMarginDeviation(spec()) ? 1 : 0);
  }
};

TEST_P(Golden, LogitsAndGreedyContinuation) {
  WorkerPool pool(2);
  auto engine = Engine::Create(*Tiny()->owned.segment, kernels(), pool, {.max_rows = 128});
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_FALSE(Tiny()->cases.empty());
  for (const GoldenCase& golden : Tiny()->cases) {
    SCOPED_TRACE(golden.prompt.size());
    ASSERT_EQ(golden.checkpoint_crc32, Tiny()->crc32) << "golden files belong to another checkpoint";
    ASSERT_EQ(golden.token_count, spec().token_count);
    const TestSequence sequence(spec(), static_cast<int64_t>(golden.prompt.size() + golden.greedy.size()));
    const Logits logits = RunPrompt(**engine, sequence, golden.prompt, 128, form());
    CheckLogits(spec(), golden, logits);
    CheckGreedy(**engine, golden, sequence, logits.back());
  }
}

std::string Name(const ::testing::TestParamInfo<std::tuple<int, MlaForm>>& info) {
  return std::string(AvailableKernels()[std::get<0>(info.param)]->isa) +
         (std::get<1>(info.param) == MlaForm::kAbsorbed ? "_absorbed" : "_unabsorbed");
}

INSTANTIATE_TEST_SUITE_P(Kernels, Golden,
                         ::testing::Combine(::testing::Range(0, static_cast<int>(AvailableKernels().size())),
                                            ::testing::Values(MlaForm::kAbsorbed, MlaForm::kUnabsorbed)),
                         Name);

}  // namespace
}  // namespace moestro
