// Checkpoints that transformers and compressed-tensors wrote, as they wrote them, and some in the layouts of AWQ and
// GPTQ: they load, and have the reference's logits and greedy tokens. tests/golden/README.md, section "published".
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/common/model/golden_check.h"
#include "tests/support/segment_from_checkpoint.h"

namespace moestro::model {
namespace {

class Published : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return absl::StrCat("tests/golden/published/", GetParam()); }
};

TEST_P(Published, LoadsAsItIsAndHasTheReferencesLogits) {
  const absl::StatusOr<OwnedSegment> owned = BuildSegmentInMemory(folder() + "/checkpoint");
  ASSERT_TRUE(owned.ok()) << owned.status();
  const absl::StatusOr<std::vector<GoldenCase>> cases = ReadGoldenCases(folder());
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 1);
  const GoldenCase& golden = cases->front();
  ASSERT_LT(golden.token_count, owned->segment->spec().vocab_size);
  ExpectGolden(*owned->segment, golden);
}

INSTANTIATE_TEST_SUITE_P(Families, Published,
                         ::testing::Values("dbrx", "dbrx_gptq", "deepseek_v2", "deepseek_v3", "deepseek_v3_gptq",
                                           "deepseek_v3_int4", "deepseek_v3_int4z", "deepseek_v3_int8", "glm4_moe",
                                           "gpt_oss", "gpt_oss_mxfp4", "llama", "minimax_m2", "mixtral", "mixtral_gptq",
                                           "qwen2_moe", "qwen3_moe", "qwen3_moe_awq", "qwen3_moe_int8",
                                           "qwen3_moe_mxfp4"),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace moestro::model
