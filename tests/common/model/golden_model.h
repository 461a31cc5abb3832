// The generated tiny checkpoints in memory, with another implementation's results.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/common/model/golden_case.h"
#include "tests/support/segment_from_checkpoint.h"

namespace moestro::model {

struct TinyModel {
  std::string crc32;  // of the shards
  OwnedSegment owned;
  std::vector<GoldenCase> cases;
};

// Made once. Tests must run from the source root.
// CRC-32 of these files, one after the other, as golden files record it.
std::string FilesCrc32(const std::vector<std::filesystem::path>& files);

const absl::StatusOr<TinyModel>& Tiny();            // DeepSeek-V3
const absl::StatusOr<TinyModel>& TinyQwen3();       // Qwen3-MoE
const absl::StatusOr<TinyModel>& TinyQwen3Mixed();  // with dense layers and a tied head
const absl::StatusOr<TinyModel>& TinyQwen2();
const absl::StatusOr<TinyModel>& TinyMixtral();
const absl::StatusOr<TinyModel>& TinyDeepSeekV2();
const absl::StatusOr<TinyModel>& TinyDeepSeekV2Lite();
const absl::StatusOr<TinyModel>& TinyKimiK2();
const absl::StatusOr<TinyModel>& TinyGlm();  // GLM-4.5
const absl::StatusOr<TinyModel>& TinyDbrx();
const absl::StatusOr<TinyModel>& TinyLlama();  // without experts
const absl::StatusOr<TinyModel>& TinyGptOss();
const absl::StatusOr<TinyModel>& TinyMiniMax();  // MiniMax-M2

}  // namespace moestro::model
