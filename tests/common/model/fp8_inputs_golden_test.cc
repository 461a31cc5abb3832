// Logits with inputs of FP8 weights in FP8: those of transformers with DeepSeek-V3's own rounding.
// tests/golden/README.md, section "fp8_inputs".
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "services/cli/model/make_model/make_model.h"
#include "tests/common/model/engine_harness.h"
#include "tests/common/model/golden_case.h"
#include "tests/common/model/tolerance.h"
#include "tests/support/segment_from_checkpoint.h"
#include "tests/support/test_kernels.h"

namespace moestro::model {
namespace {

class Fp8InputsGolden : public ::testing::Test {
 protected:
  ~Fp8InputsGolden() override { std::filesystem::remove_all(path_); }
  const std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat("fp8_inputs.", ::getpid());
};

TEST_F(Fp8InputsGolden, HasTheReferencesLogits) {
  const absl::Status made = cli::MakeModel({.preset = "tiny", .out_dir = path_.string(), .layers = 1}, nullptr);
  ASSERT_TRUE(made.ok()) << made;
  const absl::StatusOr<OwnedSegment> owned = BuildSegmentInMemory(path_.string());
  ASSERT_TRUE(owned.ok()) << owned.status();
  const weights::ModelSpec& spec = owned->segment->spec();
  const auto cases = ReadGoldenCases("tests/golden/fp8_inputs");
  ASSERT_TRUE(cases.ok()) << cases.status();
  const GoldenCase& golden = cases->front();
  double squares[2] = {};  // of what logits are off by, without the rounding and with it
  for (const bool rounds : {false, true}) {
    CpuKernels kernels = TestKernels();
    kernels.fp8_activations = rounds;
    WorkerPool pool(2);
    const auto engine = Engine::Create(*owned->segment, kernels, pool, {.max_rows = 128});
    ASSERT_TRUE(engine.ok()) << engine.status();
    const TestSequence sequence(spec, std::ssize(golden.prompt));
    const Logits logits = RunPrompt(**engine, sequence, golden.prompt, 128, MlaForm::kUnabsorbed);
    ASSERT_EQ(logits.size(), golden.positions.size());
    for (size_t row = 0; row < logits.size(); ++row) {
      const GoldenPosition& position = golden.positions[row];
      const double rms = position.norm / std::sqrt(static_cast<double>(golden.token_count));
      for (size_t k = 0; k < position.ids.size(); ++k) {
        const double off = logits[row][static_cast<size_t>(position.ids[k])] - position.logits[k];
        squares[rounds ? 1 : 0] += off * off;
        ASSERT_TRUE(!rounds || std::fabs(off) <= kSigmas * Fp8Deviation(spec) * rms) << "row " << row << ": " << off;
      }
    }
  }
  std::printf("off by %.3f of what is off without the rounding\n", std::sqrt(squares[1] / squares[0]));
  // The same rounding. Inputs that differ by d, a rounding to BF16 or two, differ in their codes with a probability of
  // d by a code's step, and then by that step: in the mean square d times the step, where rounding itself is off by a
  // twelfth of the step's square. With d 2^-9 to 2^-8, and steps near 2^-3.5, that is 0.27 to 0.53. Other spans or
  // scales would have errors of their own: 2.
  EXPECT_LE(squares[1], 0.75 * squares[0]);
}

}  // namespace
}  // namespace moestro::model
