// The model to generate, as described by its config.json: a published one, changed by a preset and the options.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "common/weights/model_spec.h"
#include "services/cli/model/make_model/make_model.h"

namespace moestro::cli {

inline constexpr const char kBf16Weights[] = "bf16";
inline constexpr const char kInt4Weights[] = "int4";
inline constexpr const char kMxfp4Weights[] = "mxfp4";
inline constexpr const char kInt4AsymWeights[] = "int4_asym";  // compressed-tensors with zero points and F16 scales
inline constexpr const char kAwqWeights[] = "awq";
inline constexpr const char kGptqWeights[] = "gptq";
inline constexpr const char kInt8Weights[] = "int8";           // as compressed-tensors says it
inline constexpr const char kW8A8Int8Weights[] = "w8a8_int8";  // the same with F32 scales, as SGLang says it

struct MadeModel {
  nlohmann::json config;    // config.json, with the keys of the published file
  weights::ModelSpec spec;  // the contents of `config`
  int64_t mtp_layers = 0;   // 0 or 1, multi-token prediction, at layer index spec.num_layers
  int64_t shard_bytes = 0;
  std::string weights = "fp8";  // of MakeModelOptions, the preset's if not given
  bool gguf = false;            // one file in GGUF instead of a directory

  bool fp8() const { return weights == "fp8"; }
  bool int8() const { return weights == kInt8Weights || weights == kW8A8Int8Weights; }
  bool by_input() const { return weights == kAwqWeights || weights == kGptqWeights; }
  bool zero_points() const { return weights == kInt4AsymWeights || by_input(); }
  bool four_bits() const { return weights == kInt4Weights || weights == kMxfp4Weights || zero_points(); }
};

// INVALID_ARGUMENT, naming the flag: an unknown preset or weight type, a value out of range, four-bit weights of a
// model without routed experts in tensors of their own, weights that only the other kind of files has, or a model that
// GGUF has no metadata for.
absl::StatusOr<MadeModel> ResolveModel(const MakeModelOptions& options);

std::string ConfigJson(const MadeModel& model);
std::string GenerationConfigJson();

}  // namespace moestro::cli
