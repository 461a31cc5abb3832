#include "services/prefill/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro {
namespace {

PrefillConfig Valid() {
  PrefillConfig config;
  config.node.run_dir = testing::TempDir() + "prefill_config";
  return config;
}

TEST(PrefillConfigTest, DefaultsAreValid) { EXPECT_TRUE(ValidatePrefillConfig(Valid()).ok()); }

TEST(PrefillConfigTest, ErrorsNameTheFlag) {
  PrefillConfig config = Valid();
  config.chunk_tokens = 0;
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--chunk-tokens 0"));
  config = Valid();
  config.mla_form.name = "folded";
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--mla-form folded"));
  config = Valid();
  config.stream.device = "abacus";
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--device abacus"));
  for (const char* device : {"cuda:", "cuda:x", "cuda:-1", "cuda:0 "}) {
    config.stream.device = device;
    EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("use none, host or cuda:N")) << device;
  }
  config.stream.device = "cuda";
  EXPECT_EQ(config.stream.cuda_ordinal(), 0);
  config.stream.device = "cuda:1";
  EXPECT_EQ(config.stream.cuda_ordinal(), 1);
  EXPECT_TRUE(ValidatePrefillConfig(config).ok());
  config.mla_form.name = "absorbed";
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--mla-form absorbed"));
  config = Valid();
  config.stream.ring_slots = 1;
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--ring-slots 1"));
  config = Valid();
  config.node.instance = "a/b";
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--instance"));
}

TEST(MlaFormPolicyTest, AutoChangesFormAtTheThreshold) {
  MlaFormPolicy policy;
  EXPECT_EQ(policy.ForPrompt(policy.unabsorbed_from_tokens - 1), MlaForm::kAbsorbed);
  EXPECT_EQ(policy.ForPrompt(policy.unabsorbed_from_tokens), MlaForm::kUnabsorbed);
  policy.name = "absorbed";
  EXPECT_EQ(policy.ForPrompt(1 << 20), MlaForm::kAbsorbed);
  policy.name = "unabsorbed";
  EXPECT_EQ(policy.ForPrompt(1), MlaForm::kUnabsorbed);
}

}  // namespace
}  // namespace moestro
