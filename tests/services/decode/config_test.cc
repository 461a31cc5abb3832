#include "services/decode/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/kv/format.h"

namespace moestro::decode {
namespace {

TEST(DecodeConfigTest, ErrorsNameTheFlag) {
  DecodeConfig config;
  config.node.run_dir = ::testing::TempDir() + "decode_config-" + std::to_string(getpid());
  EXPECT_TRUE(ValidateDecodeConfig(config).ok());
  config.max_batch = -1;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), ::testing::HasSubstr("--max-batch -1"));
  config.max_batch = 0;
  config.itl_bound_ms = -1;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), ::testing::HasSubstr("--itl-bound-ms -1"));
  config.itl_bound_ms = 0;
  config.max_chunk_tokens = -1;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), ::testing::HasSubstr("--max-chunk-tokens -1"));
  config.max_chunk_tokens = 0;
  config.reserve_ahead_tokens = 0;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), ::testing::HasSubstr("--reserve-ahead-tokens 0"));
  config.reserve_ahead_tokens = 256;
  for (const char* device : {"tpu", "cuda:", "cuda:x", "cuda:-1"}) {
    config.device = device;
    EXPECT_THAT(ValidateDecodeConfig(config).message(), ::testing::HasSubstr("use none, host or cuda:N")) << device;
  }
  config.device = "cuda";
  EXPECT_TRUE(ValidateDecodeConfig(config).ok());
  EXPECT_EQ(config.cuda_ordinal(), 0);
  config.device = "cuda:1";
  EXPECT_EQ(config.cuda_ordinal(), 1);
  config.pin_bytes = -1;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), ::testing::HasSubstr("--device-pin-bytes -1"));
  config.pin_bytes = 0;
  config.node.run_dir = "/" + std::string(200, 'x');
  EXPECT_THAT(ValidateDecodeConfig(config).message(), ::testing::HasSubstr("--run-dir"));
}

TEST(DecodeConfigTest, TheModeChoosesWhatAStepHolds) {
  DecodeConfig config;
  config.node.run_dir = ::testing::TempDir() + "decode_config-" + std::to_string(getpid());
  EXPECT_EQ(config.limits().max_batch, 6);
  EXPECT_EQ(config.limits().bound_seconds, 0.05);
  EXPECT_EQ(config.limits().max_chunk_tokens, 256);
  config.max_batch = 65;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), ::testing::HasSubstr("use --mode throughput"));
  config.mode = Mode::kThroughput;
  EXPECT_TRUE(ValidateDecodeConfig(config).ok());
  EXPECT_EQ(config.limits().max_batch, 65);
  config.max_batch = 0;
  EXPECT_EQ(config.limits().max_batch, 256);
  EXPECT_TRUE(std::isinf(config.limits().bound_seconds));
  EXPECT_EQ(config.limits().max_chunk_tokens, 1024);
  config.device = "host";
  EXPECT_EQ(config.limits().max_chunk_tokens, 4096);
  config.device = "none";
  config.itl_bound_ms = 200;
  config.max_chunk_tokens = 512;
  EXPECT_EQ(config.limits().bound_seconds, 0.2);
  EXPECT_EQ(config.limits().max_chunk_tokens, 512);
  config.max_batch = 8193;
  EXPECT_THAT(ValidateDecodeConfig(config).message(), ::testing::HasSubstr("--max-batch 8193"));
  config.max_batch = 8192;
  EXPECT_TRUE(ValidateDecodeConfig(config).ok());
}

TEST(DecodeConfigTest, BatchesThatStreamHaveFlagsOfTheirOwn) {
  const auto error = [](auto set) {
    DecodeConfig config;
    config.mode = Mode::kThroughput;
    config.device = "host";
    set(config);
    return std::string(ValidateDecodeConfig(config).message());
  };
  const auto set_all = [](DecodeConfig& config) {
    config.batch_schedule = BatchSchedule::kS2;
    config.micro_batch = 4;
    config.device_memory_bytes = int64_t{1} << 30;
  };
  EXPECT_EQ(error(set_all), "");
  EXPECT_EQ(error([](DecodeConfig& c) { c.device = "cuda:0"; }), "");
  const auto attend = [](DecodeConfig& c) {
    c.device = "cuda:0";
    c.batch_schedule = BatchSchedule::kS4;
  };
  EXPECT_THAT(error(attend), ::testing::HasSubstr("--batch-schedule s4: GPUs do not attend"));
  EXPECT_THAT(error([](DecodeConfig& c) { c.expert_cache_bytes = 1; }), ::testing::HasSubstr("set --device-memory"));
  EXPECT_THAT(error([](DecodeConfig& c) { c.routing_trace = "x"; }), ::testing::HasSubstr("--routing-trace"));
  EXPECT_EQ(error([](DecodeConfig& c) { c.copy_rate = 1 << 30; }), "");
  const auto paced_gpu = [](DecodeConfig& c) {
    c.device = "cuda:0";
    c.copy_rate = 1;
  };
  EXPECT_THAT(error(paced_gpu), ::testing::HasSubstr("--copy-rate: for trials, needs --device host"));
  EXPECT_THAT(error([](DecodeConfig& c) { c.copy_rate = -1; }), ::testing::HasSubstr("--copy-rate -1"));
  EXPECT_THAT(error([](DecodeConfig& c) { c.micro_batch = 8193; }), ::testing::HasSubstr("--micro-batch 8193"));
  // Without the mode, or without a device.
  for (const auto& [mode, device] : {std::pair(Mode::kLatency, "host"), std::pair(Mode::kThroughput, "none")}) {
    const auto alone = [&, mode = mode, device = device](auto set) {
      return error([&](DecodeConfig& config) {
        config.mode = mode;
        config.device = device;
        set(config);
      });
    };
    EXPECT_THAT(alone([](DecodeConfig& c) { c.batch_schedule = BatchSchedule::kS3; }),
                ::testing::StartsWith("--batch-schedule: needs"));
    EXPECT_THAT(alone([](DecodeConfig& c) { c.micro_batch = 1; }), ::testing::StartsWith("--micro-batch: needs"));
    EXPECT_THAT(alone([](DecodeConfig& c) { c.device_memory_bytes = 1; }),
                ::testing::StartsWith("--device-memory: needs"));
  }
}

}  // namespace
}  // namespace moestro::decode
