#include "tests/common/model/golden_model.h"

#include <unistd.h>

#include <algorithm>
#include <boost/crc.hpp>
#include <filesystem>
#include <fstream>
#include <utility>

#include "gtest/gtest.h"
#include "services/cli/model/make_model/make_model.h"

namespace moestro::model {
namespace {

std::string ShardsCrc32(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> shards;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
  }
  std::ranges::sort(shards);
  return FilesCrc32(shards);
}

absl::StatusOr<TinyModel> MakeTinyModel(const std::string& preset, const std::string& golden) {
  TinyModel model;
  const auto directory =
      std::filesystem::path(::testing::TempDir()) / ("golden_" + preset + "." + std::to_string(::getpid()));
  if (absl::Status status = cli::MakeModel({.preset = preset, .out_dir = directory.string()}, nullptr); !status.ok()) {
    return status;
  }
  model.crc32 = ShardsCrc32(directory);
  auto owned = BuildSegmentInMemory(directory.string());
  std::filesystem::remove_all(directory);
  if (!owned.ok()) return owned.status();
  model.owned = *std::move(owned);
  auto cases = ReadGoldenCases(golden);
  if (!cases.ok()) return cases.status();
  model.cases = *std::move(cases);
  return model;
}

}  // namespace

std::string FilesCrc32(const std::vector<std::filesystem::path>& files) {
  boost::crc_32_type crc;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
    crc.process_bytes(bytes.data(), bytes.size());
  }
  return std::to_string(crc.checksum());
}

const absl::StatusOr<TinyModel>& Tiny() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny", "tests/golden/deepseek_v3_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyQwen3() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny-qwen3", "tests/golden/qwen3_moe_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyGlm() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny-glm", "tests/golden/glm4_moe_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyQwen3Mixed() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny-qwen3-mixed", "tests/golden/qwen3_moe_mixed_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyQwen2() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny-qwen2", "tests/golden/qwen2_moe_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyLlama() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny-llama", "tests/golden/llama_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyGptOss() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny-gpt-oss", "tests/golden/gpt_oss_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyMiniMax() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny-minimax", "tests/golden/minimax_m2_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyMixtral() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny-mixtral", "tests/golden/mixtral_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyDeepSeekV2() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny-deepseek-v2", "tests/golden/deepseek_v2_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyDeepSeekV2Lite() {
  static const absl::StatusOr<TinyModel> model =
      MakeTinyModel("tiny-deepseek-v2-lite", "tests/golden/deepseek_v2_lite_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyKimiK2() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny-kimi-k2", "tests/golden/kimi_k2_tiny");
  return model;
}

const absl::StatusOr<TinyModel>& TinyDbrx() {
  static const absl::StatusOr<TinyModel> model = MakeTinyModel("tiny-dbrx", "tests/golden/dbrx_tiny");
  return model;
}

}  // namespace moestro::model
