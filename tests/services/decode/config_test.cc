#include "services/decode/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/kv/format.h"

namespace moestro::decode {
namespace {

TEST(DecodeConfigTest, ErrorsNameTheFlag) {
  DecodeConfig config;
  config.node.run_dir = testing::TempDir() + "decode_config";
  EXPECT_TRUE(ValidateDecodeConfig(config).ok());
  config.max_batch = 0;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), testing::HasSubstr("--max-batch 0"));
  config.max_batch = 6;
  config.itl_bound_ms = 0;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), testing::HasSubstr("--itl-bound-ms 0"));
  config.itl_bound_ms = 50;
  config.max_chunk_tokens = 0;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), testing::HasSubstr("--max-chunk-tokens 0"));
  config.max_chunk_tokens = 256;
  config.reserve_ahead_tokens = 0;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), testing::HasSubstr("--reserve-ahead-tokens 0"));
  config.reserve_ahead_tokens = 256;
  for (const char* device : {"tpu", "cuda:", "cuda:x", "cuda:-1"}) {
    config.device = device;
    EXPECT_THAT(ValidateDecodeConfig(config).message(), testing::HasSubstr("use none, host or cuda:N")) << device;
  }
  config.device = "cuda";
  EXPECT_TRUE(ValidateDecodeConfig(config).ok());
  EXPECT_EQ(config.cuda_ordinal(), 0);
  config.device = "cuda:1";
  EXPECT_EQ(config.cuda_ordinal(), 1);
  config.pin_bytes = -1;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), testing::HasSubstr("--device-pin-bytes -1"));
  config.pin_bytes = 0;
  config.node.run_dir = "/" + std::string(200, 'x');
  EXPECT_THAT(ValidateDecodeConfig(config).message(), testing::HasSubstr("--run-dir"));
}

TEST(ChooseKvTokensTest, BoundedByContextMemoryAndCap) {
  constexpr int64_t kPlenty = int64_t{1} << 50;
  EXPECT_EQ(ChooseKvTokens(4096, 1000, kPlenty), 8192);
  EXPECT_EQ(ChooseKvTokens(163840, 1000, kPlenty), 65536);
  EXPECT_EQ(ChooseKvTokens(163840, 1000, 4000000), 1000);
  EXPECT_EQ(ChooseKvTokens(163840, 1000, 0), kv::kPageTokens);
}

}  // namespace
}  // namespace moestro::decode
