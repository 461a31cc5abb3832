#include "services/decode/hybrid_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/engine_node.h"
#include "tests/support/test_kernels.h"

namespace moestro::decode {
namespace {

// In a build without CUDA, and on a machine that has no such GPU.
TEST(HybridDeviceTest, SaysThatThereIsNoSuchGpu) {
  EngineNode node;
  DecodeConfig config;
  config.device = "cuda:99";
  const auto hybrid = HybridDevice::Create(config, node.segment(), TestKernels(), node.workers(), node.pool(),
                                           {.max_batch = 4, .max_chunk_tokens = 4}, /*recorder=*/nullptr);
  EXPECT_FALSE(hybrid.ok());
  EXPECT_THAT(std::string(hybrid.status().message()), ::testing::StartsWith("--device cuda:99: "));
}

}  // namespace
}  // namespace moestro::decode
