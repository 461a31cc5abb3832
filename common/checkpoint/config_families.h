// What config.json says of a model in the words of its family, and the bounds of it. Internal to this folder.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "common/text/json/json.h"
#include "common/weights/model_spec.h"

namespace moestro::checkpoint {

// Bounds of a model's dimensions. Several times the largest published models. Together they keep every product that the
// engine forms (parameters and bytes of the whole model) below 2^58, and the list of expected tensors below a million
// entries.
inline constexpr int64_t kMaxHidden = int64_t{1} << 17;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 1024;
inline constexpr int64_t kMaxRank = int64_t{1} << 17;
inline constexpr int64_t kMaxIntermediate = int64_t{1} << 18;
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxSharedExperts = 64;
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxPositions = int64_t{1} << 27;
inline constexpr int64_t kMaxExpertsOfAllLayers = int64_t{1} << 18;

struct ConfigDocument {
  nlohmann::json json;
  std::string label;  // begins every message
};

// The text model's settings. All three names of the number of experts have its value. rope_theta and
// partial_rotary_factor stand outside of the rope settings, too.
// INVALID_ARGUMENT: two names whose values contradict each other. UNIMPLEMENTED: rope settings for each type of layer.
absl::StatusOr<ConfigDocument> InOneSpelling(nlohmann::json document);

// Each reads what other families do not have or call otherwise, and checks it; ModelSpec's fields that ParseModelSpec
// reads for all families are there already, but for those with keys of their own.
void ReadDeepSeek(text::JsonFields& config, weights::ModelSpec* spec);  // deepseek_v2, deepseek_v3, kimi_k2
void ReadQwen2Moe(text::JsonFields& config, weights::ModelSpec* spec);
void ReadQwen3Moe(text::JsonFields& config, weights::ModelSpec* spec);
void ReadMixtral(text::JsonFields& config, weights::ModelSpec* spec);
void ReadGlm4Moe(text::JsonFields& config, weights::ModelSpec* spec);
void ReadGptOss(text::JsonFields& config, weights::ModelSpec* spec);
void ReadLlama(text::JsonFields& config, weights::ModelSpec* spec);
void ReadDbrx(text::JsonFields& config, weights::ModelSpec* spec);
void ReadMiniMaxM2(text::JsonFields& config, weights::ModelSpec* spec);

// For the readers above:
// Key and value heads, and the size of a head, which rotates as a whole unless SetRotaryDims says otherwise.
void ReadGroupedQueries(text::JsonFields& config, weights::ModelSpec* spec);
// The part of a head that rotates.
double PartialRotaryFactor(text::JsonFields& config, double fallback);
// UNIMPLEMENTED, naming the field, unless `dims` is even and not more than a head has.
void SetRotaryDims(text::JsonFields& config, const char* key, double dims, weights::ModelSpec* spec);
// Routed and shared experts, layers without them, groups and scaling of a sigmoid router, in DeepSeek-V3's words.
void ReadSigmoidExperts(text::JsonFields& config, weights::ModelSpec* spec);
// UNIMPLEMENTED, naming the field, unless value is a multiple of factor.
void CheckMultiple(text::JsonFields& config, const char* key, int64_t value, int64_t factor);
// Relations between the numbers of experts: of all, which config.json calls `experts_key`, and of those that a token
// chooses.
void CheckExpertCounts(text::JsonFields& config, const char* experts_key, const weights::ModelSpec& spec,
                       const char* chosen_key = "num_experts_per_tok");

}  // namespace moestro::checkpoint
