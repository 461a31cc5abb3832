// Logits and greedy tokens of make-model's files in GGUF: those of transformers with the weights that the gguf package
// reads from them. tests/golden/README.md, section "gguf".
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/cli/model/make_model/make_model.h"
#include "tests/common/model/golden_check.h"
#include "tests/common/model/golden_model.h"
#include "tests/support/segment_from_checkpoint.h"

namespace moestro::model {
namespace {

struct GgufFile {
  const char* golden;
  const char* preset;
  const char* weights;
};

class GgufGolden : public ::testing::TestWithParam<GgufFile> {
 protected:
  ~GgufGolden() override { std::filesystem::remove(path_); }
  const std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat(GetParam().golden, ".", ::getpid(), ".gguf");
};

TEST_P(GgufGolden, HasTheReferencesLogits) {
  const absl::Status made = cli::MakeModel(
      {.preset = GetParam().preset, .out_dir = path_.string(), .layers = 2, .weights = GetParam().weights}, nullptr);
  ASSERT_TRUE(made.ok()) << made;
  const auto cases = ReadGoldenCases(absl::StrCat("tests/golden/gguf/", GetParam().golden));
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 1);
  ASSERT_EQ(cases->front().checkpoint_crc32, FilesCrc32({path_})) << "golden files belong to another file";
  const absl::StatusOr<OwnedSegment> owned = BuildSegmentInMemory(path_.string());
  ASSERT_TRUE(owned.ok()) << owned.status();
  ExpectGolden(*owned->segment, cases->front());
}

INSTANTIATE_TEST_SUITE_P(Files, GgufGolden,
                         ::testing::Values(GgufFile{"glm_q8_0", "tiny-glm", "q8_0"},
                                           GgufFile{"qwen3_q8_0", "tiny-qwen3", "q8_0"},
                                           GgufFile{"qwen3_q4_k_m", "tiny-qwen3", "q4_k_m"},
                                           GgufFile{"qwen3_q4_0", "tiny-qwen3", "q4_0"},
                                           GgufFile{"mixtral_q6_k", "tiny-mixtral", "q6_k"},
                                           GgufFile{"gpt_oss_mxfp4", "tiny-gpt-oss-32", "mxfp4"},
                                           GgufFile{"minimax_q8_0", "tiny-minimax", "q8_0"}),
                         [](const auto& file) { return file.param.golden; });

}  // namespace
}  // namespace moestro::model
