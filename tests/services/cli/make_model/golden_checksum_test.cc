#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "nlohmann/json.hpp"
#include "services/cli/make_model/make_model.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
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

TEST(GoldenChecksumTest, GoldenLogitsBelongToThisGenerator) {
  const fs::path golden = "tests/golden/deepseek_v3_tiny";
  const nlohmann::json manifest = nlohmann::json::parse(ReadFile(golden / "manifest.json"));
  const fs::path model = fs::path(::testing::TempDir()) / "golden_checksum_model";
  fs::remove_all(model);
  ASSERT_TRUE(MakeModel({.out_dir = model.string()}, nullptr).ok());
  uint32_t crc = 0;
  for (int shard = 1; shard <= 4; ++shard) {
    crc = Crc32(crc, ReadFile(model / ("model-0000" + std::to_string(shard) + "-of-00004.safetensors")));
  }
  const nlohmann::json tokenizer = nlohmann::json::parse(ReadFile(model / "tokenizer.json"));
  fs::remove_all(model);
  const char* remedy = "make the golden files again: tests/golden/README.md says how";
  EXPECT_EQ(manifest["checkpoint"]["crc32"], crc) << remedy;
  for (const nlohmann::json& name : manifest["cases"]) {
    const nlohmann::json golden_case = nlohmann::json::parse(ReadFile(golden / name.get<std::string>()));
    EXPECT_EQ(golden_case["checkpoint"], manifest["checkpoint"]) << name << ": " << remedy;
    EXPECT_EQ(golden_case["token_count"], tokenizer["added_tokens"].back()["id"].get<int>() + 1) << remedy;
  }
}

}  // namespace
}  // namespace moestro
