#include "tests/support/segment_from_checkpoint.h"

#include <gtest/gtest.h>

#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::store {
namespace {

TEST(BuildSegmentInMemory, TakesTheModelFromConfigJson) {
  const testing::TempDir dir;
  const weights::ModelSpec spec = testing::TinySpec();
  dir.Write("config.json", testing::TinyConfig().dump());
  dir.Write("model.safetensors", testing::TinyTensors(spec).Build());
  const auto owned = BuildSegmentInMemory(dir.path());
  ASSERT_TRUE(owned.ok()) << owned.status();
  EXPECT_EQ(owned->segment->spec().hidden_size, spec.hidden_size);
  EXPECT_TRUE(owned->segment->Find("model.layers.1.self_attn.kv_b_proj.key_transposed").ok());
  EXPECT_TRUE(owned->segment->VerifyData().ok());
}

TEST(BuildSegmentInMemory, ReportsWhatIsMissing) {
  EXPECT_EQ(BuildSegmentInMemory("no/such/directory").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace moestro::store
