#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/cli/model/make_model/make_model.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

std::string FileBytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// CRC-32 as in zlib, continuing from `crc`.
uint32_t Crc32(uint32_t crc, const std::string& bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t;
    for (uint32_t i = 0; i < t.size(); ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = (t[i] >> 1) ^ (t[i] & 1 ? 0xedb88320u : 0u);
    }
    return t;
  }();
  crc = ~crc;
  for (const char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

struct Made {
  const char* preset;
  const char* golden;
};

class GoldenChecksumTest : public ::testing::TestWithParam<Made> {};

TEST_P(GoldenChecksumTest, GoldenLogitsBelongToThisGenerator) {
  const fs::path golden = GetParam().golden;
  const nlohmann::json manifest = nlohmann::json::parse(FileBytes(golden / "manifest.json"));
  const fs::path model = fs::path(::testing::TempDir()) / ("golden_checksum_model-" + std::to_string(getpid()));
  fs::remove_all(model);
  ASSERT_TRUE(MakeModel({.preset = GetParam().preset, .out_dir = model.string()}, nullptr).ok());
  std::vector<fs::path> shards;
  for (const auto& entry : fs::directory_iterator(model)) {
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
  }
  std::ranges::sort(shards);
  uint32_t crc = 0;
  for (const fs::path& shard : shards) crc = Crc32(crc, FileBytes(shard));
  const nlohmann::json tokenizer = nlohmann::json::parse(FileBytes(model / "tokenizer.json"));
  fs::remove_all(model);
  const char* remedy = "make the golden files again: tests/golden/README.md says how";
  EXPECT_EQ(manifest["checkpoint"]["crc32"], crc) << remedy;
  for (const nlohmann::json& name : manifest["cases"]) {
    const nlohmann::json golden_case = nlohmann::json::parse(FileBytes(golden / name.get<std::string>()));
    EXPECT_EQ(golden_case["checkpoint"], manifest["checkpoint"]) << name << ": " << remedy;
    EXPECT_EQ(golden_case["token_count"], tokenizer["added_tokens"].back()["id"].get<int>() + 1) << remedy;
  }
}

std::string Name(const ::testing::TestParamInfo<Made>& model) {
  const std::string folder = model.param.golden;
  return folder.substr(folder.rfind('/') + 1);
}

INSTANTIATE_TEST_SUITE_P(
    Models, GoldenChecksumTest,
    ::testing::Values(Made{"tiny", "tests/golden/deepseek_v3_tiny"}, Made{"tiny-qwen3", "tests/golden/qwen3_moe_tiny"},
                      Made{"tiny-mixtral", "tests/golden/mixtral_tiny"},
                      Made{"tiny-deepseek-v2", "tests/golden/deepseek_v2_tiny"},
                      Made{"tiny-deepseek-v2-lite", "tests/golden/deepseek_v2_lite_tiny"},
                      Made{"tiny-kimi-k2", "tests/golden/kimi_k2_tiny"}, Made{"tiny-glm", "tests/golden/glm4_moe_tiny"},
                      Made{"tiny-gpt-oss", "tests/golden/gpt_oss_tiny"}, Made{"tiny-llama", "tests/golden/llama_tiny"},
                      Made{"tiny-minimax", "tests/golden/minimax_m2_tiny"},
                      Made{"tiny-qwen3-mixed", "tests/golden/qwen3_moe_mixed_tiny"},
                      Made{"tiny-qwen2", "tests/golden/qwen2_moe_tiny"}, Made{"tiny-dbrx", "tests/golden/dbrx_tiny"}),
    Name);

}  // namespace
}  // namespace moestro::cli
