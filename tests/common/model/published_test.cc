// Checkpoints that transformers and compressed-tensors wrote, as they wrote them, and some in the layouts of AWQ and
// GPTQ: they load, and have the reference's logits and greedy tokens. tests/golden/README.md, section "published".
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/engine.h"
#include "common/model/sampler.h"
#include "gtest/gtest.h"
#include "tests/common/model/engine_harness.h"
#include "tests/common/model/golden_case.h"
#include "tests/common/model/tolerance.h"
#include "tests/support/segment_from_checkpoint.h"
#include "tests/support/test_kernels.h"

namespace moestro::model {
namespace {

class Published : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return absl::StrCat("tests/golden/published/", GetParam()); }
};

// Every position is within the tolerance: the prompts were chosen so that rounding changes no choice of experts.
void ExpectLogits(const weights::ModelSpec& spec, const GoldenCase& golden, const Logits& logits) {
  ASSERT_EQ(logits.size(), golden.positions.size());
  for (size_t t = 0; t < logits.size(); ++t) {
    const GoldenPosition& position = golden.positions[t];
    const double rms = position.norm / std::sqrt(static_cast<double>(golden.token_count));
    const double tolerance = kSigmas * RelativeDeviation(spec) * rms;
    for (size_t i = 0; i < position.ids.size(); ++i) {
      EXPECT_NEAR(logits[t][static_cast<size_t>(position.ids[i])], position.logits[i], tolerance)
          << "position " << t << ", token " << position.ids[i];
    }
  }
}

TEST_P(Published, LoadsAsItIsAndHasTheReferencesLogits) {
  const absl::StatusOr<OwnedSegment> owned = BuildSegmentInMemory(folder() + "/checkpoint");
  ASSERT_TRUE(owned.ok()) << owned.status();
  const absl::StatusOr<std::vector<GoldenCase>> cases = ReadGoldenCases(folder());
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 1);
  const GoldenCase& golden = cases->front();
  const weights::ModelSpec& spec = owned->segment->spec();
  ASSERT_EQ(golden.token_count, spec.token_count);
  ASSERT_LT(spec.token_count, spec.vocab_size);
  WorkerPool pool(2);
  const auto engine = Engine::Create(*owned->segment, TestKernels(), pool, {.max_rows = 16});
  ASSERT_TRUE(engine.ok()) << engine.status();
  for (const MlaForm form : {MlaForm::kAbsorbed, MlaForm::kUnabsorbed}) {
    const TestSequence sequence(spec, std::ssize(golden.prompt) + std::ssize(golden.greedy));
    const Logits prompt = RunPrompt(**engine, sequence, golden.prompt, 16, form);
    ExpectLogits(spec, golden, prompt);
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

INSTANTIATE_TEST_SUITE_P(Families, Published,
                         ::testing::Values("dbrx", "dbrx_gptq", "deepseek_v2", "deepseek_v3", "deepseek_v3_gptq",
                                           "deepseek_v3_int4", "deepseek_v3_int4z", "glm4_moe", "gpt_oss", "llama",
                                           "minimax_m2", "mixtral", "mixtral_gptq", "qwen2_moe", "qwen3_moe",
                                           "qwen3_moe_awq", "qwen3_moe_mxfp4"),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace moestro::model
